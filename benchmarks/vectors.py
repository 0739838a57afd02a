"""The cost of vectors against BM25 alone: milliseconds of a request's preparation and selection, and bytes a document.

    python -m benchmarks.vectors [--data DATA/squad-articles] [--table TABLE.npz] [--dimensions 128] [--documents 100]

Measures in turns, on one thread, with the embedded bundle's tokenizer and frequencies: the preparation of documents, and the
selection of their blocks for a query, by BM25, by vectors and by both. Prints medians of CPU time, and ratios to BM25. Without
--table the vectors are random numbers, which does not change the time. Without --data the documents are of random words, which have
three times as many tokens as English; see benchmarks/preparation.py.
"""

import argparse
import os
import statistics
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.preparation import BUNDLE, collected, cpu_seconds, invented
from keyblock.bundle import Bundle, load_bundle
from keyblock.description import PipelineConfig
from keyblock.encoders import TokenTable
from keyblock.pipeline import Pipeline

STATIC = {"encoder": {"name": "static"}}
WAYS: dict[str, dict[str, Any]] = {
    "bm25": {},
    "vectors": {"selector": {"name": "vectors"}, **STATIC},
    "hybrid": {"selector": {"name": "hybrid"}, **STATIC},
    "hybrid and soft": {"selector": {"name": "hybrid", "soft": 1}, **STATIC},
    "hybrid without exact": {"selector": {"name": "hybrid", "exact": 0}, **STATIC},
}


def table_of(options: argparse.Namespace, vocabulary: int) -> TokenTable:
    """The table given, or one of random numbers."""
    if options.table:
        return TokenTable.read(options.table)
    rng = np.random.default_rng(0)
    rows = rng.integers(-127, 128, (vocabulary, options.dimensions), dtype=np.int8)
    return TokenTable(rows, rng.uniform(0, 0.01, vocabulary).astype(np.float32))


def pipelines(bundle: Bundle, table: TokenTable) -> dict[str, Pipeline]:
    """The bundle's pipeline with each of the selectors."""
    made = {}
    for way, parts in WAYS.items():
        config = PipelineConfig.model_validate(bundle.manifest.pipeline.model_dump() | parts)
        made[way] = Pipeline(config, bundle.tokenizer, bundle.frequencies, table if config.encoder else None)
    return made


def measured(pipeline: Pipeline, texts: list[str], question: str) -> dict[str, float]:
    """CPU seconds of each step."""
    found = {"prepare": cpu_seconds(lambda: pipeline.prepare_documents(texts))}
    documents = pipeline.prepare_documents(texts)
    found["query"] = cpu_seconds(lambda: pipeline.prepare_query(question))
    query = pipeline.prepare_query(question)
    found["select"] = cpu_seconds(lambda: [pipeline.select(query, document) for document in documents])
    found["request"] = sum(found.values())
    return found


def main(options: argparse.Namespace) -> None:
    """Measure and print."""
    size = options.documents, options.words
    texts = collected(options.data, *size) if options.data else invented(*size)
    question = " ".join(texts[0].split()[-8:])
    bundle = load_bundle(BUNDLE)
    table = table_of(options, bundle.tokenizer.vocabulary_size)
    ways = pipelines(bundle, table)
    for pipeline in ways.values():
        pipeline.prepare_documents(texts)  # its words are known from now on
    turns = [{way: measured(pipeline, texts, question) for way, pipeline in ways.items()} for _ in range(options.turns)]
    print(f"{len(texts)} documents of {options.words} words, {table.dimensions} dimensions; CPU milliseconds, times BM25's")
    base: dict[str, float] = {}
    for way, pipeline in ways.items():
        medians = {step: statistics.median(turn[way][step] for turn in turns) for step in turns[0][way]}
        base = base or medians
        steps = "  ".join(f"{step} {seconds * 1000:7.1f} ({seconds / base[step]:.2f} x)" for step, seconds in medians.items())
        held = statistics.mean(document.nbytes for document in pipeline.prepare_documents(texts))
        print(f"{way:21} {steps}  {held:,.0f} bytes a document")


if __name__ == "__main__":
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    parser = argparse.ArgumentParser("vectors.py", description="Time what vectors cost.")
    parser.add_argument("--data", type=Path, help="a collection's directory")
    parser.add_argument("--table", type=Path, help="token_vectors.npz of the embedded bundle's tokenizer")
    parser.add_argument("--dimensions", type=int, default=128, help="of the random table")
    parser.add_argument("--documents", type=int, default=100)
    parser.add_argument("--words", type=int, default=2000)
    parser.add_argument("--turns", type=int, default=5)
    main(parser.parse_args())
