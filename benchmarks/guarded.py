"""Re-ranking in thirteen languages beside the first stage: by blocks alone, and by the embedded bundle, which has learned English.

    python -m benchmarks.guarded --data ../shared/data/languages [--split dev] [--queries 100] [--only zh ja ...] [--no-model]

MRR@10 of each system; in brackets the p-value of a paired two-sided t-test against the first stage, per language and uncorrected,
so that harm shows soonest. `blocks alone` orders by each document's best block: universal terms, rare being what few blocks of the
request's documents have. `beside the order` gives the order of the first stage as much weight as that. `embedded` is what
`POST /rerank` answers; `--no-model` leaves out the languages of learned scripts there, where a query takes 2 to 3 seconds.
"""

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from ir_measures import RR
from numpy.typing import NDArray

from benchmarks.languages import EMBEDDED, PIPELINES
from keyblock.bundle import load_bundle
from keyblock.meeting import Meeting, WeighedQuery
from keyblock.order import candidate, rank
from keyblock.pipeline import Pipeline, PipelineConfig
from keyblock.pooled import fused_with_order, pooled_evidence, shared_terms
from keyblock.runtime.model import GraphModel
from keyblock.scoring import score_selections
from training.collections.collection import Collection
from training.evaluation.evaluate import sample
from training.evaluation.measures import per_query
from training.evaluation.significance import p_text, paired_t_test
from training.examples.preparation import Preparation

MEASURE = RR @ 10
SYSTEMS = ("blocks alone", "beside the order", "embedded")
Order = NDArray[np.intp]


class Blocks:
    """Orders by blocks alone; see the module."""

    def __init__(self, collection: Collection, pipeline: Pipeline) -> None:
        self._preparation = Preparation(collection, pipeline)

    def orders(self, query: str, candidates: Sequence[str]) -> dict[str, Order]:
        """The candidates' numbers, best first, by system."""
        weighed = WeighedQuery(self._preparation.query(query), self._preparation.pipeline.frequencies)
        evidence = pooled_evidence([shared_terms(Meeting(weighed, self._preparation.document(name))) for name in candidates])[:, 0]
        found = {"blocks alone": evidence, "beside the order": fused_with_order(evidence)}
        return {system: np.argsort(-scores, kind="stable") for system, scores in found.items()}


class Embedded:
    """Orders as the service does with the embedded bundle."""

    def __init__(self, collection: Collection, pipeline: Pipeline, model: GraphModel | None) -> None:
        self._preparation, self._model = Preparation(collection, pipeline), model

    def orders(self, query: str, candidates: Sequence[str]) -> dict[str, Order]:
        """The candidates' numbers, best first; none where the model is needed, and left out."""
        pipeline, prepared = self._preparation.pipeline, self._preparation.query(query)
        documents = [self._preparation.document(name) for name in candidates]
        selections = [pipeline.select(prepared, document) for document in documents]
        logits = np.zeros(len(documents), np.float32)
        if 2 * sum(one.shared is not None and one.shared.foreign for one in selections) <= len(documents):
            if self._model is None:
                return {}
            logits = score_selections(pipeline, selections, self._model).logits
        found = [candidate(*pair) for pair in zip(documents, selections, strict=True)]
        ranking = rank(found, logits, pipeline.config.fusion, pipeline.config.packing.budget, raw=True)
        return {"embedded": np.asarray(ranking.order)}


def measured(collection: Collection, split: str, queries: list[str], systems: Sequence[Any]) -> dict[str, Mapping[str, float]]:
    """The measure of each query, by system; the first stage among them."""
    first = {query: collection.run(split)[query] for query in queries}
    runs: dict[str, dict[str, dict[str, float]]] = {"first stage": first}
    for query in queries:
        candidates = sorted(first[query], key=lambda name: (-first[query][name], name))
        for ranker in systems:
            for system, order in ranker.orders(query, candidates).items():
                placed = {candidates[number]: -float(place) for place, number in enumerate(order.tolist())}
                runs.setdefault(system, {})[query] = placed
    complete = {system: run for system, run in runs.items() if len(run) == len(queries)}
    return {system: per_query(collection.qrels, run, queries, [MEASURE])[str(MEASURE)] for system, run in complete.items()}


def row(values: Mapping[str, Mapping[str, float]]) -> list[str]:
    """The cells of a language."""
    first = values["first stage"]
    cells = [f"{np.mean(list(first.values())):.3f}"]
    for system in SYSTEMS:
        own = values.get(system)
        cells.append(f"{np.mean(list(own.values())):.3f} ({p_text(paired_t_test(own, first))})" if own else "")
    return cells


def main() -> None:
    """Print a row for each language."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="a directory of collections")
    parser.add_argument("--split", default="dev")
    parser.add_argument("--queries", type=int, default=100)
    parser.add_argument("--only", nargs="+", default=[], help="names of collections; all when left out")
    parser.add_argument("--no-model", action="store_true", help="leave out what the model has to score")
    given = parser.parse_args()
    bundle = load_bundle(EMBEDDED)
    model = None if given.no_model else GraphModel.open(bundle, "cpu", threads=1)
    described = PipelineConfig.model_validate(PIPELINES["universal, structure"])
    names = given.only or sorted(path.name for path in given.data.iterdir() if path.is_dir())
    print(f"| | queries | first stage | {' | '.join(SYSTEMS)} |\n| --- | --- | --- |{' --- |' * len(SYSTEMS)}")
    for name in names:
        collection = Collection(given.data / name)
        queries = sample([query for query in collection.split(given.split) if collection.spans.get(query)], given.queries)
        blocks = Blocks(collection, Pipeline(described, bundle.tokenizer, bundle.frequencies))
        values = measured(collection, given.split, queries, [blocks, Embedded(collection, bundle.pipeline, model)])
        print(f"| {name} | {len(queries)} | {' | '.join(row(values))} |", flush=True)


if __name__ == "__main__":
    main()
