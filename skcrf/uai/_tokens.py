"""The words of a file, read one after another; whoever finds a wrong one names it and its line."""

import gzip
import re
import zlib
from pathlib import Path

import numpy as np

_GZIP = b"\x1f\x8b"
#: Digits of whole numbers that are read; those of 64 bits have no more than 19.
_DIGITS = 18


class UAIError(ValueError):
    """A file that is not what it should be.

    Parameters
    ----------
    path : str or Path
        The file.
    line : int or None
        The line of the word, from 1; None at the end of the file.
    token : str or None
        The word; None at the end of the file.
    expected : str
        What should stand there.
    """

    def __init__(self, path, line, token, expected):
        super().__init__(path, line, token, expected)
        self.path, self.line, self.token, self.expected = path, line, token, expected

    def __str__(self):
        where = "at its end" if self.line is None else f"line {self.line}"
        found = "it ends" if self.token is None else f"found {_short(self.token)}"
        return f"{self.path}, {where}: {found}, expected {self.expected}."


def _short(token):
    return repr(token if len(token) <= 40 else token[:40] + "...")


class Tokens:
    """The words of a file, and how many of them were read.

    Parameters
    ----------
    path : str or Path
        The file; it may be compressed by gzip, whatever its name.
    """

    def __init__(self, path):
        self.path, self.at = path, 0
        data = Path(path).read_bytes()
        if data[:2] == _GZIP:
            try:
                data = gzip.decompress(data)
            except (OSError, EOFError, zlib.error) as problem:
                raise UAIError(path, 1, _GZIP.decode("latin-1"), f"gzip data ({problem})") from problem
        self.text = data.decode("utf-8-sig", errors="replace")
        self.words = self.text.split()

    def __len__(self):
        """How many words are left."""
        return len(self.words) - self.at

    def error(self, expected, back=0):
        """Make the error that names the next word, or one that was read before it."""
        at = self.at - back
        if at >= len(self.words):
            return UAIError(self.path, None, None, expected)
        start = next(found for i, found in enumerate(re.finditer(r"\S+", self.text)) if i == at).start()
        return UAIError(self.path, self.text.count("\n", 0, start) + 1, self.words[at], expected)

    def word(self, expected):
        """Read a word."""
        if not len(self):
            raise self.error(expected)
        self.at += 1
        return self.words[self.at - 1]

    def whole(self, expected, least=0, most=None):
        """Read a whole number."""
        word = self.word(expected)
        right = re.fullmatch(rf"\+?[0-9]{{1,{_DIGITS}}}", word) is not None
        if not right or int(word) < least or (most is not None and int(word) > most):
            raise self.error(expected, back=1)
        return int(word)

    def wholes(self, count, expected, least=0, most=None):
        """Read as many whole numbers; refuses a number of them that the file cannot have."""
        self.need(count, expected)
        return [self.whole(expected, least, most) for _ in range(count)]

    def floats(self, count, expected, least=-np.inf):
        """Read as many finite numbers; refuses a number of them that the file cannot have."""
        self.need(count, expected)
        words = self.words[self.at : self.at + count]
        try:
            values = np.array([float(word) for word in words], dtype=np.float64)
            wrong = ~(np.isfinite(values) & (values >= least))
        except ValueError:
            values, wrong = None, np.array([not _is_float(word) for word in words])
        if wrong.any():
            self.at += int(np.argmax(wrong))
            raise self.error(expected)
        self.at += count
        return values

    def need(self, count, expected):
        """Refuse a number of words that the file does not have."""
        if count > len(self):
            self.at = len(self.words)
            raise self.error(expected)

    def end(self):
        """Refuse words that are left."""
        if len(self):
            raise self.error("the end of the file")


def _is_float(word):
    try:
        float(word)
    except ValueError:
        return False
    return True
