"""How many blocks a cascade needs: BM25 keeps m blocks of a document, and the model chooses among them. Quality and time by m.

    python -m benchmarks.cascade --data DATA             measures what is missing, a collection and budget at a time
    python -m benchmarks.cascade --data DATA --publish   writes the table into docs/systems.md

The same model, trained for BinB, reads the blocks of every selector, so that only the selection differs. For quality on dev each
sequence is scored once, however many selectors choose it. For time every selector scores its own, and selectors take turns.
"""

import argparse
import json
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import transformers
from numpy.typing import NDArray

from benchmarks.budgets import cell
from benchmarks.performance.report import put
from benchmarks.systems import ROOT, HeadRanker, milliseconds
from keyblock.packing import Packed
from keyblock.scoring import Model
from training.collections.collection import Collection
from training.collections.json_files import write_json
from training.evaluation.evaluate import evaluate, sample
from training.evaluation.ranking import LocalRanker, run_ranker
from training.evaluation.significance import difference_interval
from training.evaluation.tables import markdown

COLLECTIONS = ("squad-far", "qmsum")
BUDGETS = (128, 256)
EVERY, SHORT = "every block (BinB)", "BM25, no model"
KEPT = (2, 3, 6, 12)
MEASURE = "RR@10"
MARK = "<!-- the cascade by m: python -m benchmarks.cascade --publish writes from here -->"


class Selector(NamedTuple):
    """A row of the table: its name, and the selector's description in a pipeline."""

    name: str
    description: dict[str, Any]


BM25 = {"name": "bm25", "k1": 0.9, "b": 0.4}
SELECTORS = (
    Selector(SHORT, BM25),
    *(Selector(f"BM25 keeps {kept}", {"name": "learned", "keep": kept}) for kept in KEPT),
    Selector(EVERY, {"name": "learned"}),
)


@dataclass
class Remembering:
    """A model that scores each sequence once and remembers its logit."""

    inner: Model
    known: dict[bytes, np.float32] = field(default_factory=dict)

    def outputs(self, sequences: Sequence[Packed]) -> NDArray[np.float32]:
        """See `keyblock.scoring.Model`."""
        keys = [np.asarray(packed.ids).tobytes() for packed in sequences]
        new = {key: packed for key, packed in zip(keys, sequences, strict=True) if key not in self.known}
        self.known.update(zip(new, self.inner.outputs(list(new.values())), strict=True))
        return np.asarray([self.known[key] for key in keys], dtype=np.float32)

    choose = outputs  # BinB: one model selects and scores

    def combine(self, states: NDArray[np.float32], mask: NDArray[np.bool_]) -> NDArray[np.float32]:
        """See `keyblock.scoring.Model`."""
        return self.inner.combine(states, mask)


def main(options: argparse.Namespace) -> None:
    """Measure the missing budgets; print the table."""
    found = known(options)
    for name in COLLECTIONS:
        missing = [budget for budget in BUDGETS if cell(name, budget) not in found]
        model: Remembering | None = None
        for budget in missing:
            collection = Collection(options.data / name)
            rankers = [run_ranker(options.run, collection, budget, selector=s.description) for s in SELECTORS]
            model = model or Remembering(rankers[0].model)
            queries = sample(collection.split("dev"), options.queries[name])
            values = [quality(replace(ranker, model=model), collection, queries, options.depth) for ranker in rankers]
            times = milliseconds(rankers, collection.run("dev"), queries[: options.timed_queries], options.depth)
            found[cell(name, budget)] = {s.name: row(v, values[-1], t) for s, v, t in zip(SELECTORS, values, times, strict=True)}
            write_json(options.record, found)
    print(table(found))


def known(options: argparse.Namespace) -> dict[str, dict[str, dict[str, Any]]]:
    """The measurements so far, by collection with budget, and by selector."""
    return dict(json.loads(options.record.read_text(encoding="utf-8"))) if options.record.exists() else {}


def quality(ranker: LocalRanker, collection: Collection, queries: Sequence[str], depth: int) -> dict[str, float]:
    """MEASURE by query."""
    head = HeadRanker(ranker.name, ranker, depth)
    return dict(evaluate(head, collection, queries, collection.run("dev")).values[MEASURE])


def row(values: dict[str, float], every: dict[str, float], ms: float) -> dict[str, Any]:
    """A selector's record: its mean, the difference from choosing among every block, and its time."""
    mean, best = statistics.fmean(values.values()), statistics.fmean(every.values())
    low, high = difference_interval(values, every)
    return {"mean": mean, "difference": mean - best, "interval": [low, high], "ms": ms, "queries": len(values)}


def table(found: dict[str, dict[str, dict[str, Any]]]) -> str:
    """A row for each selector, grouped by collection and budget."""
    head = ["dev queries of", "blocks chosen by the model among", MEASURE, "against every block", "95% interval", "ms a document"]
    rows = [
        _cells(place, name, measured, selectors[SHORT]["ms"])
        for place, selectors in found.items()
        for name, measured in selectors.items()
    ]
    return markdown([[*head, "times BM25's"], *rows])


def _cells(place: str, name: str, measured: dict[str, Any], bm25_ms: float) -> list[str]:
    low, high = measured["interval"]
    difference = ["", ""] if name == EVERY else [f"{measured['difference']:+.4f}", f"{low:+.3f} to {high:+.3f}"]
    return [
        f"{place} ({measured['queries']})",
        name,
        f"{measured['mean']:.4f}",
        *difference,
        f"{measured['ms']:.1f}",
        f"{measured['ms'] / bm25_ms:.2f}",
    ]


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser("benchmarks.cascade", description="Quality and time of the cascade by the blocks it keeps.")
    made.add_argument("--data", type=Path, required=True, help="the directory of the collections")
    made.add_argument("--run", type=Path, default=Path("runs/keyb-binb"), help="a training run: BinB's model")
    made.add_argument("--record", type=Path, default=ROOT / "docs" / "results" / "cascade.json", help="where measurements go")
    made.add_argument("--queries", type=json.loads, default={"squad-far": 150, "qmsum": 30}, help="dev queries by collection, JSON")
    made.add_argument("--depth", type=int, default=10, help="candidates of a query that are re-ranked")
    made.add_argument("--timed-queries", type=int, default=3, help="of a collection, whose time is measured")
    made.add_argument("--publish", action="store_true", help="only write the table of what is measured into --page")
    made.add_argument("--page", type=Path, default=ROOT / "docs" / "systems.md", help="a page with a place for the table")
    return made


if __name__ == "__main__":
    transformers.logging.set_verbosity_error()
    given = parser().parse_args()
    if given.publish:
        put(given.page, table(known(given)), MARK)
    else:
        main(given)
