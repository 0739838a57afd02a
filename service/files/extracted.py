"""The result of reading a file, and its error."""

from typing import NamedTuple

PAGE_BREAK = "\f"


class Extracted(NamedTuple):
    """The text of a file.

    Attributes:
        text: blocks and spans are offsets into it, in code points.
        title: from the file; empty if it has none.
        problem: a possible fault of the text; empty for none.
        paged: whether the text has a PAGE_BREAK between pages.
    """

    text: str
    title: str = ""
    problem: str = ""
    paged: bool = False


class UnreadableError(ValueError):
    """The text of a file of a known kind cannot be read; the message is one line with the reason and advice."""
