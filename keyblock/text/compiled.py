r"""Reads texts with `keyblock_native`: the same results as `keyblock.text.reading`, without the interpreter's lock.

The terms, with the text "5€ a_b e\u0301te" as BERT's tokenizer and Python's analyzer read it:

word     what the tokenizer reads on its own: 5€, a, _, b, and e\u0301te, which is odd; other tokenizers have `keyblock.text.units`
run      what the analyzer makes a term of: 5, a_b, and e\u0301te with all its terms; in scripts without spaces a pair of neighbours
odd      text between two spaces with a character that may change its neighbours, as \u0301 does (`keyblock.text.characters`)
stretch  any of these

The compiled part knows no Unicode: `keyblock.text.compiled_tables` asks Python and the tokenizer about each code point, once.
The tokenizer and the analyzer themselves read odd stretches (`keyblock.text.fallback`). Stretches of up to 64 characters are
remembered.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from keyblock import native
from keyblock.text import sentences
from keyblock.text.analyzer import STOP_WORDS, Analyzer
from keyblock.text.characters import character_kinds
from keyblock.text.compiled_tables import plain_characters, read_characters, run_reader, unit_reader
from keyblock.text.fallback import Answers, Question, text_answers, word_answers
from keyblock.text.reading import ByStructure, CutText, Ints, Reading, Rule, Terms, concatenated
from keyblock.text.tokenizer import Tokenizer
from keyblock.text.units import borders_of

LONGEST = 64  # characters of the longest stretch that is remembered, as in native/src/pieces.hpp
LONG_SHARE = 0.5  # if a larger share of a text is in stretches too long to be remembered, the tokenizer reads the whole text


class Runs(NamedTuple):
    """The runs of a text, in order; `keyblock.text.compiled` says what a run is.

    Attributes:
        heads, tails: where the runs start and end, shape (n,); a run with several terms is repeated for each of them.
        keys: the keys of their terms, shape (n,); 0 for a run without a term (a stop word) and for a long run, whose terms are not
            known.
    """

    heads: Ints
    tails: Ints
    keys: NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class CompiledReading(Reading):
    """A Reading that looks its terms up in its runs.

    Attributes:
        runs: the runs of the text.
    """

    runs: Runs

    def terms(self, starts: Ints, ends: Ints, pause: Callable[[int], object] = int) -> Terms:
        """See Reading. The analyzer finds the terms of blocks that start or end within a run, or hold a long run."""
        first, last = np.searchsorted(self.runs.tails, starts, side="right"), np.searchsorted(self.runs.heads, ends)
        kept = np.cumsum(np.append(0, self.runs.keys != 0))
        keys = self.runs.keys[self.runs.keys != 0]
        blocks: list[Any] = [keys[start:end] for start, end in zip(kept[first].tolist(), kept[last].tolist(), strict=True)]
        for i in np.flatnonzero(self._cut(first, starts, last, ends)):
            blocks[i] = self.analyzer.keys(self.text[starts[i] : ends[i]])
            pause(0)
        return concatenated(blocks)

    def _cut(self, first: NDArray[np.intp], starts: Ints, last: NDArray[np.intp], ends: Ints) -> NDArray[np.bool_]:
        """Whether each block, with runs `first` up to `last`, starts or ends within a run, or holds a long run."""
        heads, tails, _ = self.runs
        long = np.flatnonzero(tails - heads > LONGEST)
        cut: NDArray[np.bool_] = np.searchsorted(long, first) < np.searchsorted(long, last)
        filled = np.flatnonzero(first < last)
        cut[filled] |= (heads[first[filled]] < starts[filled]) | (tails[last[filled] - 1] > ends[filled])
        return cut


def joined(text: str, parts: Sequence[Reading], *, apart: bool) -> Reading:
    """The reading of a text, joined from the readings of its parts.

    Args:
        text: the whole text.
        parts: the readings of its parts in order, at least one.
        apart: whether no run crosses the end of a part: then the text's runs are those of its parts, if all parts have runs.
    """
    starts = np.cumsum([0, *(len(part.text) for part in parts[:-1])], dtype=np.int32).tolist()

    def column(values: Iterable[Ints]) -> Ints:
        return np.concatenate([places + start for places, start in zip(values, starts, strict=True)], dtype=np.int32)

    ids, analyzer = np.concatenate([part.ids for part in parts]), parts[0].analyzer
    heads, tails = column(part.heads for part in parts), column(part.tails for part in parts)
    runs = [part.runs for part in parts if isinstance(part, CompiledReading)]
    if not apart or len(runs) < len(parts):
        return Reading(text, analyzer, ids, heads, tails)
    keys = np.concatenate([part.keys for part in runs])
    run_heads, run_tails = column(part.heads for part in runs), column(part.tails for part in runs)
    return CompiledReading(text, analyzer, ids, heads, tails, Runs(run_heads, run_tails, keys))


def compiled_reader(tokenizer: Tokenizer, analyzer: Analyzer) -> "CompiledReader | None":
    """The compiled reader; None if it is not installed or does not support the tokenizer."""
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
        analyzer: finds the terms of blocks that cut a run.
        characters: the properties of each code point.
        answer: answers the reader's questions about stretches that it does not read.
    """

    def __init__(self, reader: Any, analyzer: Analyzer, characters: Any, answer: Callable[[Collection[Question]], Answers]) -> None:
        self._reader, self._analyzer, self._answer = reader, analyzer, answer
        rules = (sentences.TITLES, sentences.NAMES_GO_ON, sentences.BEFORE_NUMBERS, sentences.BEGINNERS)
        self._sentences = native.core.Sentences(characters, *map(set, rules))
        self._structure = native.core.Structure(self._sentences)

    def read(self, texts: Sequence[str]) -> list[CompiledReading | None]:
        """A reading of each text; None for a text that the tokenizer must read."""
        results = self._answered(texts, self._reader.read)
        return [
            None if result is None else _reading(text, self._analyzer, *result) for text, result in zip(texts, results, strict=True)
        ]

    def sentence_ends(self, text: str) -> Ints:
        """See `keyblock.text.sentences`."""
        ends: Ints = self._sentences.ends(text)
        return ends

    def cuts(self, text: str) -> tuple[Ints, NDArray[np.int8]]:
        """See `keyblock.text.structure`."""
        places, kinds = self._structure.cuts(text)
        return places, kinds

    def clauses(self, text: str) -> Ints:
        """See `keyblock.text.structure`."""
        clauses: Ints = self._structure.clauses(text)
        return clauses

    def cut(self, texts: Sequence[str], rule: Rule) -> list[CutText | None]:
        """Each text in blocks; None for a text that the tokenizer must read."""
        segmenter = self._segmenter(rule)
        results = self._answered(texts, lambda batch, *answers: self._reader.cut(batch, segmenter, *answers))
        return [None if result is None else self._cut_text(text, *result) for text, result in zip(texts, results, strict=True)]

    def _segmenter(self, rule: Rule) -> Any:
        """The compiled segmenter that cuts by this rule."""
        if isinstance(rule, ByStructure):
            return native.core.ByStructure(self._structure, rule.block_tokens)
        return native.core.WholeSentences(self._sentences, rule.roles, rule.block_tokens)

    def _answered(self, texts: Sequence[str], work: Callable[..., list[Any]]) -> list[tuple[Any, ...] | None]:
        """The results of the compiled `work` for texts, with its questions answered; None for a text of mostly long stretches."""
        results, asked = work(list(texts), *self._answer(())), set[Question]()
        while unfinished := {i: result for i, result in enumerate(results) if isinstance(result, native.core.Unfinished)}:
            open_questions = {i: _questions(texts[i], result.missing) for i, result in unfinished.items()}
            again = [i for i, questions in open_questions.items() if not _mostly_long(texts[i], questions)]
            asked.update(question for i in again for question in open_questions[i])
            answered = dict(zip(again, work([unfinished[i] for i in again], *self._answer(asked)), strict=True))
            results = [answered.get(i) if i in unfinished else result for i, result in enumerate(results)]
        return results

    def _cut_text(
        self,
        text: str,
        ids: Ints,
        bounds: Ints,
        starts: Ints,
        ends: Ints,
        keys: NDArray[np.int64],
        key_bounds: Ints,
        by_analyzer: Ints,
    ) -> CutText:
        """The cut text; the analyzer finds the terms of the blocks in `by_analyzer`, since the compiled part cannot."""
        terms = Terms(keys, key_bounds)
        if len(by_analyzer):
            blocks: list[Any] = [keys[start:end] for start, end in pairwise(key_bounds.tolist())]
            for i in by_analyzer.tolist():
                blocks[i] = self._analyzer.keys(text[starts[i] : ends[i]])
            terms = concatenated(blocks)
        return CutText(ids, bounds, starts, ends, terms)


def _reading(text: str, analyzer: Analyzer, ids: Ints, heads: Ints, tails: Ints, *runs: Any) -> CompiledReading:
    return CompiledReading(text, analyzer, ids, heads, tails, Runs(*runs))


def _questions(text: str, missing: Ints) -> list[Question]:
    return [(question, text[start:end]) for start, end, question in missing.tolist()]


def _mostly_long(text: str, questions: Iterable[Question]) -> bool:
    """Whether the tokenizer must read a text: more than LONG_SHARE of it are stretches too long to be remembered."""
    return sum(len(stretch) for _, stretch in questions if len(stretch) > LONGEST) > LONG_SHARE * len(text)
