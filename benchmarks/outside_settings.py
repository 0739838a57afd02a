"""Measures the passages of an imported model: quality and cost by their number and tokens, on dev queries.

    python -m benchmarks.outside_settings --bundle BUNDLE --data ../shared/data [--queries 40] [--depth 20] [--tokens 128 192 256]

A document's passages come best first, so one run with three passages also gives the results for one and for two. Cost is counted in
tokens a document, which do not depend on the load of the machine.
"""

import argparse
import statistics
from collections import defaultdict
from pathlib import Path

import numpy as np

from benchmarks.grown import pipeline_of
from keyblock.bundle import TOKENIZER_FILE, load_bundle
from keyblock.pipeline import Pipeline
from keyblock.runtime.model import GraphModel
from keyblock.scoring import Model
from keyblock.text.tokenizer import Tokenizer
from training.collections.collection import Collection
from training.collections.types import Run
from training.evaluation.evaluate import evaluate_run, sample

MAX_PASSAGES = 3
MEASURE = "RR@10"


def read(pipeline: Pipeline, model: Model, collection: Collection, candidates: Run) -> dict[int, tuple[Run, float]]:
    """The run and the tokens a document, by the number of passages."""
    runs: dict[int, Run] = {number: defaultdict(dict) for number in range(1, MAX_PASSAGES + 1)}
    tokens: dict[int, list[int]] = defaultdict(list)
    for query, documents in candidates.items():
        prepared = pipeline.prepare_query(collection.query(query))
        chosen = []
        for name in documents:
            document = collection.document(name)
            chosen.append(pipeline.select(prepared, pipeline.prepare_document(document.text, document.title)))
        logits = model.outputs([one for selection in chosen for one in selection.sequences])
        ends = np.cumsum([len(selection.sequences) for selection in chosen])
        for name, selection, document_logits in zip(documents, chosen, np.split(logits, ends[:-1]), strict=True):
            places = np.argsort(selection.taken)  # the rank of each sequence, in the order of the document
            lengths = np.asarray([len(one.ids) for one in selection.sequences])
            for number, run in runs.items():
                run[query][name] = float(document_logits[places < number].max(initial=-1e9))
                tokens[number].append(int(lengths[places < number].sum()))
    ordered = {
        n: {q: dict(sorted(scores.items(), key=lambda pair: -pair[1])) for q, scores in run.items()} for n, run in runs.items()
    }
    return {number: (run, statistics.fmean(tokens[number])) for number, run in ordered.items()}


def main() -> None:
    """Print a row for each setting."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bundle", type=Path, required=True)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--collections", nargs="+", default=["squad-far", "squad-articles", "qmsum"])
    parser.add_argument("--split", default="dev")
    parser.add_argument("--queries", type=int, default=40)
    parser.add_argument("--depth", type=int, default=20)
    parser.add_argument("--tokens", type=int, nargs="+", default=[128, 192, 256])
    parser.add_argument("--provider", default="auto")
    given = parser.parse_args()
    bundle = load_bundle(given.bundle)
    model, tokenizer = GraphModel.open(bundle, given.provider, 1), Tokenizer(bundle.path / TOKENIZER_FILE)
    print(
        f"| collection | passages | tokens of each | {MEASURE} | tokens a document |", "| --- | --- | --- | --- | --- |", sep="\n"
    )
    for name in given.collections:
        collection = Collection(given.data / name)
        queries = sample(collection.split(given.split), given.queries)
        run = collection.run(given.split)
        candidates = {query: dict(list(run[query].items())[: given.depth]) for query in queries if run.get(query)}
        first = evaluate_run("BM25", candidates, collection, queries).values[MEASURE]
        print(f"| {name} | BM25 | | {statistics.fmean(first.values()):.3f} | |", flush=True)
        for size in given.tokens:
            for number, (ranked, cost) in read(pipeline_of(size, MAX_PASSAGES, tokenizer), model, collection, candidates).items():
                values = evaluate_run("import", ranked, collection, queries).values[MEASURE]
                print(f"| {name} | {number} | {size} | {statistics.fmean(values.values()):.3f} | {cost:.0f} |", flush=True)


if __name__ == "__main__":
    main()
