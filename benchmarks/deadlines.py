"""What a deadline costs in quality: the service as it is run, asked for each dev query under every deadline in turn.

    python -m benchmarks.deadlines --data DATA [--collections squad-far qmsum] [--queries 60] [--milliseconds 50 100 200 0]

DATA holds the collections. 0 stands for no deadline. Nothing is cached, so that each document is prepared each time. Prints a
table: RR@10 and nDCG@10, how many requests were degraded, how many of the documents the model has scored, and how long after its
deadline an answer was there at the client; --picture draws the curves.
"""

import argparse
import json
import tempfile
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import numpy as np
from matplotlib.figure import Figure
from tqdm import tqdm

from benchmarks.performance.service import Service
from keyblock.runtime.cpus import default_threads
from training.collections.collection import Collection
from training.collections.types import Run
from training.evaluation.evaluate import sample
from training.evaluation.measures import means, per_query

BUNDLE = Path(__file__).resolve().parent.parent / "models" / "default"


@dataclass
class Under:
    """What was measured under one deadline.

    Attributes:
        degraded: of each request, whether it was.
        by_model: of each request, the share of the documents that the model has scored.
        late: of each request, milliseconds from its deadline to its answer at the client; negative when early.
    """

    run: Run = field(default_factory=dict)
    degraded: list[bool] = field(default_factory=list)
    by_model: list[float] = field(default_factory=list)
    late: list[float] = field(default_factory=list)


def main(options: argparse.Namespace) -> None:
    """Measure every collection, print the table, draw the picture."""
    rows, curves = [], {}
    with (
        tempfile.TemporaryDirectory() as folder,
        Service(default_threads(), Path(folder) / "service.log", bundle=options.bundle, cache_bytes=0) as service,
    ):
        print(service.info["provider"]["why"])
        for name in options.collections:
            collection = Collection(options.data / name)
            found = measure(service.url, collection, options.queries, options.milliseconds)
            rows += [row(collection, milliseconds, under) for milliseconds, under in found.items()]
            curves[name] = {ms: quality(collection, under)["RR@10"] for ms, under in found.items()}
    print("\n".join(("| " + " | ".join(cells) + " |") for cells in [HEAD, ["---"] * len(HEAD), *rows]))
    if options.picture:
        draw(curves).savefig(options.picture, dpi=120)


HEAD = ["collection", "deadline, ms", "RR@10", "nDCG@10", "degraded", "scored by the model", "after the deadline, p99"]


def measure(url: str, collection: Collection, queries: int, deadlines: Sequence[int]) -> dict[int, Under]:
    """Ask for each query under every deadline, one after the other."""
    candidates = collection.run("dev")
    found: dict[int, Under] = defaultdict(Under)
    with httpx.Client(base_url=url, timeout=600) as client:
        for query in tqdm(sample(sorted(candidates), queries), desc=collection.name, disable=None):
            documents = [collection.document(d) for d in candidates[query]]
            body = {
                "query": collection.query(query),
                "documents": [{"id": d.doc_id, "title": d.title, "text": d.text} for d in documents],
            }
            for milliseconds in deadlines:
                ask(
                    client, body | ({"deadline_ms": milliseconds} if milliseconds else {}), query, milliseconds, found[milliseconds]
                )
    return dict(found)


def ask(client: httpx.Client, body: dict[str, object], query: str, milliseconds: int, under: Under) -> None:
    """Send one request and note its answer."""
    content = json.dumps(body).encode()
    started = time.perf_counter()
    response = client.post("/rerank", content=content)
    taken = 1000 * (time.perf_counter() - started)
    answer = response.raise_for_status().json()
    results = answer["results"]
    under.run[query] = {result["id"]: -float(rank) for rank, result in enumerate(results)}
    under.degraded.append(answer["meta"]["degraded"])
    under.by_model.append(sum("scored_by" not in result for result in results) / len(results))
    under.late.append(taken - milliseconds)


def quality(collection: Collection, under: Under) -> dict[str, float]:
    """The means of the measures over the queries."""
    return means(per_query(collection.qrels, under.run, list(under.run)))


def row(collection: Collection, milliseconds: int, under: Under) -> list[str]:
    """A line of the table."""
    values = quality(collection, under)
    late = f"{np.quantile(under.late, 0.99):+.0f} ms" if milliseconds else ""
    shares = [f"{np.mean(under.degraded):.0%}", f"{np.mean(under.by_model):.0%}"]
    return [collection.name, str(milliseconds or "none"), f"{values['RR@10']:.4f}", f"{values['nDCG@10']:.4f}", *shares, late]


def draw(curves: dict[str, dict[int, float]]) -> Figure:
    """Quality against the deadline; a dotted line where there is none."""
    figure = Figure(figsize=(8, 5), layout="constrained")
    axes = figure.subplots()
    for name, curve in curves.items():
        timed = {ms: value for ms, value in sorted(curve.items()) if ms}
        (line,) = axes.plot(list(timed), list(timed.values()), marker="o", label=name)
        if 0 in curve:
            axes.axhline(curve[0], color=line.get_color(), linestyle=":", linewidth=1)
    axes.set(xscale="log", xlabel="deadline, milliseconds (dotted: none)", ylabel="RR@10 on dev")
    ticks = sorted({ms for curve in curves.values() for ms in curve if ms})
    axes.set_xticks(ticks, [str(ms) for ms in ticks])
    axes.minorticks_off()
    axes.legend()
    axes.grid(alpha=0.3)
    return figure


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--data", type=Path, required=True)
    made.add_argument("--collections", nargs="+", default=["squad-far", "qmsum"])
    made.add_argument("--queries", type=int, default=60, help="of each dev split, a fixed sample")
    made.add_argument("--milliseconds", type=int, nargs="+", default=[50, 100, 200, 400, 800, 1600, 0])
    made.add_argument("--bundle", type=Path, default=BUNDLE)
    made.add_argument("--picture", type=Path, help="a PNG for the curves")
    return made


if __name__ == "__main__":
    main(parser().parse_args())
