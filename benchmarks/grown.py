"""How much of the gold passages an imported model reads, by number and size of the passages. No model is run.

    python -m benchmarks.grown --data ../shared/data [--queries 200]

For each dev query: the share of its gold passage's characters in the selected passage that holds most of them. Prints the means in
a Markdown table.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from export.habits import SENTENCES, import_frequencies
from keyblock.description import PipelineConfig
from keyblock.pipeline import Pipeline
from keyblock.text.tokenizer import Tokenizer
from training.collections.collection import Collection
from training.evaluation.evaluate import sample
from training.models.starting import TOKENIZER_FILE
from training.recipe import DEFAULT_BACKBONE, backbone_path

NUMBERS, TOKENS = (1, 2, 3, 5), (128, 256, 512)


def pipeline_of(tokens: int, passages: int, tokenizer: Tokenizer) -> Pipeline:
    """The pipeline of an imported model, see `export.habits`."""
    packing = {"query_tokens": 64, "budget": tokens, "budget_range": (tokens, tokens), "grow": True}
    segmenter = {"name": "whole_sentences", "block_tokens": SENTENCES}
    parts = {"segmenter": segmenter, "packing": packing, "aggregator": {"name": "max", "passages": passages}}
    return Pipeline(PipelineConfig.model_validate(parts), tokenizer, import_frequencies(None))


def share(collection: Collection, pipeline: Pipeline, queries: Sequence[str]) -> float:
    """The share of a gold passage's characters in the selected passage that holds most of them; the mean over gold passages."""
    found = []
    for query in queries:
        prepared = pipeline.prepare_query(collection.query(query))
        for span in collection.spans[query]:
            document = pipeline.prepare_document(collection.document(span.doc_id).text)
            reach = pipeline.select(prepared, document).reach
            starts, ends = document.starts[reach[:, 0]], document.ends[reach[:, 1] - 1]
            held = np.minimum(ends, span.end) - np.maximum(starts, span.start)
            found.append(max(int(held.max(initial=0)), 0) / (span.end - span.start))
    return float(np.mean(found))


def main() -> None:
    """Print a row for each collection and size."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="a directory of collections")
    parser.add_argument("--collections", nargs="+", default=["squad-far", "squad-articles"])
    parser.add_argument("--queries", type=int, default=200)
    given = parser.parse_args()
    tokenizer = Tokenizer(Path(backbone_path(DEFAULT_BACKBONE)) / TOKENIZER_FILE)
    print(f"| collection | tokens | {' | '.join(f'{number} passages' for number in NUMBERS)} |")
    print(f"| --- | --- |{' --- |' * len(NUMBERS)}")
    for name in given.collections:
        collection = Collection(given.data / name)
        queries = sample([query for query in collection.split("dev") if collection.spans.get(query)], given.queries)
        for tokens in TOKENS:
            shares = [share(collection, pipeline_of(tokens, number, tokenizer), queries) for number in NUMBERS]
            print(f"| {name} | {tokens} | {' | '.join(f'{100 * one:.0f}%' for one in shares)} |", flush=True)


if __name__ == "__main__":
    main()
