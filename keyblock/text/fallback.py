"""The stretches of a text that `keyblock_native` does not read: the tokenizer and the analyzer read each by itself."""

from collections.abc import Collection, Iterable, Sequence
from itertools import accumulate
from typing import Any

import numpy as np

from keyblock import native
from keyblock.text.analyzer import Analyzer
from keyblock.text.tokenizer import Tokenizer

Question = tuple[int, str]
"""What a compiled reader asks, and the stretch: one of ASKED of `keyblock_native`, or 0 for the tokens."""
Answers = tuple[Any, ...]
"""Odds of `keyblock_native`, as its readers take them."""
Token = tuple[int, int, int]
"""Its id, and where it starts and ends in the stretch."""
FILLER = " a"  # stands in front of a unit that is not a text's first: it is read as behind another one


def word_answers(tokenizer: Tokenizer, analyzer: Analyzer, questions: Collection[Question]) -> Answers:
    """For a WordReader: tokens and terms of stretches that hold words of BERT's."""
    words = [word for _, word in questions]
    return (_odds(words, tokens_of_words(tokenizer, words), map(analyzer.keys, words)),)


def text_answers(tokenizer: Tokenizer, analyzer: Analyzer, questions: Collection[Question], *, units: bool) -> Answers:
    """For a TextReader: tokens of units, or else of words; and, apart from them, terms of runs."""
    first, term = native.core.ASKED["FIRST_TOKENS"], native.core.ASKED["TERMS"]
    runs = [stretch for question, stretch in questions if question == term]
    others = [(question, stretch) for question, stretch in questions if question != term]
    names = [f"{chr(question)}{stretch}" if question else stretch for question, stretch in others]
    stretches, before = [stretch for _, stretch in others], ["" if question == first else FILLER for question, _ in others]
    tokens = tokens_of(tokenizer, stretches, before) if units else tokens_of_words(tokenizer, stretches)
    return _odds(names, tokens, [[]] * len(names)), _odds(runs, [[]] * len(runs), map(analyzer.keys, runs))


def tokens_of(tokenizer: Tokenizer, stretches: Sequence[str], before: Sequence[str]) -> list[list[Token]]:
    """The tokens of each stretch, as the last of a text: behind what stands before it there."""
    encodings = tokenizer.encode([f"{filler}{stretch}" for filler, stretch in zip(before, stretches, strict=True)])
    found = list[list[Token]]()
    for start, encoding in zip(map(len, before), encodings, strict=True):
        tokens = zip(encoding.ids, encoding.offsets, strict=True)
        found.append([(token, head - start, tail - start) for token, (head, tail) in tokens if head >= start])
    return found


def tokens_of_words(tokenizer: Tokenizer, words: Sequence[str]) -> list[list[Token]]:
    """The tokens of each stretch of BERT's words: one text holds them all, with spaces between, which takes a third of the time."""
    ends, found = list(accumulate(len(word) + 1 for word in words)), [list[Token]() for _ in words]
    encodings = tokenizer.encode([" ".join(words)]) if words else []
    tokens = (token for encoding in encodings for token in zip(encoding.ids, encoding.offsets, strict=True))
    number = start = 0
    for token, (head, tail) in tokens:
        while head >= ends[number]:
            start, number = ends[number], number + 1
        found[number].append((token, head - start, tail - start))
    return found


def _odds(names: list[str], tokens: Sequence[Sequence[Token]], keys: Iterable[Sequence[int]]) -> Any:
    if not names:
        return native.core.Odds()
    keys = [terms or [0] for terms in keys]  # a stretch without a term has a key that is none
    columns = np.asarray([token for stretch in tokens for token in stretch], dtype=np.int32).reshape(-1, 3).T.copy()
    n_tokens, n_keys = (np.asarray(list(map(len, rows)), dtype=np.int32) for rows in (tokens, keys))
    return native.core.Odds(names, n_tokens, *columns, n_keys, np.asarray([key for terms in keys for key in terms], dtype=np.int64))
