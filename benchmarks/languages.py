"""Measures by language how often the chosen blocks include the gold paragraph. No model is run.

    python -m benchmarks.languages --data ../shared/data/languages [--split dev] [--queries 100] [--only zh ja ...]

Each pipeline cuts each query's relevant document into blocks and ranks them. The table shows the share of queries for which one of
the three best blocks overlaps the gold paragraph, and, in brackets, the share for the best block alone. All pipelines use the
embedded tokenizer and blocks of 63 tokens.
`--data ../shared/data --only squad-far squad-articles qmsum` measures other collections.
"""

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from keyblock.bundle import load_bundle
from keyblock.pipeline import Pipeline, PipelineConfig
from keyblock.selectors import rank_blocks
from keyblock.text.languages import LANGUAGES
from training.collections.collection import Collection
from training.evaluation.evaluate import sample

EMBEDDED = Path(__file__).resolve().parents[1] / "models" / "default"
BEST = 3
BLOCKS = {"name": "bm25", "idf": "blocks"}
PIPELINES: Mapping[str, Mapping[str, Any]] = {
    "english, cogltx": {"segmenter": {"name": "cogltx"}, "selector": {"name": "bm25"}},
    "english, structure": {"segmenter": {"name": "structure"}, "selector": {"name": "bm25"}},
    "universal, whole_sentences": {"analyzer": {"name": "universal"}, "segmenter": {"name": "whole_sentences"}, "selector": BLOCKS},
    "universal, structure": {"analyzer": {"name": "universal"}, "segmenter": {"name": "structure"}, "selector": BLOCKS},
}


def pipelines(language: str) -> dict[str, Pipeline]:
    """The compared pipelines, by name."""
    bundle = load_bundle(EMBEDDED)
    described = {**PIPELINES}
    if language in LANGUAGES:
        described["language, structure"] = {**PIPELINES["universal, structure"], "analyzer": {"language": language}}
    configs = {name: PipelineConfig.model_validate(parts) for name, parts in described.items()}
    made = {name: Pipeline(config, bundle.tokenizer, bundle.frequencies) for name, config in configs.items()}
    return {"embedded": bundle.pipeline, **made}


def shares(collection: Collection, pipeline: Pipeline, queries: list[str]) -> tuple[float, float]:
    """Shares of queries whose gold paragraph overlaps one of the BEST best blocks, and the best block."""
    found = []
    known = dict.fromkeys(span.doc_id for query in queries for span in collection.spans[query])
    documents = {name: pipeline.prepare_document(collection.document(name).text) for name in known}
    for query in queries:
        prepared = pipeline.prepare_query(collection.query(query))
        doc_id = collection.spans[query][0].doc_id
        document, gold = documents[doc_id], [span for span in collection.spans[query] if span.doc_id == doc_id]
        best = rank_blocks(pipeline.select(prepared, document).scores)[:BEST]
        hits = [any(document.starts[i] < span.end and document.ends[i] > span.start for span in gold) for i in best.tolist()]
        found.append((any(hits), hits[0]))
    return tuple(np.mean(found, axis=0).tolist())


def main() -> None:
    """Print a row for each language."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="a directory of collections")
    parser.add_argument("--split", default="dev")
    parser.add_argument("--queries", type=int, default=100)
    parser.add_argument("--only", nargs="+", default=[], help="names of collections; all when left out")
    given = parser.parse_args()
    names = given.only or sorted(path.name for path in given.data.iterdir() if path.is_dir())
    columns = ["embedded", *PIPELINES, "language, structure"]
    print(f"| | queries | {' | '.join(columns)} |\n| --- | --- |{' --- |' * len(columns)}")
    for name in names:
        collection = Collection(given.data / name)
        queries = sample([query for query in collection.split(given.split) if collection.spans.get(query)], given.queries)
        measured = {label: shares(collection, pipeline, queries) for label, pipeline in pipelines(name).items()}
        cells = [f"{measured[label][0]:.3f} ({measured[label][1]:.3f})" if label in measured else "" for label in columns]
        print(f"| {name} | {len(queries)} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
