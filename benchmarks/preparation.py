"""Times the preparation of documents, beside the tokenizer alone.

    python benchmarks/preparation.py [--data DATA/squad-articles] [--documents 100] [--words 2000] [--turns 5]

It compares these in turns, on one thread:

- the pipeline in Python and compiled (if keyblock_native is installed), with vectors and without;
- the same with other segmenters, and with compiled reading but segmentation in Python;
- the tokenizer alone;
- selecting blocks of the prepared documents for a query, in Python and as the service does it.

Prints medians of CPU time, and ratios. The first turn of a new pipeline has its own row: every word is new to it. At the end it
prints the speedup of two threads over one. Without --data the documents consist of random words: a few are frequent and most are
rare, as in a language.
"""

import argparse
import os
import statistics
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from keyblock import native
from keyblock.bundle import load_bundle
from keyblock.pipeline import Pipeline
from keyblock.segmenters import SEGMENTERS
from keyblock.text.reader import Pause, Reader
from keyblock.text.reading import CutText, Rule
from training.collections.collection import Collection

BUNDLE = Path(__file__).resolve().parent.parent / "models" / "default"
VOCABULARY = 20_000


def invented(documents: int, words: int) -> list[str]:
    """Texts of random words by Zipf's law, in sentences."""
    rng = np.random.default_rng(0)
    letters = np.array(list("etaoinshrdlucmfwypvbgk"))
    vocabulary = ["".join(rng.choice(letters, rng.integers(2, 11))) for _ in range(VOCABULARY)]
    shares = 1 / np.arange(2, VOCABULARY + 2)
    drawn = rng.choice(VOCABULARY, (documents, words), p=shares / shares.sum())
    marks = rng.choice(["", "", "", "", "", "", "", "", "", ",", ".", "."], (documents, words))
    return [" ".join(vocabulary[w] + m for w, m in zip(*row, strict=True)) for row in zip(drawn, marks, strict=True)]


def collected(directory: Path, documents: int, words: int) -> list[str]:
    """The heads of a collection's documents, the longest first."""
    texts = (document.text.split() for document in Collection(directory).documents.values())
    return [" ".join(text[:words]) for text in sorted(texts, key=len, reverse=True)[:documents]]


def cpu_seconds(work: Callable[[], object]) -> float:
    """Seconds of CPU time that the work takes."""
    started = time.process_time()
    work()
    return time.process_time() - started


class CutsNothing(Reader):
    """Reads as usual, but leaves the segmentation of all texts to Python."""

    def cut(self, texts: Sequence[str], rule: Rule | None, pause: Pause = int) -> list[CutText | None]:
        """See Reader."""
        return [None] * len(texts)


def new(pipeline: Pipeline, segmenter: str | None = None, *, compiled: bool = True, vectors: bool = True) -> Pipeline:
    """A copy of the pipeline with empty word caches."""
    config = pipeline.config.model_copy(update={"segmenter": SEGMENTERS.create(segmenter).describe()} if segmenter else {})
    made = Pipeline(config, pipeline.tokenizer, pipeline.frequencies, pipeline.encoder)
    if not compiled:
        made.reader = Reader(made.tokenizer, made.analyzer, compiled=False)
    if not vectors:
        made.encoder = None
    return made


def with_segmenter(pipeline: Pipeline, name: str) -> dict[str, Pipeline]:
    """Pipelines with another segmenter, without vectors: compiled, compiled but cut by Python, and plain Python."""
    ways = {name: new(pipeline, name, vectors=False), f"{name}, cut by Python": new(pipeline, name, vectors=False)}
    by_python = ways[f"{name}, cut by Python"]
    by_python.reader = CutsNothing(by_python.tokenizer, by_python.analyzer)
    return ways | {f"{name}, plain": new(pipeline, name, compiled=False, vectors=False)}


def speedup_of_two_threads(pipeline: Pipeline, texts: Sequence[str]) -> float:
    """Wall time of one thread divided by that of two. Both prepare all documents twice, one by one."""

    def work(_number: int = 0) -> None:
        for text in texts:
            pipeline.prepare_document(text)

    def wall(threads: int) -> float:
        started = time.perf_counter()
        with ThreadPoolExecutor(threads) as pool:
            list(pool.map(work, range(2)))
        return time.perf_counter() - started

    return wall(1) / wall(2)


def main(options: argparse.Namespace) -> None:
    """Measure and print."""
    texts = (
        collected(options.data, options.documents, options.words) if options.data else invented(options.documents, options.words)
    )
    pipeline = load_bundle(BUNDLE).pipeline
    ways = {"plain": new(pipeline, compiled=False), "plain, no vectors": new(pipeline, compiled=False, vectors=False)}
    if native.core is not None:
        ways |= {"compiled": new(pipeline), "compiled, no vectors": new(pipeline, vectors=False)}
    first = {way: cpu_seconds(lambda by=by: by.prepare_documents(texts)) for way, by in ways.items()}
    for name in options.segmenters:
        ways |= with_segmenter(pipeline, name)
    query, prepared = pipeline.prepare_query(" ".join(texts[0].split()[-8:])), pipeline.prepare_documents(texts)
    turns = [
        {way: cpu_seconds(lambda by=by: by.prepare_documents(texts)) for way, by in ways.items()}
        | {"tokenizer alone": cpu_seconds(lambda: pipeline.tokenizer.encode(texts))}
        | {"selection, one by one in Python": cpu_seconds(lambda: [pipeline.select(query, document) for document in prepared])}
        | {"selection, as the service does": cpu_seconds(lambda: pipeline.select_each(query, prepared))}
        for _ in range(options.turns)
    ]
    medians = {way: statistics.median(turn[way] for turn in turns) for way in turns[0]}
    rows = {f"{way}, a new one": seconds for way, seconds in first.items()} | medians
    print(f"{len(texts)} documents, {sum(len(text.split()) for text in texts):,} words; CPU milliseconds a document")
    for way, seconds in rows.items():
        print(f"{way:36} {seconds * 1000 / len(texts):8.3f}  {seconds / medians['plain']:5.2f} x")
    for way in list(first):
        print(f"{way:36} two threads: {speedup_of_two_threads(ways[way], texts):.2f} times as fast as one")


if __name__ == "__main__":
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    parser = argparse.ArgumentParser("preparation.py", description="Time the preparation of documents.")
    parser.add_argument("--data", type=Path, help="a collection's directory")
    parser.add_argument("--documents", type=int, default=100)
    parser.add_argument("--words", type=int, default=2000)
    parser.add_argument("--segmenters", nargs="*", default=[], help="other segmenters to compare")
    parser.add_argument("--turns", type=int, default=5)
    main(parser.parse_args())
