r"""Reads texts with `keyblock_native`: the same results as `keyblock.text.reading`, without the interpreter's lock.

The terms, with the text "5€ a_b e\u0301te" as BERT's tokenizer and Python's analyzer read it:

word     what the tokenizer reads on its own: 5€, a, _, b, and e\u0301te, which is odd; other tokenizers have `keyblock.text.units`
run      what the analyzer makes a term of: 5, a_b, and e\u0301te with all its terms; in scripts without spaces a pair of neighbours
odd      text between two spaces with a character that may change its neighbours, as \u0301 does (`keyblock.text.characters`)
stretch  any of these

The compiled part knows no Unicode: `keyblock.text.compiled_tables` asks Python and the tokenizer about each code point, once. It
asks about odd stretches: the tokenizer and the analyzer read each separately. Stretches of up to 64 characters are remembered.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from keyblock import native
from keyblock.text import sentences
from keyblock.text.analyzer import STOP_WORDS, Analyzer
from keyblock.text.characters import character_kinds
from keyblock.text.compiled_tables import plain_characters, read_characters, run_reader, unit_reader
from keyblock.text.reading import CutText, Reading, Rule, Terms
from keyblock.text.tokenizer import Tokenizer
from keyblock.text.units import borders_of

LONGEST = 64  # characters of the longest stretch that is remembered, as in native/src/pieces.hpp
LONG_SHARE = 0.5  # if a larger share of a text is in odd stretches too long to be remembered, the tokenizer reads the whole text
TOO_LONG = 1 << 16  # so it does if an odd stretch has more characters
FILLER = " a"  # precedes a unit that is not a text's first, so that the tokenizer reads it as after another unit
Question = tuple[int, str]
"""A compiled reader's question (one of ASKED of `keyblock_native`, or 0 for the tokens) and the stretch that it is about."""
Token = tuple[int, int, int]
"""A token's id, and where it starts and ends in the stretch."""
Answer = tuple[int, str, list[Token], list[int]]
"""A question, and the tokens and the keys of the terms of its stretch."""


def compiled_reader(tokenizer: Tokenizer, analyzer: Analyzer) -> "CompiledReader | None":
    """The compiled reader; None if it is not installed or does not support the tokenizer."""
    if native.core is None:
        return None
    kinds = character_kinds(tokenizer.backend)
    if kinds is not None:
        characters = read_characters(tokenizer, kinds)
        tokens = _word_reader(tokenizer, analyzer, characters)
    elif (borders := borders_of(tokenizer.backend)) is not None:
        characters, tokens = plain_characters(), unit_reader(tokenizer.backend, borders)
    else:
        return None
    at_once = kinds is not None and analyzer.config.name == "english"
    reader = native.core.TextReader(tokens, None if at_once else run_reader(analyzer, characters))
    return CompiledReader(reader, tokenizer, analyzer, characters, units=kinds is None, at_once=at_once)


def _word_reader(tokenizer: Tokenizer, analyzer: Analyzer, characters: Any) -> Any:
    """The reader of BERT's words: finds their tokens and, with the English analyzer, their terms."""
    model, config = tokenizer.backend.model, analyzer.config
    return native.core.WordReader(
        characters,
        vocabulary=tokenizer.backend.get_vocab(with_added_tokens=False),
        prefix=model.continuing_subword_prefix,
        unknown=tokenizer.backend.token_to_id(model.unk_token),
        most=model.max_input_chars_per_word,
        stop_words=set(STOP_WORDS if config.stop_words else ()),
        stem=config.stem,
    )


class CompiledReader:
    """Reads texts as the tokenizer and the analyzer do. Safe to use from several threads, which do not wait for each other.

    Args:
        reader: the reader in `keyblock_native`, which finds tokens and runs.
        tokenizer: reads odd stretches.
        analyzer: finds the terms of odd stretches, and of blocks that cut one.
        characters: the properties of each code point.
        units: whether it reads units, and not words.
        at_once: whether the reader asks for the tokens and the terms of a stretch in one question.

    Attributes:
        sentences, structure: find sentences and parts of a text, see `keyblock.text.sentences` and `keyblock.text.structure`.
    """

    def __init__(
        self, reader: Any, tokenizer: Tokenizer, analyzer: Analyzer, characters: Any, *, units: bool, at_once: bool
    ) -> None:
        self._reader, self._tokenizer, self._analyzer, self._units, self._at_once = reader, tokenizer, analyzer, units, at_once
        rules = (sentences.TITLES, sentences.NAMES_GO_ON, sentences.BEFORE_NUMBERS, sentences.BEGINNERS)
        self.sentences = native.core.Sentences(characters, *map(set, rules))
        self.structure = native.core.Structure(self.sentences)

    def read(self, texts: Sequence[str]) -> list[Reading | None]:
        """A reading of each text; None for a text that the tokenizer must read."""
        results = self._answered(texts, self._reader.read)
        return [result and Reading(text, *result) for text, result in zip(texts, results, strict=True)]

    def cut(self, texts: Sequence[str], rule: Rule, pause: Callable[[int], object] = int) -> list[CutText | None]:
        """Each text in blocks; None for a text that the tokenizer must read. `pause` is called with 0 between steps."""
        segmenter = native.core.Segmenter(self.structure, *rule)
        results = self._answered(texts, lambda some, answers: self._reader.cut(some, segmenter, answers))
        return [result and self._cut_text(text, result, pause) for text, result in zip(texts, results, strict=True)]

    def _answered(self, texts: Sequence[str], work: Callable[[list[str], list[Answer]], list[Any]]) -> list[Any]:
        """The results of the compiled `work` for texts, its questions answered; None for a text that the tokenizer must read."""
        results, asked = dict(enumerate(work(list(texts), []))), set[Question]()
        while unfinished := {i: result for i, result in results.items() if isinstance(result, np.ndarray)}:
            questions = {i: [(what, texts[i][start:end]) for start, end, what in unfinished[i].tolist()] for i in unfinished}
            results |= {i: None for i in questions if _is_for_tokenizer(texts[i], questions[i])}
            again = [i for i in questions if results[i] is not None]
            asked.update(question for i in again for question in questions[i])
            results |= zip(again, work([texts[i] for i in again], self._answers(asked)), strict=True)
        return list(results.values())

    def _answers(self, questions: Iterable[Question]) -> list[Answer]:
        first, terms = native.core.ASKED["FIRST_TOKENS"], native.core.ASKED["TERMS"]
        for_tokens = [question for question in questions if question[0] != terms]
        before = [FILLER if self._units and what != first else "" for what, _ in for_tokens]
        tokens = tokens_of(self._tokenizer, [stretch for _, stretch in for_tokens], before)
        found = [
            (what, stretch, own, self._analyzer.keys(stretch) if self._at_once else [])
            for (what, stretch), own in zip(for_tokens, tokens, strict=True)
        ]
        return found + [(what, stretch, [], self._analyzer.keys(stretch)) for what, stretch in questions if what == terms]

    def _cut_text(self, text: str, result: tuple[Any, ...], pause: Callable[[int], object]) -> CutText:
        """The cut text; the analyzer finds the terms of the blocks in `by_analyzer`, since the compiled part cannot."""
        ids, bounds, starts, ends, keys, key_bounds, by_analyzer = result
        if len(by_analyzer):
            found, lengths = list[int](), np.zeros(len(bounds), np.int32)
            for i in by_analyzer.tolist():
                of_block = self._analyzer.keys(text[starts[i] : ends[i]])
                found += of_block
                lengths[i] = len(of_block)
                pause(0)
            keys = np.insert(keys, np.repeat(key_bounds[:-1], lengths), np.asarray(found, np.int64))
            key_bounds += np.append(0, np.cumsum(lengths)).astype(np.int32)
        return CutText(ids, bounds, starts, ends, Terms(keys, key_bounds))


def tokens_of(tokenizer: Tokenizer, stretches: Sequence[str], before: Sequence[str]) -> list[list[Token]]:
    """The tokens of each stretch, read at the end of a text that starts with `before`."""
    encodings = tokenizer.encode([f"{filler}{stretch}" for filler, stretch in zip(before, stretches, strict=True)])
    found = list[list[Token]]()
    for start, encoding in zip(map(len, before), encodings, strict=True):
        tokens = zip(encoding.ids, encoding.offsets, strict=True)
        found.append([(token, head - start, tail - start) for token, (head, tail) in tokens if head >= start])
    return found


def _is_for_tokenizer(text: str, questions: Iterable[Question]) -> bool:
    long = [len(stretch) for _, stretch in questions if len(stretch) > LONGEST]
    return sum(long) > LONG_SHARE * len(text) or max(long, default=0) > TOO_LONG
