"""Long texts cut into parts that are read one after the other, so that no step takes long whatever a text says.

Only for tokenizers that read word by word (`keyblock.text.characters.reads_words`): their tokens of the parts are those of the
whole where a part ends behind a space, a punctuation mark or a Chinese character, which are no part of any word.
"""

import unicodedata
from collections.abc import Callable, Iterator
from typing import NamedTuple

PART = 1 << 16  # characters of a part, where there is a place to cut
SHORTEST = 128  # a part that may cut a run of letters is longer than any run that is remembered


class Part(NamedTuple):
    """Characters `start` to `end` of a text.

    Attributes:
        whole: whether it starts and ends between words, for the analyzer too.
    """

    start: int
    end: int
    whole: bool


def parts(text: str, ends_word: Callable[[str], bool]) -> Iterator[Part]:
    """The parts of a text, one behind the other; a text of at most PART characters is one part.

    Args:
        text: any Unicode.
        ends_word: whether a character is no part of a word, to the tokenizer; a space is none.
    """
    start, whole = 0, True
    while len(text) - start > PART:
        end, at_space = _cut(text, start, ends_word)
        if end == len(text):
            break
        yield Part(start, end, whole and at_space)
        start, whole = end, at_space
    yield Part(start, len(text), whole)


def _cut(text: str, start: int, ends_word: Callable[[str], bool]) -> tuple[int, bool]:
    """Where the part that starts here ends, and whether that is behind a space; the text's end where there is no such place."""
    low, most = start + SHORTEST, len(text) - SHORTEST
    while low < most:
        high = min(low + PART - SHORTEST, most)
        space = text.rfind(" ", low, high)
        while space >= 0 and not _stands_alone(text[space + 1]):
            space = text.rfind(" ", low, space)
        if space >= 0:
            return space + 1, True
        for end in range(high, low, -1):
            if ends_word(text[end - 1]) and _stands_alone(text[end]):
                return end, False
        low = high
    return len(text), True


def _stands_alone(character: str) -> bool:
    """Whether what stands before it is read without it: it is no combining mark, and nothing that tokenizers drop."""
    return character != "\ufffd" and unicodedata.category(character)[0] not in "MC"
