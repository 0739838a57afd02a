"""Reads long texts without a place to cut them, for BERT's WordPiece: most are one word, too long to have tokens of its own.

Millions of emoji with joiners are such a text. The tokenizer would take 300 bytes for each character of it, all at once.
"""

from collections.abc import Callable
from typing import NamedTuple

from tokenizers import Tokenizer

STEP = 4096  # characters that are looked at in one step


class Word(NamedTuple):
    """The only token of a text, ``text[start:end]``, which stands for an unknown word."""

    start: int
    end: int


def long_word(tokenizer: Tokenizer, text: str, pause: Callable[[], object] = int, step: int = STEP) -> list[Word] | None:
    """The token of a text that is one word of more characters than the model reads, or no token; None for any other text.

    Args:
        tokenizer: one that `reads_words`: it normalizes characters one by one, and splits words at characters of certain kinds.
        text: without surrogates.
        pause: is called after each step.
        step: characters of a step.
    """
    n_chars, first, last = 0, -1, -1
    for start in range(0, len(text), step):
        piece = text[start : start + step]
        if seen := tokenizer.normalizer.normalize_str(piece):  # joiners and marks are dropped
            if [word for word, _ in tokenizer.pre_tokenizer.pre_tokenize_str(seen)] != [seen]:
                return None
            first, last = start if first < 0 else first, start
            n_chars += len(seen)
        pause()
    if not n_chars:
        return []
    if n_chars <= tokenizer.model.max_input_chars_per_word:
        return None
    begins, ends = (tokenizer.encode(text[at : at + step], add_special_tokens=False).offsets for at in (first, last))
    return [Word(first + begins[0][0], last + ends[-1][1])]
