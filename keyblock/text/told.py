"""What `keyblock_native` is told of the stretches that it does not read: what the tokenizer and the analyzer make of them."""

from collections import defaultdict
from collections.abc import Iterable
from functools import partial
from typing import Any

from keyblock import native
from keyblock.text.analyzer import Analyzer
from keyblock.text.lexicon import Learn, in_batches, keys_of, no_keys, no_tokens, tokens_of
from keyblock.text.rows import Rows, stacked
from keyblock.text.tokenizer import Tokenizer
from keyblock.text.unit_reader import FILLER, tokens_among, tokens_at

Asked = tuple[int, str]
"""A stretch, and what is asked of it: one of ASKED of `keyblock_native`, or 0 for its tokens."""
Told = tuple[Any, ...]
"""Odds of `keyblock_native`, as its readers take them."""


def words_told(tokenizer: Tokenizer, analyzer: Analyzer, asked: Iterable[Asked]) -> Told:
    """Tokens and terms of stretches that hold words of BERT's."""
    words = [word for _, word in asked]
    if not words:
        return (native.core.Odds(),)
    return (_odds(words, in_batches(partial(tokens_of, tokenizer), words), keys_of(analyzer, words)),)


def told(tokenizer: Tokenizer, analyzer: Analyzer, asked: Iterable[Asked], *, units: bool) -> Told:
    """Tokens of units, or else of words, and terms of runs, apart."""
    by_question: dict[int, list[str]] = defaultdict(list)
    for question, stretch in asked:
        by_question[question].append(stretch)
    terms = by_question.pop(native.core.ASKED["TERMS"], [])
    names, tokens = list[str](), list[Rows]()
    for question, stretches in by_question.items():
        names += [f"{chr(question)}{stretch}" if question else stretch for stretch in stretches]
        tokens.append(in_batches(_learn(tokenizer, question) if units else partial(tokens_of, tokenizer), stretches))
    of_tokens = _odds(names, stacked(tokens), no_keys(names)) if names else native.core.Odds()
    return of_tokens, _odds(terms, no_tokens(terms), keys_of(analyzer, terms)) if terms else native.core.Odds()


def _learn(tokenizer: Tokenizer, question: int) -> Learn:
    """What reads units that stand where the question says."""
    if question == native.core.ASKED["FIRST_TOKENS"]:
        return partial(tokens_at, tokenizer, "")
    return partial(tokens_at, tokenizer, FILLER) if question else partial(tokens_among, tokenizer)


def _odds(words: list[str], tokens: Rows, keys: Rows) -> Any:
    return native.core.Odds(words, tokens.counts, *tokens.columns, keys.counts, *keys.columns)
