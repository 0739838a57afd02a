"""Collections: documents, queries, judgements, gold passages and first-stage runs, from files and `ir_datasets`.

A collection is named by

- a directory: ``corpus.jsonl[.gz]`` {"_id", "title", "text"}; ``queries.jsonl[.gz]`` {"_id", "text"}; ``qrels.tsv[.gz]`` lines of
  query 0 document grade; ``splits/NAME.txt`` query ids; ``run.SPLIT.bm25.trec[.gz]``, if any; ``spans.jsonl[.gz]`` {"qid", "docid",
  "start", "end"} with character offsets;
- a YAML file that says which TREC files and `ir_datasets` names to read, or a directory with such a ``collection.yaml``: see
  training.data.descriptions;
- ``ir_datasets:NAME``, for example ``ir_datasets:msmarco-document``.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

from training.data.types import CollectionError, Document, Grades, Run, Span


class Collection:
    """A collection by its name, read by the class of its kind. Each part is read at its first use; see the module for `path`.

    Every member raises CollectionError for a missing part, FileError for a damaged one.
    """

    path: Path
    corpus: str = "the documents"
    topics: str = "the queries"

    def __new__(cls, path: Path) -> "Collection":
        """A Directory or a DescribedCollection."""
        from training.data.described import DescribedCollection
        from training.data.descriptions import is_described
        from training.data.directory import Directory

        kind = DescribedCollection if is_described(path) else Directory
        return super().__new__(kind if cls is Collection else cls)

    @property
    def name(self) -> str:
        """The directory's or the description's name; a data set's with dashes for slashes."""
        raise NotImplementedError

    @property
    def documents(self) -> Mapping[str, Document]:
        """Documents by id; a large collection stays on disk, and each look-up reads one document."""
        raise NotImplementedError

    @property
    def queries(self) -> Mapping[str, str]:
        """Query texts by id, at least those of every split that was read so far."""
        raise NotImplementedError

    @property
    def qrels(self) -> Grades:
        """Grades by query and document, at least those of every split that was read so far."""
        raise NotImplementedError

    @property
    def spans(self) -> Mapping[str, list[Span]]:
        """Gold passages by query; empty for a collection without any."""
        raise NotImplementedError

    @property
    def has_spans(self) -> bool:
        """Whether the collection has gold passages; nothing is read to find out."""
        raise NotImplementedError

    def split(self, name: str) -> list[str]:
        """The query ids of a split; at least one."""
        raise NotImplementedError

    def has_run(self, split: str) -> bool:
        """Whether there is a first-stage run of a split, damaged or not; without one all documents are searched."""
        raise NotImplementedError

    def run(self, split: str) -> Run:
        """The first-stage run of a split; of at least one query."""
        raise NotImplementedError

    def present(self, doc_ids: Sequence[str]) -> list[str]:
        """The ids that the corpus has; equal ids share one string. A store on disk is not searched: a run may name millions."""
        raise NotImplementedError

    def document(self, doc_id: str) -> Document:
        """A document by id. Raises CollectionError when the corpus lacks it."""
        try:
            return self.documents[doc_id]
        except KeyError:
            lacks = f"a run or qrels.tsv names document {doc_id!r}, which {self.corpus} lacks"
            raise CollectionError(f"{self.path}: {lacks}") from None

    def query(self, query_id: str) -> str:
        """A query's text by id. Raises CollectionError when the queries lack it."""
        if query_id not in self.queries:
            raise CollectionError(f"{self.path}: a run or split names query {query_id!r}, which {self.topics} lacks")
        return self.queries[query_id]

    def require(self, doc_ids: Sequence[str]) -> list[str]:
        """As `present`, but raises CollectionError for the first document that the corpus lacks."""
        present = self.present(doc_ids)
        for missing in [doc_id for doc_id in doc_ids if doc_id not in present] if len(present) < len(doc_ids) else ():
            self.document(missing)
        return present


def distinct_names(collections: Sequence[Collection]) -> list[str]:
    """The collections' names, by which recipes and tables tell them apart. Raises CollectionError when two share one."""
    names = [collection.name for collection in collections]
    if len(set(names)) < len(names):
        raise CollectionError(f"two of the collections have one name ({', '.join(names)}): rename a directory")
    return names
