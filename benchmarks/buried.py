"""Answers that share no word with their question, each hidden in other text: see docs/paraphrases.md.

Everything is drawn from seeds, so that every bundle gets the same documents.
"""

import json
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from keyblock.text.analyzer import Analyzer, AnalyzerConfig

DATA = Path(__file__).resolve().parent.parent / "tests" / "data"
PAIRS, FILLER = DATA / "paraphrases.jsonl", DATA / "filler.txt"
WORDS = (1_000, 4_500)  # words of other text around a passage; the last paragraph is added whole
LONGEST_PARAGRAPH = 400  # words; a collection's longer paragraphs are left out, so that no document has more than 5,000 words
NEAR, OTHERS = 3, 5  # distractors that share words with a question, beside its lure, and random distractors


class Pair(NamedTuple):
    """A question and the passage that answers it in other words.

    Attributes:
        id: its domain and a number.
        question: in the words of a person or an agent.
        passage: one to three sentences that share no content stem with the question.
        answer: the answering part of the passage.
        lure: a sentence that shares words with the question and does not answer it.
    """

    id: str
    question: str
    passage: str
    answer: str
    lure: str

    @property
    def domain(self) -> str:
        """The pair's domain: everyday, office, medicine, law or software."""
        return self.id.partition("-")[0]


class Buried(NamedTuple):
    """A document; its answer is ``text[start:end]``."""

    text: str
    start: int
    end: int


class Candidates(NamedTuple):
    """Documents for one question; the one at `gold` holds the answer."""

    texts: list[str]
    gold: int


@dataclass(frozen=True)
class Filler:
    """Other text.

    Attributes:
        sources: each a list of paragraphs that stay in their order.
    """

    sources: Sequence[Sequence[str]]

    def paragraphs(self, words: int, rng: np.random.Generator) -> list[str]:
        """Paragraphs of randomly ordered sources, each once, with at least `words` words. Raises ValueError for too few."""
        drawn: list[str] = []
        total = 0
        for place in rng.permutation(len(self.sources)).tolist():
            for paragraph in self.sources[place]:
                drawn.append(paragraph)
                total += len(paragraph.split())
                if total >= words:
                    return drawn
        raise ValueError(f"the filler has {total:,} words, and {words:,} are needed")


def read_pairs(path: Path = PAIRS) -> list[Pair]:
    """The pairs of a file of JSON lines."""
    return [Pair(**json.loads(line)) for line in path.read_text(encoding="utf-8").splitlines()]


def read_filler(path: Path = FILLER) -> Filler:
    """The committed filler: each line is a paragraph and a source."""
    return Filler([[line] for line in path.read_text(encoding="utf-8").splitlines()])


def filler_of(texts: Iterable[str]) -> Filler:
    """Documents as filler; each is a source."""
    return Filler([list(_paragraphs(text)) for text in texts])


def _paragraphs(text: str) -> Iterator[str]:
    for paragraph in map(str.strip, text.split("\n")):
        if 0 < len(paragraph.split()) <= LONGEST_PARAGRAPH:
            yield paragraph


def bury(passage: str, answer: str, filler: Filler, rng: np.random.Generator) -> Buried:
    """A document of 1,000 to 5,000 words with the passage at a random place between, before or after its paragraphs."""
    paragraphs = filler.paragraphs(int(rng.integers(*WORDS)), rng)
    place = int(rng.integers(len(paragraphs) + 1))
    text = "\n\n".join([*paragraphs[:place], passage, *paragraphs[place:]])
    start = sum(len(paragraph) + 2 for paragraph in paragraphs[:place]) + passage.index(answer)
    return Buried(text, start, start + len(answer))


def generator(*names: str) -> np.random.Generator:
    """A random generator that depends on these names alone."""
    return np.random.default_rng([zlib.crc32(name.encode()) for name in names])


def buried(pair: Pair, filler: Filler) -> Buried:
    """The pair's document."""
    return bury(pair.passage, pair.answer, filler, generator(pair.id, "gold"))


def candidates(pair: Pair, pairs: Sequence[Pair], filler: Filler) -> Candidates:
    """The pair's document and nine that do not answer, in a random order.

    Four of the nine share words with the question, if any text of another pair does: one holds the lure, three the nearest texts.
    """
    rng = generator(pair.id, "candidates")
    texts = distractors(pair, pairs, rng)
    documents = [bury(text, text, filler, generator(pair.id, str(number))).text for number, text in enumerate(texts)]
    gold = int(rng.integers(len(documents) + 1))
    documents.insert(gold, buried(pair, filler).text)
    return Candidates(documents, gold)


def distractors(pair: Pair, pairs: Sequence[Pair], rng: np.random.Generator) -> list[str]:
    """The lure, the texts of other pairs that share most terms with the question, and random texts of other pairs."""
    analyzer = Analyzer(AnalyzerConfig())
    terms = set(analyzer.terms(pair.question))
    texts = [text for other in pairs if other.id != pair.id for text in (other.passage, other.lure)]
    shuffled = [texts[place] for place in rng.permutation(len(texts)).tolist()]
    near = sorted(shuffled, key=lambda text: -len(terms & set(analyzer.terms(text))))[:NEAR]
    return [pair.lure, *near, *[text for text in shuffled if text not in near][:OTHERS]]
