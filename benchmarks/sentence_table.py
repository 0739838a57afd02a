"""The sentence-level paper's tables on our collections: selection x scorer x aggregation, alone and fused with the first stage.

    python -m benchmarks.sentence_table --data DATA [--tuned RUN] [--cross RUN]
    python -m benchmarks.sentence_table --publish        puts the table of all records into docs/sentences.md

Each sentence is scored once for all selections and aggregations, and its vector is kept in CACHE, document by document. A scorer is
done on a collection when its record is in RECORDS; the program may be stopped and started again. A cross-encoder reads the
sentences that some selection takes, and has no row for all sentences. MAPFuse weights both rankings by their MAP on as many dev
queries.
"""

import argparse
import hashlib
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Protocol

import numpy as np
import torch
import transformers
from ir_measures import AP, RR, nDCG
from numpy.typing import NDArray
from tqdm import tqdm

from benchmarks.performance.report import PageError, put
from keyblock.aggregation import AGGREGATORS, aggregate
from keyblock.description import PipelineConfig
from keyblock.first_stage import MapFuse
from keyblock.pipeline import LEAST_WEIGHT, Pipeline
from keyblock.prepared import PreparedDocument, PreparedQuery
from keyblock.selectors import SELECTORS, rank_blocks
from keyblock.sentence_selectors import query_term_counts
from keyblock.text.frequencies import DocumentFrequencies
from keyblock.text.tokenizer import Tokenizer
from training.collections.collection import Collection
from training.collections.types import FileError, Run
from training.evaluation.evaluate import sample
from training.evaluation.measures import means, per_query
from training.evaluation.records import DECIMALS, Record, read_records, record_path, write_record
from training.evaluation.scoring import TorchModel, length_batches
from training.evaluation.tables import markdown
from training.examples.preparation import Preparation
from training.examples.prepared_cache import default_directory
from training.models.arithmetic import in_bf16
from training.models.bi_encoder import BiEncoder, Texts
from training.models.checkpoints import chosen
from training.models.devices import fastest_device
from training.models.families import load_ranker, new_ranker
from training.models.starting import read_ranker
from training.recipe import DEFAULT_BACKBONE, backbone_path

ROOT = Path(__file__).resolve().parent.parent
PAGE, BEGIN = ROOT / "docs" / "sentences.md", "<!-- sentences: python -m benchmarks.sentence_table --publish writes from here -->"
COLLECTIONS = ("squad-articles", "squad-far", "qmsum")
SCORERS = UNTUNED, TUNED, CROSS = "bi-encoder", "bi-encoder, tuned", "cross-encoder"
FIRST_STAGE = "BM25"
FUSED = ", fused"
ALL = "all"
SELECTIONS = {  # the selector, and how many blocks it takes
    "FIRST 10": ({"name": "first"}, 10),
    "TERMF 10": ({"name": "termf"}, 10),
    "FIRST+TERMF 10+10": ({"name": "first_termf", "first": 10}, 20),
    ALL: ({"name": "first"}, None),
}
AGGREGATIONS = ("max", "sum", "term_weighted")
CELLS = list(product(SELECTIONS, AGGREGATIONS))
MEASURES = (AP, RR @ 10, nDCG @ 10)
BATCH_TOKENS = 8192
Cell = tuple[str, str]
"""A selection and an aggregation."""
Scores = NDArray[np.float32]
PIPELINE = PipelineConfig.model_validate(
    {"segmenter": {"name": "single_sentences"}, "packing": {"title_tokens": 0, "budget": 128, "budget_range": [128, 128]}}
)


class Scorer(Protocol):
    """Scores sentences."""

    selections: Sequence[str]

    def scores(self, query: PreparedQuery, doc_id: str, document: PreparedDocument, blocks: NDArray[np.intp]) -> Scores:
        """The scores of these blocks for the query, shape (n_blocks,)."""


@dataclass
class ByVectors:
    """Cosines of vectors that are computed once for each document.

    Attributes:
        model: computes the vectors.
        kept: the directory that keeps the vectors of a collection's documents.
    """

    model: BiEncoder
    kept: Path
    selections: Sequence[str] = tuple(SELECTIONS)
    _known: dict[str, NDArray[np.float32]] = field(default_factory=dict)
    _query: tuple[PreparedQuery, NDArray[np.float32]] | None = None

    def scores(self, query: PreparedQuery, doc_id: str, document: PreparedDocument, blocks: NDArray[np.intp]) -> Scores:
        """See Scorer."""
        if self._query is None or self._query[0] is not query:
            self._query = query, self._encoded([query.token_ids])[0]
        return np.asarray(self._of(doc_id, document)[blocks] @ self._query[1])

    def _of(self, doc_id: str, document: PreparedDocument) -> NDArray[np.float32]:
        """The vectors of a document's blocks, shape (n_blocks, hidden)."""
        if doc_id not in self._known:
            path = self.kept / f"{hashlib.blake2b(doc_id.encode(), digest_size=12).hexdigest()}.npy"
            if not path.exists():
                vectors = self._encoded([document.token_ids[start:end] for start, end in document.bounds.tolist()])
                path.parent.mkdir(parents=True, exist_ok=True)
                partial = path.with_suffix(".part.npy")
                np.save(partial, vectors.astype(np.float16))
                partial.replace(path)
            self._known[doc_id] = np.load(path).astype(np.float32)
        return self._known[doc_id]

    @torch.inference_mode()
    def _encoded(self, texts: Sequence[NDArray[np.int32]]) -> NDArray[np.float32]:
        """The vectors of texts, given by their tokens without specials; shape (n_texts, hidden)."""
        device, first, last = self.model.encoder.device, *special_tokens()
        vectors = np.zeros((len(texts), self.model.hidden_size // 2), np.float32)
        rows = [torch.tensor([first, *text.tolist(), last]) for text in texts]
        with torch.autocast(device.type, torch.bfloat16, enabled=in_bf16("auto", device)):
            for batch in length_batches([len(row) for row in rows], BATCH_TOKENS):
                ids = torch.nn.utils.rnn.pad_sequence([rows[i] for i in batch], batch_first=True).to(device)
                mask = torch.arange(ids.shape[1], device=device) < torch.tensor([[len(rows[i])] for i in batch], device=device)
                vectors[batch] = self.model.vectors(Texts(ids, mask.long())).cpu().numpy()
        return vectors


@dataclass
class ByReading:
    """A cross-encoder's logits of the query with each sentence."""

    model: TorchModel
    pipeline: Pipeline
    selections: Sequence[str] = tuple(name for name in SELECTIONS if name != ALL)

    def scores(self, query: PreparedQuery, doc_id: str, document: PreparedDocument, blocks: NDArray[np.intp]) -> Scores:
        """See Scorer."""
        return self.model.outputs(self.pipeline.block_sequences(query, document, blocks))


def special_tokens() -> tuple[int, int]:
    """The special tokens before and after a single text."""
    template = tokenizer().template
    return template.before[0], template.after[-1]


def tokenizer() -> Tokenizer:
    """The backbone's tokenizer."""
    return Tokenizer(Path(backbone_path(DEFAULT_BACKBONE)) / "tokenizer.json")


def selected(query: PreparedQuery, document: PreparedDocument, names: Sequence[str]) -> dict[str, NDArray[np.intp]]:
    """The blocks that each selection takes, in document order."""
    unused = DocumentFrequencies(1, {})
    ranked = {name: rank_blocks(SELECTORS.create(SELECTIONS[name][0]).scores(query, document, unused)) for name in names}
    return {name: np.sort(order[: SELECTIONS[name][1]]) for name, order in ranked.items()}


def document_scores(scorer: Scorer, query: PreparedQuery, doc_id: str, document: PreparedDocument) -> dict[Cell, float]:
    """A document's score by selection and aggregation; -inf for one without a sentence."""
    takes = selected(query, document, scorer.selections)
    union = np.unique(np.concatenate(list(takes.values())))
    block_scores = np.full(document.n_blocks, np.nan, np.float32)
    if len(union):
        block_scores[union] = scorer.scores(query, doc_id, document, union)
    weights = np.maximum(query_term_counts(query, document), LEAST_WEIGHT).astype(np.float32)
    found = {}
    for selection, blocks in takes.items():
        arguments = block_scores[blocks], np.asarray([len(blocks)]), None, weights[blocks]
        for name in AGGREGATIONS:
            found[selection, name] = float(aggregate(AGGREGATORS.create(name), *arguments).logits[0])
    return found


def rerank(scorer: Scorer, preparation: Preparation, given: Mapping[str, Sequence[str]], depth: int) -> dict[Cell, Run]:
    """The run of each selection and aggregation; candidates below `depth` keep their order behind.

    Args:
        scorer: scores sentences.
        preparation: prepares the collection.
        given: each query's candidates, best first.
        depth: candidates that are ranked again.
    """
    runs: dict[Cell, Run] = {cell: {} for cell in product(scorer.selections, AGGREGATIONS)}
    for query_id, candidates in tqdm(given.items(), desc=preparation.collection.name, unit="query", disable=None):
        query, head = preparation.query(query_id), candidates[:depth]
        scored = [document_scores(scorer, query, doc_id, preparation.document(doc_id)) for doc_id in head]
        for cell, run in runs.items():
            order = sorted(range(len(head)), key=lambda place: -scored[place][cell])
            ranking = [*(head[place] for place in order), *candidates[depth:]]
            run[query_id] = {doc_id: -float(rank) for rank, doc_id in enumerate(ranking)}
    return runs


def fused(run: Run, first: Run, dev_maps: tuple[float, float]) -> Run:
    """Each query's MAPFuse of the run and the first stage, whose MAPs on dev are given in this order; equals as the first stage."""
    fusion = MapFuse(model_map=dev_maps[0], first_stage_map=dev_maps[1])
    return {query: _fused(fusion, scores, list(first[query])) for query, scores in run.items()}


def _fused(fusion: MapFuse, scores: Mapping[str, float], first: Sequence[str]) -> dict[str, float]:
    """A query's documents, best first; `first` is the first stage's order of the same ones."""
    found = fusion.fuse(np.asarray([scores[doc_id] for doc_id in first]), -np.arange(len(first)))
    return {first[place]: float(found[place]) for place in np.argsort(-found, kind="stable")}


def mean_ap(run: Run, collection: Collection) -> float:
    """MAP over the run's queries."""
    return means(per_query(collection.qrels, run, list(run), [AP]))[str(AP)]


def first_stage(collection: Collection, split: str, count: int) -> Run:
    """The candidates of a sample of the split's queries."""
    candidates = collection.run(split)
    return {query: candidates[query] for query in sample(collection.split(split), count) if query in candidates}


def measure(name: str, scorer: Scorer, preparation: Preparation, options: argparse.Namespace) -> Record:
    """The record of a scorer on a collection: the measures of each cell, alone and fused, of the same queries."""
    collection = preparation.collection
    given = {split: first_stage(collection, split, options.queries) for split in ("dev", "test")}
    runs = {
        split: rerank(scorer, preparation, {query: list(found) for query, found in of_split.items()}, options.depth)
        for split, of_split in given.items()
    }
    maps = {cell: mean_ap(run, collection) for cell, run in runs["dev"].items()}
    first_map, values = mean_ap(given["dev"], collection), measured(given["test"], collection, FIRST_STAGE)
    for cell, run in runs["test"].items():
        values |= measured(run, collection, named(cell))
        values |= measured(fused(run, given["test"], (maps[cell], first_map)), collection, named(cell) + FUSED)
    details = {"depth": options.depth, "dev MAP": {FIRST_STAGE: first_map} | {named(cell): found for cell, found in maps.items()}}
    queries = list(given["test"])
    return Record(system=name, collection=collection.name, split="test", queries=queries, values=values, details=details)


def measured(run: Run, collection: Collection, name: str) -> dict[str, list[float]]:
    """A run's values by ``NAME: MEASURE``, in the order of its queries."""
    values = per_query(collection.qrels, run, list(run), MEASURES)
    return {f"{name}: {measure}": [round(value, DECIMALS) for value in of_query.values()] for measure, of_query in values.items()}


def named(cell: Cell) -> str:
    """A cell's name."""
    return ", ".join(cell)


def scorers(options: argparse.Namespace, collection: str, pipeline: Pipeline) -> Iterator[tuple[str, Scorer]]:
    """The scorers that the options name."""
    backbone, device = backbone_path(DEFAULT_BACKBONE), fastest_device()
    models = {UNTUNED: new_ranker({"name": "bi_encoder"}, backbone).eval()}
    if options.tuned:
        models[TUNED] = load_ranker(chosen(options.tuned))
    for name, model in models.items():
        if not isinstance(model, BiEncoder):
            sys.exit(f"sentence_table.py: {options.tuned} holds a {model.family['name']}, and --tuned takes a bi_encoder")
        yield name, ByVectors(model.to(device), options.cache / "sentence-vectors" / digest(model) / collection)
    if options.cross:
        ranker = read_ranker(options.cross, backbone).to(device)
        yield CROSS, ByReading(TorchModel(ranker, pipeline.tokenizer, in_bf16("auto", device)), pipeline)


def digest(model: BiEncoder) -> str:
    """A digest of everything that decides a sentence's vector."""
    whole = hashlib.blake2b(PIPELINE.model_dump_json().encode(), digest_size=12)
    for name, weight in sorted(model.state_dict().items()):
        whole.update(name.encode() + weight.cpu().numpy().tobytes())
    return whole.hexdigest()


def main(options: argparse.Namespace) -> None:
    """Measure what is missing; print the tables."""
    pipeline = Pipeline(PIPELINE, tokenizer(), DocumentFrequencies(1, {}))
    for name in options.collections:
        preparation = Preparation(Collection(options.data / name), pipeline)
        for scorer_name, scorer in scorers(options, name, pipeline):
            if not record_path(options.records, name, scorer_name).exists():
                write_record(measure(scorer_name, scorer, preparation, options), options.records)
    print(tables(read_records(options.records, COLLECTIONS)))


def tables(records: Sequence[Record]) -> str:
    """A table for each collection, in Markdown: a row for each scorer, selection and aggregation; the best of a column is bold."""
    parts, names = [], [str(measure).replace("AP", "MAP") for measure in MEASURES]
    head = ["scorer", "selection", "aggregation", *names, *(f"{name}{FUSED}" for name in names)]
    for collection in dict.fromkeys(record.collection for record in records):
        here = sorted((r for r in records if r.collection == collection), key=lambda r: SCORERS.index(r.system))
        rows = [[FIRST_STAGE, "", "", *values_of(here[0], FIRST_STAGE), *([""] * len(MEASURES))]]
        for record in here:
            cells = [cell for cell in CELLS if f"{named(cell)}: {AP}" in record.values]
            rows += [
                [record.system, *cell, *values_of(record, named(cell)), *values_of(record, named(cell) + FUSED)] for cell in cells
            ]
        depth, count = here[0].details["depth"], len(here[0].queries)
        conditions = f"On {collection}, the first {depth} candidates of {count} test queries were ranked again."
        parts.append(f"{conditions}\n\n{markdown([head, *with_best_bold(rows)])}")
    return "\n\n".join(parts)


def values_of(record: Record, name: str) -> list[str]:
    """The means of the measures with this name, as cells."""
    return [f"{record.means[f'{name}: {measure}']:.3f}" for measure in MEASURES]


def with_best_bold(rows: Sequence[Sequence[str]]) -> list[list[str]]:
    """The rows, the largest number of each column in bold."""
    best = [max(column) for column in zip(*rows, strict=True)]
    return [[f"**{cell}**" if cell == best[i] and i >= 3 else cell for i, cell in enumerate(row)] for row in rows]


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser("sentence_table.py", description="Selection x scorer x aggregation of sentences; resumable.")
    made.add_argument("--data", type=Path, help="the directory of the collections; needed unless tables are written")
    made.add_argument("--collections", nargs="+", choices=COLLECTIONS, default=COLLECTIONS, help="to measure on")
    made.add_argument("--tuned", type=Path, metavar="RUN", help="a run of recipes/small/sentence-tuned.yaml")
    made.add_argument("--cross", type=Path, metavar="RUN", help="a run or bundle of a cross-encoder")
    made.add_argument("--queries", type=int, default=50, help="test queries of a collection, and dev queries for MAPFuse")
    made.add_argument("--depth", type=int, default=30, help="candidates that are ranked again")
    made.add_argument("--records", type=Path, default=ROOT / "docs" / "results" / "sentences", help="where measurements go")
    made.add_argument("--cache", type=Path, default=default_directory(), help="where sentences' vectors are kept (%(default)s)")
    made.add_argument("--publish", action="store_true", help="only write the table of what is measured into --page")
    made.add_argument("--page", type=Path, default=PAGE, help="a Markdown page with a marked place for the tables")
    return made


if __name__ == "__main__":
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    command = parser()
    options = command.parse_args()
    if options.data is None and not options.publish:
        command.error("--data is needed: the directory of the collections")
    if options.publish:
        try:
            put(options.page, tables(read_records(options.records, COLLECTIONS)), BEGIN)
        except (PageError, FileError) as error:
            sys.exit(f"sentence_table.py: {error}")
    else:
        main(options)
