"""The time of a document that is scored by stored vectors alone, against a bundle whose graph reads tokens; as text and by id.

    keyblock-encoder MODEL --bundle models/default --scale 20 --out bundles/by-vectors
    python -m benchmarks.sentence_vectors --data DATA/squad-far --vectors bundles/by-vectors [--queries 5] [--depth 50]

Measures the CPU time of one thread from the query's text to the order, without HTTP: medians over queries with BM25's first
candidates. By id, prepared documents are read from a store in a directory. Both bundles rank each query in turn, so that other load
on the machine affects both.
"""

import argparse
import statistics
import tempfile
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from benchmarks.preparation import BUNDLE, cpu_seconds
from keyblock.bundle import Bundle, load_bundle
from keyblock.order import candidate, rank
from keyblock.prepared import PreparedDocument
from keyblock.runtime.model import open_model
from keyblock.scoring import Model, score_documents
from service.store.base import Item
from service.store.codec import StoredDocument, decode, encode, pack_text
from service.store.lmdb_store import LmdbStore
from training.collections.collection import Collection
from training.collections.first_stage import first_stage_run


class Query(NamedTuple):
    """A query and its candidates, by their ids in the collection."""

    query: str
    documents: list[str]


class Row(NamedTuple):
    """A system's milliseconds for a document as text and for a stored one, and a document's bytes in the store."""

    name: str
    text: float
    stored: float
    size: float


class System:
    """A bundle, and a store of documents that it prepared.

    Args:
        bundle: the bundle; its model runs in one thread.
        folder: the store's directory.
    """

    def __init__(self, bundle: Bundle, folder: Path) -> None:
        self.bundle, self.pipeline = bundle, bundle.pipeline
        self.model: Model = open_model(bundle, "cpu", 1)
        self.store = LmdbStore(folder, 4 << 30)

    def keep(self, texts: dict[str, str]) -> float:
        """Store documents. Returns the mean bytes of a document."""
        made = self.pipeline.prepare_documents(list(texts.values()))
        pairs = zip(texts.items(), made, strict=True)
        items = [
            Item(one, encode(StoredDocument(one, "", pack_text(text), document, bytes(16)))) for (one, text), document in pairs
        ]
        self.store.put_many("", items)
        return statistics.mean(len(item.content) for item in items)

    def order(self, query: str, documents: Callable[[], Sequence[PreparedDocument]]) -> list[int]:
        """Read or prepare documents and rank them: their numbers, best first."""
        config, prepared = self.pipeline.config, documents()
        scored = score_documents(self.pipeline, self.pipeline.prepare_query(query), prepared, self.model)
        candidates = [candidate(*pair) for pair in zip(prepared, scored.selections, strict=True)]
        return rank(candidates, scored.logits, config.fusion, config.packing.budget, raw=False, activation=config.activation).order

    def by_text(self, query: str, texts: list[str]) -> list[int]:
        """Rank texts that come with the query."""
        return self.order(query, lambda: self.pipeline.prepare_documents(texts))

    def by_id(self, query: str, ids: list[str]) -> list[int]:
        """Rank stored documents."""
        return self.order(query, lambda: [decode(content or b"").prepared for content in self.store.get_many("", ids)])


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="a collection")
    parser.add_argument("--vectors", type=Path, required=True, help="a bundle of keyblock-encoder --scale")
    parser.add_argument("--bundle", type=Path, default=BUNDLE, help="the one beside it")
    parser.add_argument("--queries", type=int, default=5, help="of the test split")
    parser.add_argument("--depth", type=int, default=50, help="candidates of a query")
    given = parser.parse_args(arguments)
    collection = Collection(given.data)
    queries = candidates_of(collection, given.queries, given.depth)
    with tempfile.TemporaryDirectory() as folder:
        systems = {
            path.name: System(load_bundle(path), Path(folder) / str(n)) for n, path in enumerate((given.bundle, given.vectors))
        }
        print(f"{given.data.name}: {len(queries)} queries, {given.depth} documents each")
        for name, text, stored, size in measured(systems, queries, collection):
            print(f"{name:24} as text {text:8.3f} ms a document, by id {stored:8.3f} ms, {size:8.0f} bytes in the store")


def candidates_of(collection: Collection, queries: int, depth: int) -> list[Query]:
    """The first test queries with their first candidates."""
    run = first_stage_run(collection, "test", depth)
    return [Query(collection.queries[query], list(run[query])[:depth]) for query in list(run)[:queries]]


def measured(systems: dict[str, System], queries: Sequence[Query], collection: Collection) -> Iterator[Row]:
    """Each system's medians over the queries. Raises ValueError if documents by id have another order than their texts."""
    rows: dict[str, list[Row]] = {name: [] for name in systems}
    for query, ids in queries:
        texts = {one: collection.document(one).text for one in ids}
        for name, system in systems.items():
            size = system.keep(texts)
            ways = partial(system.by_text, query, list(texts.values())), partial(system.by_id, query, ids)
            if ways[0]() != ways[1]():
                raise ValueError(f"{name}: orders documents by id otherwise than their texts")
            rows[name].append(Row(name, *(1e3 * cpu_seconds(way) / len(ids) for way in ways), size))
    for name, found in rows.items():
        yield Row(name, *(statistics.median(column) for column in list(zip(*found, strict=True))[1:]))


if __name__ == "__main__":
    main()
