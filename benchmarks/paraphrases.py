"""A hundred questions in other words than their answers: are the answers read, and found? See lab/notes/paraphrases.md.

    python -m benchmarks.paraphrases [--bundles models/default OTHER ...] [--data DATA]

Each answer is hidden in other text, drawn from seeds, so that every bundle gets the same documents. Figures of the first bundle
stand beside those of the others, with p-values of paired t-tests.
"""

import argparse
import json
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from keyblock.bundle import Bundle, load_bundle
from keyblock.packing import Packed
from keyblock.pipeline import Pipeline, Selection
from keyblock.prepared import PreparedDocument
from keyblock.runtime.model import GraphModel
from keyblock.scoring import score_documents, select_documents
from keyblock.text.analyzer import Analyzer, AnalyzerConfig
from training.data.collection import Collection
from training.evaluate.significance import p_text, paired_t_test
from training.evaluate.tables import markdown

DEPTH = 10  # of MRR@10
FILLER_DOCUMENTS = 300  # of a collection, around the pairs
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


@dataclass
class System:
    """A bundle; its model is opened when something asks for it."""

    path: Path
    provider: str = "auto"
    budget: int | None = None

    @cached_property
    def bundle(self) -> Bundle:
        """The bundle."""
        return load_bundle(self.path)

    @cached_property
    def model(self) -> GraphModel:
        """Its graphs."""
        return GraphModel.open(self.bundle, self.provider)

    @property
    def pipeline(self) -> Pipeline:
        """Its pipeline."""
        return self.bundle.pipeline

    def select(self, question: str, document: PreparedDocument) -> Selection:
        """The document's blocks for the question; the model is asked only where the selector needs it."""
        query = self.pipeline.prepare_query(question)
        asks = self.pipeline.asks_model
        choose = self.model.choose if asks else _nobody
        (selection,) = select_documents(self.pipeline, query, [document], choose, self.budget)
        return selection

    def scores(self, question: str, documents: Sequence[PreparedDocument]) -> NDArray[np.float64]:
        """Relevance scores of the documents, before the sigmoid, shape (n_documents,)."""
        query = self.pipeline.prepare_query(question)
        logits, selections, _ = score_documents(self.pipeline, query, documents, self.model, self.budget)
        return self.pipeline.config.fusion.fuse(logits, np.stack([selection.evidence for selection in selections]))


def _nobody(sequences: Sequence[Packed]) -> NDArray[np.float32]:
    raise AssertionError(f"a selector without a model has asked one about {len(sequences)} blocks")


def reciprocal_rank(scores: NDArray[np.float64], relevant: NDArray[np.bool_]) -> float:
    """1 / the rank of the first relevant document among the first ten, else 0; equal scores stay in the order given."""
    ranks = np.flatnonzero(relevant[np.argsort(-scores, kind="stable")])
    return 1 / (1 + int(ranks[0])) if len(ranks) and ranks[0] < DEPTH else 0.0


def _mean(values: Mapping[str, float], form: str) -> str:
    return form.format(float(np.mean(list(values.values())))) if values else ""


def _names(systems: Sequence[System]) -> list[str]:
    return [str(system.path) for system in systems]


def read_answer(system: System, pair: Pair, filler: Filler) -> bool:
    """Whether the chosen blocks of the pair's document hold the whole answer."""
    document = buried(pair, filler)
    prepared = system.pipeline.prepare_document(document.text)
    return holds(prepared, system.select(pair.question, prepared).taken, document)


def holds(prepared: PreparedDocument, blocks: NDArray[np.intp], document: Buried) -> bool:
    """Whether these blocks together hold every character of the answer but for white space."""
    missing = [not character.isspace() for character in document.text]
    for block in blocks.tolist():
        start, end = int(prepared.starts[block]), int(prepared.ends[block])
        missing[start:end] = [False] * (end - start)
    return not any(missing[document.start : document.end])


def found_answer(system: System, pair: Pair, pairs: Sequence[Pair], filler: Filler) -> float:
    """The reciprocal rank of the pair's document among its ten candidates."""
    texts, gold = candidates(pair, pairs, filler)
    return reciprocal_rank(system.scores(pair.question, system.pipeline.prepare_documents(texts)), np.arange(len(texts)) == gold)


def table(options: argparse.Namespace) -> str:
    """A table: a row a filler and bundle."""
    pairs, fillers = read_pairs(), {"the committed text": read_filler()}
    for name in options.collections if options.data else ():
        documents = islice(Collection(options.data / name).documents.values(), FILLER_DOCUMENTS)
        fillers[f"documents of {name}"] = filler_of([document.text for document in documents])
    systems = [System(path, options.provider, options.budget) for path in options.bundles]
    domains = list(dict.fromkeys(pair.domain for pair in pairs))
    rows = [["buried in", "bundle", "answers read", *domains, "p", "MRR of 10 candidates", "p"]]
    for where, filler in fillers.items():
        read = [{pair.id: float(read_answer(system, pair, filler)) for pair in pairs} for system in systems]
        rr = [{pair.id: found_answer(system, pair, pairs, filler) for pair in pairs} for system in systems]
        for name, own_read, own_rr in zip(_names(systems), read, rr, strict=True):
            counts = [sum(own_read.values()), *(sum(own_read[pair.id] for pair in pairs if pair.domain == d) for d in domains)]
            p_read, p_rr = (
                "" if name == _names(systems)[0] else p_text(paired_t_test(*both))
                for both in ((read[0], own_read), (rr[0], own_rr))
            )
            rows.append([where, name, *(f"{count:.0f}" for count in counts), p_read, _mean(own_rr, "{:.3f}"), p_rr])
    return markdown(rows)


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser("benchmarks.paraphrases", description="Questions in other words than their answers.")
    made.add_argument(
        "--bundles", type=Path, nargs="+", default=[Path("models/default")], help="others are compared with the first"
    )
    made.add_argument("--data", type=Path, help="the directory of collections whose documents are filler too")
    made.add_argument("--collections", nargs="+", default=["squad-far", "squad-articles", "qmsum"], help="of --data")
    made.add_argument("--budget", type=int, help="tokens a document; each bundle's own by default")
    made.add_argument("--provider", default="auto", help="what runs the model")
    return made


if __name__ == "__main__":
    print(table(parser().parse_args()))
