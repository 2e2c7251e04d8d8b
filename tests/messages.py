"""Regular expressions for error messages that must name several things, in any order."""

import re


def says(*parts):
    """Return a pattern of messages that contain all parts, each a regular expression."""
    return re.compile("".join(f"(?=.*(?:{part}))" for part in parts), re.DOTALL)
