r"""Reading texts by `keyblock_native`: the same as `keyblock.text.reading`, without the interpreter's lock.

In "5€ a_b e\u0301te", to BERT's tokenizer and Python's analyzer:

word     what the tokenizer reads by itself: 5€, a, _, b, and e\u0301te, which is odd; other tokenizers have `keyblock.text.units`
run      what the analyzer makes a term of: 5, a_b, and e\u0301te, for all its terms; in scripts without spaces a pair of neighbours
odd      between two spaces, with a character that may change its neighbours, as \u0301 does (`keyblock.text.characters`)
stretch  any of these

The compiled part knows no Unicode. What is said of each code point is asked of Python and of the tokenizer here, once. The
tokenizer and the analyzer themselves read odd stretches (`keyblock.text.fallback`). What has at most 64 characters is remembered.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from keyblock import native
from keyblock.text import sentences
from keyblock.text.analyzer import STOP_WORDS, Analyzer
from keyblock.text.characters import character_kinds
from keyblock.text.compiled_characters import plain_characters, read_characters
from keyblock.text.compiled_reading import LONGEST, CompiledReading, Runs
from keyblock.text.compiled_runs import run_reader
from keyblock.text.compiled_units import unit_reader
from keyblock.text.fallback import Answers, Question, text_answers, word_answers
from keyblock.text.reading import ByStructure, CutText, Ints, Rule, Terms, concatenated
from keyblock.text.tokenizer import Tokenizer
from keyblock.text.units import borders_of

LONG_SHARE = 0.5  # a text with more of its characters in stretches that are asked, and not remembered, is left to the tokenizer


def compiled_reader(tokenizer: Tokenizer, analyzer: Analyzer) -> "CompiledReader | None":
    """The compiled reader; None where it is not installed, or knows nothing of such a tokenizer."""
    if native.core is None:
        return None
    kinds = character_kinds(tokenizer.backend)
    if kinds is not None:
        characters = read_characters(tokenizer, kinds)
        tokens = _word_reader(tokenizer, analyzer, characters)
        if analyzer.config.name == "english":
            return CompiledReader(tokens, analyzer, characters, partial(word_answers, tokenizer, analyzer))
    elif (borders := borders_of(tokenizer.backend)) is not None:
        characters, tokens = plain_characters(), unit_reader(tokenizer.backend, borders)
    else:
        return None
    reader = native.core.TextReader(tokens, run_reader(analyzer, characters))
    return CompiledReader(reader, analyzer, characters, partial(text_answers, tokenizer, analyzer, units=kinds is None))


def _word_reader(tokenizer: Tokenizer, analyzer: Analyzer, characters: Any) -> Any:
    """What reads words of BERT's: their tokens, and their terms where the analyzer is the English one."""
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
        reader: of `keyblock_native`: finds tokens and runs.
        analyzer: finds the terms of blocks that cut a run.
        characters: what is said of each code point.
        answer: answers what the reader asks about stretches that it does not read.
    """

    def __init__(self, reader: Any, analyzer: Analyzer, characters: Any, answer: Callable[[Collection[Question]], Answers]) -> None:
        self._reader, self._analyzer, self._answer = reader, analyzer, answer
        rules = (sentences.TITLES, sentences.NAMES_GO_ON, sentences.BEFORE_NUMBERS, sentences.BEGINNERS)
        self._sentences = native.core.Sentences(characters, *map(set, rules))
        self._structure = native.core.Structure(self._sentences)

    def read(self, texts: Sequence[str]) -> list[CompiledReading | None]:
        """A reading of each text; None for one that is left to the tokenizer."""
        found = self._answered(texts, self._reader.read)
        return [None if one is None else _reading(text, self._analyzer, *one) for text, one in zip(texts, found, strict=True)]

    def sentence_ends(self, text: str) -> Ints:
        """See `keyblock.text.sentences`."""
        found: Ints = self._sentences.ends(text)
        return found

    def cuts(self, text: str) -> tuple[Ints, NDArray[np.int8]]:
        """See `keyblock.text.structure`."""
        places, kinds = self._structure.cuts(text)
        return places, kinds

    def clauses(self, text: str) -> Ints:
        """See `keyblock.text.structure`."""
        found: Ints = self._structure.clauses(text)
        return found

    def cut(self, texts: Sequence[str], rule: Rule) -> list[CutText | None]:
        """Each text in blocks; None for one that is left to the tokenizer."""
        segmenter = self._segmenter(rule)
        found = self._answered(texts, lambda batch, *answers: self._reader.cut(batch, segmenter, *answers))
        return [None if one is None else self._cut_text(text, *one) for text, one in zip(texts, found, strict=True)]

    def _segmenter(self, rule: Rule) -> Any:
        """What cuts by such a rule."""
        if isinstance(rule, ByStructure):
            return native.core.ByStructure(self._structure, rule.block_tokens)
        return native.core.WholeSentences(self._sentences, rule.clauses.view(np.uint8), rule.block_tokens)

    def _answered(self, texts: Sequence[str], work: Callable[..., list[Any]]) -> list[tuple[Any, ...] | None]:
        """What the compiled `work` makes of texts, its questions answered; None for a text that is mostly questions."""
        found, asked = work(list(texts), *self._answer(())), set[Question]()
        while begun := {i: one for i, one in enumerate(found) if isinstance(one, native.core.Unfinished)}:
            open_questions = {i: _spelled(texts[i], one.missing) for i, one in begun.items()}
            again = [i for i, questions in open_questions.items() if not _mostly_long(texts[i], questions)]
            asked.update(question for i in again for question in open_questions[i])
            known = dict(zip(again, work([begun[i] for i in again], *self._answer(asked)), strict=True))
            found = [known.get(i) if i in begun else one for i, one in enumerate(found)]
        return found

    def _cut_text(
        self, text: str, ids: Ints, bounds: Ints, starts: Ints, ends: Ints, keys: NDArray[np.int64], key_bounds: Ints, asked: Ints
    ) -> CutText:
        """With the terms of blocks that only the analyzer can find."""
        terms = Terms(keys, key_bounds)
        if len(asked):
            blocks: list[Any] = [keys[start:end] for start, end in pairwise(key_bounds.tolist())]
            for i in asked.tolist():
                blocks[i] = self._analyzer.keys(text[starts[i] : ends[i]])
            terms = concatenated(blocks)
        return CutText(ids, bounds, starts, ends, terms)


def _reading(text: str, analyzer: Analyzer, ids: Ints, heads: Ints, tails: Ints, *runs: Any) -> CompiledReading:
    return CompiledReading(text, analyzer, ids, heads, tails, Runs(*runs))


def _spelled(text: str, asked: Ints) -> list[Question]:
    return [(question, text[start:end]) for start, end, question in asked.tolist()]


def _mostly_long(text: str, questions: Iterable[Question]) -> bool:
    """Whether a text is left to the tokenizer: more than LONG_SHARE of it are stretches that are asked each time."""
    return sum(len(stretch) for _, stretch in questions if len(stretch) > LONGEST) > LONG_SHARE * len(text)
