"""Cuts long texts into parts that are read one after the other, so that no step takes long for any text.

Only for tokenizers that read word by word or unit by unit. The parts have the same tokens as the whole text. With words, a part
ends after a space, a punctuation mark or a Chinese character; with units (`keyblock.text.units`), the next part starts with a unit.
"""

import unicodedata
from collections.abc import Callable, Iterator
from typing import NamedTuple


class Part(NamedTuple):
    """Characters `start` to `end` of a text.

    Attributes:
        at_space: whether it ends at a space or with the text, so that the analyzer's words are whole too.
    """

    start: int
    end: int
    at_space: bool


LastCut = Callable[[str, int, int], tuple[int, bool] | None]
"""The last place between two places of a text where a part may end, and whether it is at a space; None if there is none."""


def parts(text: str, last_cut: LastCut, most: int) -> Iterator[Part]:
    """The parts of a text, in order.

    Args:
        text: any Unicode.
        last_cut: finds a place where a part may end.
        most: the most characters of a part, at least two; a part is longer if there is no place to cut.
    """
    start = 0
    while len(text) - start > most:
        end, at_space = _cut(text, start, last_cut, most)
        yield Part(start, end, at_space)
        start = end
    if start < len(text) or not text:
        yield Part(start, len(text), True)


def _cut(text: str, start: int, last_cut: LastCut, most: int) -> tuple[int, bool]:
    """Where the part from `start` ends, and whether that is at a space; the text's end if there is no place to cut."""
    low, end = start + 1, len(text) - 1
    while low < end:
        high = min(low + most - 1, end)
        if (found := last_cut(text, low, high)) is not None:
            return found
        low = high
    return len(text), True


def nowhere(_text: str, _low: int, _high: int) -> None:
    """Never cut a text."""


def behind_words(ends_word: Callable[[str], bool], is_dropped: Callable[[str], bool]) -> LastCut:
    """Cut after spaces, else beside other characters that are no part of a word.

    Args:
        ends_word: whether a character is no part of a word.
        is_dropped: whether the tokenizer reads a text as if the character were not there: it hides no end of a word before it.
    """

    def may_end(text: str, end: int, low: int) -> bool:
        if not _stands_alone(text[end]):
            return False
        last = end - 1
        while last > low and is_dropped(text[last]):
            last -= 1
        return ends_word(text[end]) or ends_word(text[last])

    def last_cut(text: str, low: int, high: int) -> tuple[int, bool] | None:
        space = text.rfind(" ", low, high)
        while space >= 0 and not _stands_alone(text[space + 1]):
            space = text.rfind(" ", low, space)
        if space >= 0:
            return space + 1, True
        end = next((end for end in range(high, low, -1) if may_end(text, end, low)), None)
        return None if end is None else (end, False)

    return last_cut


def _stands_alone(character: str) -> bool:
    """Whether the text before the character is read without it: it is no combining mark, and tokenizers do not drop it."""
    return character != "\ufffd" and unicodedata.category(character)[0] not in "MC"
