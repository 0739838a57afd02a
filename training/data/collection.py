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
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from training.data import datasets
from training.data.described import DescribedParts
from training.data.descriptions import Description, find_description, read_description
from training.data.directory import Directory
from training.data.types import CollectionError, Document, Grades, Parts, Run, Span

DATASETS = "ir_datasets:"


@dataclass(frozen=True)
class Collection:
    """A collection by its name. Each part is read at its first use; the module says what `path` may be.

    Raises CollectionError for a missing part, FileError for a damaged one.
    """

    path: Path

    def __post_init__(self) -> None:
        _ = self.parts

    @cached_property
    def parts(self) -> Parts:
        """The reader of the collection's parts."""
        return find_parts(self.path)

    @property
    def name(self) -> str:
        """The directory's or the description's name; a data set's with dashes for slashes."""
        return self.parts.name

    @property
    def documents(self) -> Mapping[str, Document]:
        """See Parts."""
        return self.parts.documents

    @property
    def queries(self) -> Mapping[str, str]:
        """See Parts."""
        return self.parts.queries

    @property
    def qrels(self) -> Grades:
        """See Parts."""
        return self.parts.qrels

    @property
    def spans(self) -> Mapping[str, list[Span]]:
        """See Parts."""
        return self.parts.spans

    def document(self, doc_id: str) -> Document:
        """A document by id. Raises CollectionError when the corpus lacks it."""
        try:
            return self.documents[doc_id]
        except KeyError:
            lacks = f"a run or qrels.tsv names document {doc_id!r}, which {self.parts.corpus} lacks"
            raise CollectionError(f"{self.path}: {lacks}") from None

    def query(self, query_id: str) -> str:
        """A query's text by id. Raises CollectionError when the queries lack it."""
        if query_id not in self.queries:
            raise CollectionError(f"{self.path}: a run or split names query {query_id!r}, which {self.parts.topics} lacks")
        return self.queries[query_id]

    def present(self, doc_ids: Sequence[str]) -> list[str]:
        """See Parts."""
        return self.parts.present(doc_ids)

    def require(self, doc_ids: Sequence[str]) -> list[str]:
        """As `present`, but raises CollectionError for the first document that the corpus lacks."""
        present = self.present(doc_ids)
        for missing in [doc_id for doc_id in doc_ids if doc_id not in present] if len(present) < len(doc_ids) else ():
            self.document(missing)
        return present

    def split(self, name: str) -> list[str]:
        """See Parts; a directory's in file order."""
        return self.parts.split(name)

    def has_run(self, split: str) -> bool:
        """See Parts."""
        return self.parts.has_run(split)

    def run(self, split: str) -> Run:
        """See Parts; a directory has BM25 runs ('dev.small' reads the run of 'dev')."""
        return self.parts.run(split)


def find_parts(path: Path) -> Parts:
    """The parts of the collection of this name. Raises CollectionError when there is no such collection."""
    if path.as_posix().startswith(DATASETS):
        name = path.as_posix().removeprefix(DATASETS)
        datasets.load(name)
        return DescribedParts(Description(name=name.replace("/", "-"), documents=name))
    if found := find_description(path):
        file, fold = found
        return DescribedParts(read_description(file), file.parent, fold)
    return Directory(path)


def distinct_names(collections: Sequence[Collection]) -> list[str]:
    """The collections' names, by which recipes and tables tell them apart. Raises CollectionError when two share one."""
    names = [collection.name for collection in collections]
    if len(set(names)) < len(names):
        raise CollectionError(f"two of the collections have one name ({', '.join(names)}): rename a directory")
    return names
