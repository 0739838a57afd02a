"""The stretches of a text that `keyblock_native` does not read: the tokenizer and the analyzer read each separately."""

from collections.abc import Collection, Iterable, Sequence
from itertools import accumulate
from typing import Any

import numpy as np

from keyblock import native
from keyblock.text.analyzer import Analyzer
from keyblock.text.tokenizer import Tokenizer

Question = tuple[int, str]
"""A compiled reader's question (one of ASKED of `keyblock_native`, or 0 for the tokens) and the stretch that it is about."""
Answers = tuple[Any, ...]
"""Odds of `keyblock_native`, in the form that its readers take."""
Token = tuple[int, int, int]
"""A token's id, and where it starts and ends in the stretch."""
FILLER = " a"  # precedes a unit that is not a text's first, so that the tokenizer reads it as after another unit


def word_answers(tokenizer: Tokenizer, analyzer: Analyzer, questions: Collection[Question]) -> Answers:
    """For a WordReader: tokens and terms of stretches with words as BERT finds them."""
    words = [word for _, word in questions]
    return (_odds(words, tokens_of_words(tokenizer, words), map(analyzer.keys, words)),)


def text_answers(tokenizer: Tokenizer, analyzer: Analyzer, questions: Collection[Question], *, units: bool) -> Answers:
    """For a TextReader: tokens of units or of words; and, separately, terms of runs."""
    first, term = native.core.ASKED["FIRST_TOKENS"], native.core.ASKED["TERMS"]
    runs = [stretch for question, stretch in questions if question == term]
    for_tokens = [(question, stretch) for question, stretch in questions if question != term]
    names = [f"{chr(question)}{stretch}" if question else stretch for question, stretch in for_tokens]
    stretches, before = [stretch for _, stretch in for_tokens], ["" if question == first else FILLER for question, _ in for_tokens]
    tokens = tokens_of(tokenizer, stretches, before) if units else tokens_of_words(tokenizer, stretches)
    return _odds(names, tokens, [[]] * len(names)), _odds(runs, [[]] * len(runs), map(analyzer.keys, runs))


def tokens_of(tokenizer: Tokenizer, stretches: Sequence[str], before: Sequence[str]) -> list[list[Token]]:
    """The tokens of each stretch, read at the end of a text that starts with `before`."""
    encodings = tokenizer.encode([f"{filler}{stretch}" for filler, stretch in zip(before, stretches, strict=True)])
    found = list[list[Token]]()
    for start, encoding in zip(map(len, before), encodings, strict=True):
        tokens = zip(encoding.ids, encoding.offsets, strict=True)
        found.append([(token, head - start, tail - start) for token, (head, tail) in tokens if head >= start])
    return found


def tokens_of_words(tokenizer: Tokenizer, words: Sequence[str]) -> list[list[Token]]:
    """The tokens of each stretch of BERT's words, read in one text with spaces between them, which takes a third of the time."""
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
    keys = [terms or [0] for terms in keys]  # a stretch without a term gets the key 0, which is no term's
    columns = np.asarray([token for stretch in tokens for token in stretch], dtype=np.int32).reshape(-1, 3).T.copy()
    n_tokens, n_keys = (np.asarray(list(map(len, rows)), dtype=np.int32) for rows in (tokens, keys))
    return native.core.Odds(names, n_tokens, *columns, n_keys, np.asarray([key for terms in keys for key in terms], dtype=np.int64))
