"""Long texts cut into parts that are read one after the other, so that no step takes long whatever a text says.

Only for tokenizers that read word by word or unit by unit. Tokens of the parts are those of the whole: for words where a part ends
behind a space, a punctuation mark or a Chinese character, for units (`keyblock.text.units`) where the next part starts with one.
"""

import unicodedata
from collections.abc import Callable, Iterator
from typing import NamedTuple


class Part(NamedTuple):
    """Characters `start` to `end` of a text.

    Attributes:
        at_space: whether it ends at a space, or with the text: between words, for the analyzer too.
    """

    start: int
    end: int
    at_space: bool


LastCut = Callable[[str, int, int], tuple[int, bool] | None]
"""The last place in a text from one place up to another where a part may end, and whether it is at a space; None for none."""


def parts(text: str, last_cut: LastCut, most: int) -> Iterator[Part]:
    """The parts of a text, one behind the other.

    Args:
        text: any Unicode.
        last_cut: says where a part may end.
        most: characters of a part, two at least, where there is a place to cut.
    """
    start = 0
    while len(text) - start > most:
        end, at_space = _cut(text, start, last_cut, most)
        yield Part(start, end, at_space)
        start = end
    if start < len(text) or not text:
        yield Part(start, len(text), True)


def _cut(text: str, start: int, last_cut: LastCut, most: int) -> tuple[int, bool]:
    """Where the part that starts here ends, and whether that is at a space; the text's end where there is no such place."""
    low, end = start + 1, len(text) - 1
    while low < end:
        high = min(low + most - 1, end)
        if (found := last_cut(text, low, high)) is not None:
            return found
        low = high
    return len(text), True


def nowhere(_text: str, _low: int, _high: int) -> None:
    """Cuts no text."""


def behind_words(ends_word: Callable[[str], bool]) -> LastCut:
    """Cuts behind spaces, or else behind characters of which `ends_word` says that they are no part of a word; a space is none."""

    def last_cut(text: str, low: int, high: int) -> tuple[int, bool] | None:
        space = text.rfind(" ", low, high)
        while space >= 0 and not _stands_alone(text[space + 1]):
            space = text.rfind(" ", low, space)
        if space >= 0:
            return space + 1, True
        ends = (end for end in range(high, low, -1) if _stands_alone(text[end]) and ends_word(text[end - 1]))
        end = next(ends, None)
        return None if end is None else (end, False)

    return last_cut


def _stands_alone(character: str) -> bool:
    """Whether what stands before it is read without it: it is no combining mark, and nothing that tokenizers drop."""
    return character != "\ufffd" and unicodedata.category(character)[0] not in "MC"
