"""What a reader of files gives, and what it says where it gives nothing."""

from typing import NamedTuple

PAGE_BREAK = "\f"


class Extracted(NamedTuple):
    """The text of a file.

    Attributes:
        text: blocks and spans are offsets into it, in code points.
        title: as the file says it; empty where it says none.
        problem: what may be wrong with the text; empty where nothing is.
        paged: whether the text has a PAGE_BREAK between pages.
    """

    text: str
    title: str = ""
    problem: str = ""
    paged: bool = False


class UnreadableError(ValueError):
    """A file of a known kind whose text cannot be had: why, and what to do. One line."""
