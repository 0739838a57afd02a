"""Measures ranking quality and time for queries of 20, 100 and 300 words, with several `long_query` settings.

    python benchmarks/long_queries.py --data DATA [--queries 25] [--candidates 15] [--ways WAY ...]

There are three kinds of queries. joined: dev questions about one document, in the order of their ids, until the words are reached
(squad-articles, qmsum). told: the same with full stops in place of question marks. buried: one dev question between sentences of
small talk, at a place drawn by its id (squad-far).

A way is a value of `packing.long_query`: `none` (the first 48 tokens), or NAME=VALUE pairs such as `tokens=48,questions=0`. The
candidates are the first of the collection's BM25 run for the question, or for the last of several. If the relevant document is
missing, it replaces the last candidate. Prints RR@10 and milliseconds a query with prepared documents, on one thread.
"""

import argparse
import random
import time
from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path
from typing import NamedTuple

import numpy as np

from keyblock.bundle import Bundle, load_bundle
from keyblock.pipeline import Pipeline
from keyblock.queries import LongQuery
from keyblock.runtime.model import GraphModel
from keyblock.runtime.providers import Provider
from keyblock.scoring import score_documents
from training.collections.collection import Collection
from training.collections.first_stage import first_stage_run
from training.evaluation.evaluate import sample
from training.examples.preparation import Preparation

BUNDLE = Path(__file__).resolve().parent.parent / "models" / "default"
KINDS = {"squad-articles": ("joined", "told"), "qmsum": ("joined", "told"), "squad-far": ("buried",)}
LENGTHS = (20, 100, 300)
SMALL_TALK = """I hope that you are well. Thank you for your last message, which I read with pleasure. The weather here has been
mild for weeks. We moved the furniture on Monday, and everything is in its place again. My colleagues send their regards. Last
weekend we had visitors, and there was a lot to talk about. The coffee machine works again since yesterday. I was away for a few
days and came back late on Sunday. Nothing much has changed since we met. Some people have asked about you. The meeting took longer
than we thought. Please forgive me that I did not write before. There was simply too much to do. The children are fine and like
their new school. On Friday we will have lunch together. I will tell you more about it another time. It would be good to see you
again soon. Take care of yourself. The train was late, as usual. Somebody left a cake in the kitchen. I have kept the papers that
you gave me. There is no hurry at all. Write to me when you have a moment. With kind regards, and until soon.""".replace("\n", " ")


class Long(NamedTuple):
    """A query.

    Attributes:
        text: the query's text.
        relevant: id of the relevant document.
        candidates: document ids, which include the relevant one.
    """

    text: str
    relevant: str
    candidates: list[str]


def joined(collection: Collection, queries: Sequence[str], words: int) -> Iterator[tuple[str, str, str]]:
    """Joined questions about one document: the last question's id, the joined text, the document."""
    groups: dict[str, list[str]] = {}
    for query in sorted(queries):
        for document, grade in collection.qrels[query].items():
            if grade > 0:
                groups.setdefault(document, []).append(query)
    for document, members in groups.items():
        text, used = "", 0
        while used < len(members) and len(text.split()) < words:
            text, used = f"{text} {collection.queries[members[used]]}".strip(), used + 1
        if len(text.split()) >= 0.6 * words:
            yield members[used - 1], text, document


def buried(collection: Collection, queries: Sequence[str], words: int) -> Iterator[tuple[str, str, str]]:
    """A question between sentences of small talk: the question's id, the whole text, the relevant document."""
    talk = [sentence.strip(" .") + "." for sentence in SMALL_TALK.split(". ")]
    for query in queries:
        draw, question = random.Random(query), collection.queries[query]
        sentences: list[str] = []
        while len(question.split()) + sum(len(one.split()) for one in sentences) < words - 5:
            sentences.append(draw.choice(talk))
        sentences.insert(draw.randint(0, len(sentences)), question)
        yield query, " ".join(sentences), next(d for d, grade in collection.qrels[query].items() if grade > 0)


def built(collection: Collection, kind: str, words: int, options: argparse.Namespace) -> list[Long]:
    """The long queries of a collection."""
    split = "dev.small" if collection.name == "squad-articles" else "dev"
    run = first_stage_run(collection, "dev", 100)
    make = buried if kind == "buried" else joined
    found = []
    queries = collection.split(split) if kind != "buried" else sample(collection.split(split), options.queries)
    for query, text, relevant in make(collection, queries, words):
        candidates = list(run[query])[: options.candidates]
        if relevant not in candidates:
            candidates[-1] = relevant
        found.append(Long(text.replace("?", ".") if kind == "told" else text, relevant, candidates))
    return found[: options.queries]


def way_of(bundle: Bundle, words: str) -> Pipeline:
    """The bundle's pipeline with this `long_query`."""
    pipeline = bundle.pipeline
    pairs = [] if words == "none" else [pair.split("=") for pair in words.split(",")]
    long = LongQuery.model_validate({name: float(value) for name, value in pairs}) if pairs else None
    packing = pipeline.config.packing.model_copy(update={"long_query": long})
    config = pipeline.config.model_copy(update={"packing": packing})
    return Pipeline(config, pipeline.tokenizer, pipeline.frequencies, pipeline.encoder)


def measured(pipeline: Pipeline, model: GraphModel, preparation: Preparation, queries: Sequence[Long]) -> tuple[float, float]:
    """RR@10, and the median milliseconds a query."""
    gains, times = [], []
    for query in queries:
        documents = [preparation.document(candidate) for candidate in query.candidates]
        started = time.perf_counter()
        scores, selections, _ = score_documents(pipeline, pipeline.prepare_query(query.text), documents, model)
        times.append(1000 * (time.perf_counter() - started))
        fused = pipeline.config.fusion.fuse(scores, np.stack([selection.evidence for selection in selections]))
        place = 1 + int((fused > fused[query.candidates.index(query.relevant)]).sum())
        gains.append(1 / place if place <= 10 else 0.0)
    return float(np.mean(gains)), float(np.median(times))


def main(options: argparse.Namespace) -> None:
    """Measure and print."""
    bundle = load_bundle(BUNDLE)
    model = GraphModel.open(bundle, Provider.CPU, 1)
    print("| collection | kind | words | queries | long_query | RR@10 | ms a query |")
    for name in options.collections:
        collection = Collection(options.data / name)
        preparation = Preparation(collection, bundle.pipeline)
        for kind, words in product(KINDS[name], LENGTHS):
            queries = built(collection, kind, words, options)
            for way in options.ways if queries else ():
                quality, ms = measured(way_of(bundle, way), model, preparation, queries)
                mean = np.mean([len(query.text.split()) for query in queries])
                row = f"| {name} | {kind} | {mean:.0f} | {len(queries)} | {way} | {quality:.3f} | {ms:.0f} |"
                print(row, flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser("long_queries.py", description="Measure long queries.")
    parser.add_argument("--data", type=Path, required=True, help="the directory of the collections")
    parser.add_argument("--collections", nargs="+", default=list(KINDS))
    parser.add_argument("--queries", type=int, default=25)
    parser.add_argument("--candidates", type=int, default=15)
    parser.add_argument("--ways", nargs="+", default=["none", "tokens=48", "tokens=80", "tokens=48,questions=0"])
    main(parser.parse_args())
