"""The time of a document that is ranked by its id, against its time as text: medians of CPU time on one thread.

    python -m benchmarks.stored [--data DATA/qmsum] [--documents 100] [--words 2000] [--turns 15]

Measures preparing texts, reading the same documents from a store in a directory, and selecting blocks for a query, which both need.
Then it measures storing, beside preparation. Without --data the documents are of random words, as in preparation.py.
"""

import argparse
import statistics
import tempfile
from collections.abc import Callable
from pathlib import Path

from benchmarks.preparation import BUNDLE, collected, cpu_seconds, invented
from keyblock.bundle import load_bundle
from service.store.base import Item
from service.store.codec import StoredDocument, decode, encode, pack_text
from service.store.lmdb_store import LmdbStore

QUERY = "what was decided about the budget of the next year"


def main(options: argparse.Namespace) -> None:
    """Measure and print."""
    n, words = options.documents, options.words
    texts = collected(options.data, n, words) if options.data else invented(n, words)
    pipeline = load_bundle(BUNDLE).pipeline
    query, documents = pipeline.prepare_query(QUERY), pipeline.prepare_documents(texts)
    ids = [str(number) for number in range(len(texts))]

    def encoded() -> list[Item]:
        parts = zip(ids, texts, documents, strict=True)
        return [Item(one, encode(StoredDocument(one, "", pack_text(text), made, bytes(16)))) for one, text, made in parts]

    items = encoded()
    with tempfile.TemporaryDirectory() as directory:
        store = LmdbStore(Path(directory), 4 << 30)
        steps: dict[str, Callable[[], object]] = {
            "prepare texts": lambda: pipeline.prepare_documents(texts),
            "read by id": lambda: [decode(content or b"") for content in store.get_many("", ids)],
            "select blocks": lambda: [pipeline.select(query, document) for document in documents],
            "encode": encoded,
            "write": lambda: store.put_many("", items),
        }
        steps["write"]()
        took = {name: statistics.median(cpu_seconds(step) for _ in range(options.turns)) for name, step in steps.items()}
        store.close()
    for name, seconds in took.items():
        print(f"{name:15} {seconds * 1e3:8.2f} ms for {len(texts)} documents")
    print(f"reading takes 1/{took['prepare texts'] / took['read by id']:.0f} of preparing; ", end="")
    print(f"a document takes {sum(len(item.content) for item in items) / len(items):.0f} bytes,", end=" ")
    print(f"its text alone {sum(len(text.encode()) for text in texts) / len(texts):.0f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="a collection, whose longest documents are taken")
    parser.add_argument("--documents", type=int, default=100)
    parser.add_argument("--words", type=int, default=2000, help="words of a document")
    parser.add_argument("--turns", type=int, default=15)
    main(parser.parse_args())
