"""Words of a file, read in order, with errors that give the line."""

import gzip
import re
import zlib
from pathlib import Path

import numpy as np

_GZIP = b"\x1f\x8b"
#: Maximum number of digits of an integer; int64 holds every integer of this length.
_MAX_DIGITS = 18


class UAIError(ValueError):
    """Error in a UAI file.

    Parameters
    ----------
    path : str or Path
        The file.
    line : int or None
        Line of the wrong word, starting at 1; None at the end of the file.
    token : str or None
        The wrong word; None at the end of the file.
    expected : str
        Description of the expected word.
    """

    def __init__(self, path, line, token, expected):
        super().__init__(path, line, token, expected)
        self.path, self.line, self.token, self.expected = path, line, token, expected

    def __str__(self):
        line = "last line" if self.line is None else f"line {self.line}"
        found = "the end of the file" if self.token is None else _shortened(self.token)
        return f"{self.path}, {line}: expected {self.expected}, got {found}."


def _shortened(token):
    return repr(token if len(token) <= 40 else token[:40] + "...")


class Tokens:
    """Words of a file, and the position of the next one.

    Parameters
    ----------
    path : str or Path
        The file, which may be compressed by gzip.
    """

    def __init__(self, path):
        self.path, self.position = path, 0
        data = Path(path).read_bytes()
        if data[:2] == _GZIP:
            try:
                data = gzip.decompress(data)
            except (OSError, EOFError, zlib.error) as error:
                raise UAIError(path, 1, _GZIP.decode("latin-1"), f"gzip data ({error})") from error
        self.text = data.decode("utf-8-sig", errors="replace")
        self.words = self.text.split()

    def __len__(self):
        """Return the number of words that are left."""
        return len(self.words) - self.position

    def error(self, expected, back=0):
        """Make the error about the next word, or about the word `back` positions before it."""
        position = self.position - back
        if position >= len(self.words):
            return UAIError(self.path, None, None, expected)
        matches = enumerate(re.finditer(r"\S+", self.text))
        start = next(match for i, match in matches if i == position).start()
        return UAIError(self.path, self.text.count("\n", 0, start) + 1, self.words[position], expected)

    def read_word(self, expected):
        """Read one word."""
        if not len(self):
            raise self.error(expected)
        self.position += 1
        return self.words[self.position - 1]

    def read_int(self, expected, minimum=0, maximum=None):
        """Read one integer."""
        word = self.read_word(expected)
        is_int = re.fullmatch(rf"\+?[0-9]{{1,{_MAX_DIGITS}}}", word) is not None
        if not is_int or int(word) < minimum or (maximum is not None and int(word) > maximum):
            raise self.error(expected, back=1)
        return int(word)

    def read_ints(self, count, expected, minimum=0, maximum=None):
        """Read `count` integers."""
        self.require(count, expected)
        return [self.read_int(expected, minimum, maximum) for _ in range(count)]

    def read_floats(self, count, expected, minimum=-np.inf):
        """Read `count` finite numbers."""
        self.require(count, expected)
        words = self.words[self.position : self.position + count]
        try:
            values = np.array([float(word) for word in words], dtype=np.float64)
            wrong = ~(np.isfinite(values) & (values >= minimum))
        except ValueError:
            values, wrong = None, np.array([not _is_float(word) for word in words])
        if wrong.any():
            self.position += int(np.argmax(wrong))
            raise self.error(expected)
        self.position += count
        return values

    def require(self, count, expected):
        """Raise UAIError if fewer than `count` words are left, before memory is allocated for them."""
        if count > len(self):
            self.position = len(self.words)
            raise self.error(expected)

    def check_end(self):
        """Raise UAIError if words are left."""
        if len(self):
            raise self.error("the end of the file")


def _is_float(word):
    try:
        float(word)
    except ValueError:
        return False
    return True
