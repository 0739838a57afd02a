"""Questions in other words than their answers: are the answers read, and found? See docs/paraphrases.md.

    python -m benchmarks.paraphrases pairs --bundles models/default [OTHER ...] [--data DATA]
    python -m benchmarks.paraphrases spared --bundles models/default [OTHER ...]
    python -m benchmarks.paraphrases overlap --bundles models/default [OTHER ...] --data DATA [--wordnet DIR] [--queries 10]

`pairs` measures the hundred pairs: answers that are read, and MRR among ten candidates. `spared` asks each question of all hundred
documents: does the cascade leave the one that answers to the model? `overlap` measures queries of the
collections by tenths of the share of a query's idf mass that its gold passage has; with --wordnet, the same questions in WordNet's
words too. The choice of blocks is measured on every query; MRR@10 needs the model, and is measured on --queries of each tenth.
Figures of the first bundle stand beside those of the others, with p-values of paired t-tests (Holm over the tenths).
"""

import argparse
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks.buried import Buried, Filler, Pair, buried, candidates, filler_of, generator, read_filler, read_pairs
from training.derive.wordnet import WordNet, rewrite
from keyblock.bundle import Bundle, load_bundle
from keyblock.cascade import Cascade
from keyblock.description import PipelineConfig
from keyblock.meeting import idf_of
from keyblock.order import spared_documents
from keyblock.packing import Packed
from keyblock.pipeline import Pipeline
from keyblock.prepared import PreparedDocument
from keyblock.runtime.model import GraphModel
from keyblock.scoring import score_documents, select_documents
from keyblock.selection import Selection
from keyblock.selectors import rank_blocks
from training.collections.collection import Collection
from training.collections.types import Document, Run, Span
from training.evaluation.evaluate import BEST_BLOCKS
from training.evaluation.significance import correct, p_text, paired_t_test
from training.evaluation.tables import markdown

COLLECTIONS = ("squad-far", "squad-articles", "qmsum", "evidence")
TENTHS = 10
DEPTH = 10  # of MRR@10
FILLER_DOCUMENTS = 300  # of a collection, around the pairs
MEASURES = (("three", "{:.1%}", "three best"), ("returned", "{:.1%}", "returned"), ("rr", "{:.3f}", "MRR@10"))
ALL = TENTHS  # the place of the figures over all tenths


@dataclass
class System:
    """A bundle; its model is opened when something asks for it."""

    path: Path
    provider: str = "auto"
    budget: int | None = None
    kept: dict[str, PreparedDocument] = field(default_factory=dict)

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

    def prepare(self, document: Document) -> PreparedDocument:
        """The document as this bundle cuts it; remembered by its id."""
        if document.doc_id not in self.kept:
            self.kept[document.doc_id] = self.pipeline.prepare_document(document.text, document.title)
        return self.kept[document.doc_id]

    def select(self, question: str, document: PreparedDocument) -> Selection:
        """The document's blocks for the question; the model is asked only where the selector needs it, or escalates to it."""
        query = self.pipeline.prepare_query(question)
        asks = self.pipeline.asks_model or self.pipeline.config.escalation is not None
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


class Question(NamedTuple):
    """A query of a collection.

    Attributes:
        id: of the query.
        question: its words, or the rewritten ones.
        gold: its gold passages.
        overlap: the share of the question's idf mass in the gold passages.
    """

    id: str
    question: str
    gold: list[Span]
    overlap: float


def overlap(pipeline: Pipeline, question: str, passages: Sequence[str]) -> float:
    """The share of the question's idf mass whose terms occur in the passages; 0 for a question without terms."""
    query = pipeline.prepare_query(question)
    weights = idf_of(query.terms, pipeline.frequencies)
    found = np.isin(query.terms, [key for passage in passages for key in pipeline.analyzer.keys(passage)])
    return float(weights @ found / weights.sum()) if weights.sum() else 0.0


def questions(collection: Collection, split: str, pipeline: Pipeline, wordnet: WordNet | None = None) -> list[Question]:
    """The split's queries whose gold passages are known; in WordNet's words where one is given."""
    made = []
    for query in collection.split(split):
        gold, text = collection.spans.get(query, []), collection.query(query)
        if gold:
            question = rewrite(text, wordnet, generator(query)) if wordnet else text
            passages = [collection.document(span.doc_id).text[span.start : span.end] for span in gold]
            made.append(Question(query, question, gold, overlap(pipeline, question, passages)))
    return made


def tenths(all_questions: Sequence[Question]) -> NDArray[np.intp]:
    """The tenth of each question by its overlap, from 0, the lowest; equal overlaps are split at random."""
    shuffled = np.random.default_rng(0).permutation(len(all_questions))
    order = shuffled[np.argsort([all_questions[place].overlap for place in shuffled], kind="stable")]
    found = np.zeros(len(all_questions), dtype=np.intp)
    found[order] = np.arange(len(all_questions)) * TENTHS // max(len(all_questions), 1)
    return found


def selected(system: System, collection: Collection, question: Question) -> tuple[bool, bool]:
    """Whether a block among the best three, and one among those that are returned, overlaps a gold passage."""
    among_three = returned = False
    for doc_id in dict.fromkeys(span.doc_id for span in question.gold):
        document = system.prepare(collection.document(doc_id))
        gold = touches(document, [(span.start, span.end) for span in question.gold if span.doc_id == doc_id])
        selection = system.select(question.question, document)
        among_three |= bool(gold[rank_blocks(selection.scores)[:BEST_BLOCKS]].any())
        returned |= bool(gold[selection.taken].any())
    return among_three, returned


def touches(document: PreparedDocument, spans: Sequence[tuple[int, int]]) -> NDArray[np.bool_]:
    """Which blocks share a character with one of the spans, shape (n_blocks,)."""
    gold = np.zeros(document.n_blocks, dtype=np.bool_)
    for start, end in spans:
        gold |= (document.starts < end) & (document.ends > start)
    return gold


def ranked(system: System, collection: Collection, question: Question, run: Run) -> float:
    """The reciprocal rank of a relevant document among the first stage's candidates of the query; 0 without candidates."""
    documents = list(run.get(question.id, ()))
    if not documents:
        return 0.0
    grades = collection.qrels.get(question.id, {})
    relevant = np.asarray([grades.get(doc_id, 0) > 0 for doc_id in documents])
    prepared = [system.prepare(collection.document(doc_id)) for doc_id in documents]
    return reciprocal_rank(system.scores(question.question, prepared), relevant)


class Figures(NamedTuple):
    """What was measured of a system on a collection: by measure, the value of each query."""

    three: dict[str, float]
    returned: dict[str, float]
    rr: dict[str, float]


def measure(
    system: System, collection: Collection, all_questions: Sequence[Question], sampled: Sequence[Question], run: Run
) -> Figures:
    """Selection of all questions, MRR@10 of those sampled."""
    blocks = {one.id: selected(system, collection, one) for one in all_questions}
    rr = {one.id: ranked(system, collection, one, run) for one in sampled}
    return Figures(
        {query: float(three) for query, (three, _) in blocks.items()},
        {query: float(returned) for query, (_, returned) in blocks.items()},
        rr,
    )


def by_tenth(values: Mapping[str, float], members: Sequence[Sequence[str]]) -> list[dict[str, float]]:
    """The values of each tenth's queries, and last of all."""
    parts = [{query: values[query] for query in of if query in values} for of in members]
    return [*parts, {query: value for part in parts for query, value in part.items()}]


def overlap_table(
    all_questions: Sequence[Question], places: NDArray[np.intp], systems: Sequence[str], figures: Sequence[Figures]
) -> str:
    """A row a tenth and one for all: the figures of each system, and p of what differs from the first."""
    members = [[one.id for one, place in zip(all_questions, places, strict=True) if place == tenth] for tenth in range(TENTHS)]
    overlaps = by_tenth({one.id: one.overlap for one in all_questions}, members)
    columns = [["tenth", *map(str, range(1, TENTHS + 1)), "all"], ["overlap", *(_mean(part, "{:.2f}") for part in overlaps)]]
    columns.append(["questions", *(f"{len(part):,}" for part in overlaps)])
    for measure_name, form, title in (
        ("three", "{:.1%}", "three best"),
        ("returned", "{:.1%}", "returned"),
        ("rr", "{:.3f}", "MRR@10"),
    ):
        parts = [by_tenth(getattr(one, measure_name), members) for one in figures]
        if any(parts[0]):
            columns += _columns(title, form, systems, parts)
    return markdown([list(row) for row in zip(*columns, strict=True)])


def _columns(title: str, form: str, systems: Sequence[str], parts: Sequence[list[dict[str, float]]]) -> Iterator[list[str]]:
    first = parts[0]
    for name, values in zip(systems, parts, strict=True):
        yield [f"{title}, {name}", *(_mean(part, form) for part in values)]
        if values is not first:
            yield ["p", *p_values(first, values)]


def p_values(first: Sequence[Mapping[str, float]], second: Sequence[Mapping[str, float]]) -> list[str]:
    """Of each tenth, corrected together, and of all questions."""
    raw = [paired_t_test(a, b) if len(a) > 1 else 1.0 for a, b in zip(first, second, strict=True)]
    return [p_text(p) for p in [*correct(raw[:ALL], "holm"), raw[ALL]]]


def _mean(values: Mapping[str, float], form: str) -> str:
    return form.format(float(np.mean(list(values.values())))) if values else ""


def sample(all_questions: Sequence[Question], places: NDArray[np.intp], count: int) -> list[Question]:
    """So many questions of each tenth, the same for all_questions system."""
    order = np.random.default_rng(1).permutation(len(all_questions)).tolist()
    return [all_questions[i] for tenth in range(TENTHS) for i in islice((i for i in order if places[i] == tenth), count)]


def measure_overlap(options: argparse.Namespace) -> Iterator[str]:
    """A table for each collection, in its queries' words and in WordNet's. The overlap counts by the first bundle's frequencies."""
    systems = [System(path, options.provider, options.budget) for path in options.bundles]
    variants = {"": None} | ({", in WordNet's words": WordNet(options.wordnet)} if options.wordnet else {})
    for name in options.collections:
        collection = Collection(options.data / name)
        found = collection.run(options.split) if options.queries else {}
        run = {query: dict(islice(scores.items(), options.depth)) for query, scores in found.items()}
        for system in systems:
            system.kept.clear()
        for words, wordnet in variants.items():
            all_questions = questions(collection, options.split, systems[0].pipeline, wordnet)
            places = tenths(all_questions)
            sampled = sample(all_questions, places, options.queries)
            figures = [measure(system, collection, all_questions, sampled, run) for system in systems]
            heading = f"{name}, {options.split}{words}" + (
                f"; MRR@10 of {len(sampled)} questions, {options.depth} candidates" if sampled else ""
            )
            yield f"{heading}\n\n{overlap_table(all_questions, places, _names(systems), figures)}"


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


def measure_pairs(options: argparse.Namespace) -> Iterator[str]:
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
    yield markdown(rows)


def measure_spared(options: argparse.Namespace) -> Iterator[str]:
    """A table: of each question's hundred documents those that the model reads, and how often the right one is among them."""
    pairs, filler = read_pairs(), read_filler()
    rows = [["bundle", "share", "cascade", "documents read", f"right ones of {len(pairs)}"]]
    for path in options.bundles:
        pipeline = System(path).pipeline
        documents = pipeline.prepare_documents([buried(pair, filler).text for pair in pairs])
        met = [pipeline.select_each(pipeline.prepare_query(pair.question), documents) for pair in pairs]
        for label, cascade in cascades(pipeline.config.cascade or Cascade()).items():
            config = pipeline.config.model_copy(update={"cascade": cascade})
            read = np.asarray([~_spared(selections, config) for selections in met])
            rows.append([str(path), f"{cascade.share:.0%}", label, f"{read.mean():.0%}", f"{np.diag(read).sum()}"])
    yield markdown(rows)


def cascades(own: Cascade) -> dict[str, Cascade]:
    """A bundle's cascade, and others without a margin: its share alone, the same by the fusion's promise, and twice the share."""
    alone = own.model_copy(update={"margin": 0.0})
    twice = alone.model_copy(update={"share": min(2 * own.share, 1.0)})
    by_fusion = alone.model_copy(update={"promise": None})
    return {"as it is": own, "the share alone": alone, "the share alone, by the fusion": by_fusion, "twice the share": twice}


def _spared(selections: Sequence[Selection], config: PipelineConfig) -> NDArray[np.bool_]:
    return spared_documents(np.stack([one.evidence for one in selections]), [one.shared for one in selections], config)


TABLES = {"pairs": measure_pairs, "spared": measure_spared, "overlap": measure_overlap}


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser("benchmarks.paraphrases", description="Questions in other words than their answers.")
    made.add_argument(
        "what", choices=tuple(TABLES), help="the hundred pairs, the cascade on them, or queries by their overlap with the passage"
    )
    made.add_argument(
        "--bundles", type=Path, nargs="+", default=[Path("models/default")], help="the first is compared with the others"
    )
    made.add_argument("--data", type=Path, help="the directory of the collections")
    made.add_argument("--collections", nargs="+", choices=COLLECTIONS, default=list(COLLECTIONS[:3]), help="these alone")
    made.add_argument("--split", default="dev", help="whose queries; choices are made on dev")
    made.add_argument("--wordnet", type=Path, help="a directory of WordNet's files: see training.derive.wordnet.py")
    made.add_argument("--queries", type=int, default=0, help="of each tenth whose candidates the model ranks; 0 for none")
    made.add_argument("--depth", type=int, default=100, help="candidates of a query that the model ranks")
    made.add_argument("--budget", type=int, help="tokens a document; each bundle's own by default")
    made.add_argument("--provider", default="auto", help="what runs the model")
    return made


def main() -> None:
    """Print the tables."""
    options = parser().parse_args()
    if options.what == "overlap" and not options.data:
        sys.exit("paraphrases.py: overlap needs --data, the directory of the collections")
    for table in TABLES[options.what](options):
        print(table, end="\n\n", flush=True)


if __name__ == "__main__":
    main()
