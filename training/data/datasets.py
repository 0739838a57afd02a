"""Reads data sets of `ir_datasets` (MacAvaney et al. 2021) and TREC files, by its parsers; documents stay in its store on disk.

Only this module imports the package. Reading a data set may download it; planning never does.
"""

import difflib
import re
import sys
from collections import namedtuple
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from training.data.files import ranked
from training.data.types import CollectionError, Document, Grades, Run

BLOCK_TAGS = re.compile(
    rb"<(?=/?(?:p|br|div|li|[uod]l|d[td]|t[drh]|table|h[1-6r]|title|body|pre|blockquote|option|form|center)\b)", re.IGNORECASE
)


def library() -> Any:
    """The package, whose import takes a second."""
    import ir_datasets

    return ir_datasets


@contextmanager
def reading(what: str) -> Iterator[None]:
    """Turn any error of ir_datasets, whose data sets and parsers each raise their own, into a CollectionError of one line."""
    try:
        yield
    except CollectionError:
        raise
    except Exception as error:
        raise CollectionError(
            f"{what}: ir_datasets cannot read it ({type(error).__name__}: {' '.join(str(error).split())})"
        ) from None


def is_known(name: str) -> bool:
    """Whether ir_datasets has a data set of this name."""
    try:
        library().registry[name]
    except KeyError:
        return False
    return True


def load(name: str) -> Any:
    """Open a data set, without reading it. Raises CollectionError for an unknown name, with names of similar spelling."""
    if not is_known(name):
        close = difflib.get_close_matches(name, list(library().registry), n=3)
        raise CollectionError(
            f"ir_datasets has no {name!r}" + (f"; is it {' or '.join(close)}?" if close else "; see ir-datasets.com")
        )
    return library().load(name)


def find_split(name: str, split: str) -> str:
    """The data set that is a split of `name`: `name` itself if its last part is the split, else one below it or its parents.

    'train' of msmarco-document is msmarco-document/train, and 'dev' of msmarco-document/train is msmarco-document/dev.
    Raises CollectionError when there is none.
    """
    if (parts := name.split("/"))[-1] == split:
        return name
    above = ["/".join(parts[:depth]) for depth in range(len(parts), 0, -1)]
    for candidate in (f"{parent}/{split}" for parent in above):
        if is_known(candidate) and load(candidate).has("queries"):
            return candidate
    has = sorted(known.removeprefix(f"{name}/") for known in library().registry if known.startswith(f"{name}/"))
    raise CollectionError(f"ir_datasets:{name} has no split {split!r}" + (f"; it has {', '.join(has[:12])}" if has else ""))


def count(dataset: Any, part: str) -> int | None:
    """How many queries, qrels or scoreddocs a data set has; None where ir_datasets does not say so without its files."""
    metadata = getattr(dataset, f"{part}_metadata", None)
    return metadata().get("count") if metadata else None


def read_queries(dataset: Any, name: str, field: str | None = None) -> dict[str, str]:
    """Query texts by id: the topic's default text (its title), or the named field; line breaks become spaces."""
    with reading(f"{name}: queries"):
        return {query.query_id: " ".join(_query_text(query, field).split()) for query in dataset.queries_iter()}


def _query_text(query: Any, field: str | None) -> str:
    return str(getattr(query, field) if field else query.default_text())


def read_grades(dataset: Any, name: str) -> Grades:
    """Grades by query and document."""
    grades: Grades = {}
    with reading(f"{name}: qrels"):
        for judged in dataset.qrels_iter():
            grades.setdefault(judged.query_id, {})[judged.doc_id] = int(judged.relevance)
    return grades


def read_scored(dataset: Any, name: str, depth: int) -> Run:
    """The `depth` best scored documents of each query; equal document ids share one string in memory."""
    run: Run = {}
    with reading(f"{name}: scoreddocs"):
        for scored in dataset.scoreddocs_iter():
            run.setdefault(scored.query_id, {})[sys.intern(scored.doc_id)] = float(scored.score)
    return {query: dict(list(ranked(scores).items())[:depth]) for query, scores in run.items()}


class StoredDocuments(Mapping[str, Document]):
    """Documents of an ir_datasets store. A look-up reads one from disk; the first look-up downloads and builds a missing store.

    Args:
        handler: a data set or a format with `docs_store`.
        name: the name that errors give.
    """

    def __init__(self, handler: Any, name: str) -> None:
        self.handler = handler
        self.name = name
        self._store: Any = None

    def __getitem__(self, doc_id: str) -> Document:
        with reading(f"{self.name}: document {doc_id}"):
            self._store = self._store or self.handler.docs_store()
            found = self._store.get_many([doc_id])
        return to_document(found[doc_id])

    def __iter__(self) -> Iterator[str]:
        with reading(f"{self.name}: documents"):
            yield from (row.doc_id for row in self.handler.docs_iter())

    def __len__(self) -> int:
        with reading(f"{self.name}: documents"):
            known = self.handler.docs_count()
            return int(known) if known is not None else sum(1 for _ in self)


def to_document(row: Any) -> Document:
    """A record as a document, with its title and its body, text or web page; else with the default text of ir_datasets."""
    for field in ("body", "text"):
        text = getattr(row, field, None)
        if isinstance(text, str):
            return Document(row.doc_id, str(getattr(row, "title", None) or ""), text)
    if isinstance(getattr(row, "body", None), bytes):
        return _page(row)
    return Document(row.doc_id, "", str(row.default_text()))


def _page(row: Any) -> Document:
    """A web page as a document; the record holds its bytes and HTTP headers, as in GOV2 and ClueWeb."""
    spaced = BLOCK_TAGS.sub(b" <", row.body)  # ir_datasets' parser puts nothing between paragraphs
    html = library().util.sax_html_parser
    title, text = html(spaced, headers=getattr(row, "http_headers", None), fields=[{"title"}, None])
    return Document(row.doc_id, " ".join(title.split()), text.strip())


class Files(BaseModel):
    """Documents in files of one format; ir_datasets builds a store beside the files, once."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    path: str = Field(description="a file, gzipped or not; of format trec also a directory of them")
    format: Literal["trec", "jsonl", "tsv"] = Field("trec", description="TREC SGML; a JSON object a line; id<TAB>text")
    fields: dict[str, str] = Field(
        {"doc_id": "_id", "title": "title", "text": "text"},
        description="jsonl: the keys of doc_id, text and, where documents have one, title",
    )


class Topics(BaseModel):
    """Queries in a file."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    path: str = Field(description="a file, gzipped or not")
    format: Literal["trec", "xml", "tsv", "colon"] = Field(
        "trec", description="TREC topics of num, title, desc and narr; XML; id<TAB>text; id:text"
    )


def file_documents(files: Files, base: Path) -> Any:
    """A format of ir_datasets over document files, with `docs_store`; nothing is read yet.

    Raises CollectionError for files that are not there.
    """
    formats, path = library().formats, existing(base, files.path)
    store = f"{path}.pklz4"
    if files.format == "trec":
        return formats.TrecDocs(_stream(path), parser="sax", docstore_path=store)
    if files.format == "tsv":
        return formats.TsvDocs(_stream(path))  # its store has the same place
    record = namedtuple("record", list(files.fields))  # type: ignore[misc]  # its fields are the description's
    return formats.JsonlDocs(_stream(path), doc_cls=record, mapping=files.fields, docstore_path=store)


def read_topics(topics: Topics, base: Path, field: str | None = None) -> dict[str, str]:
    """Query texts by id: the topics' titles, or the named field. Raises CollectionError for files that cannot be read."""
    formats = library().formats
    reader = {
        "trec": formats.TrecQueries,
        "xml": formats.TrecXmlQueries,
        "tsv": formats.TsvQueries,
        "colon": formats.TrecColonQueries,
    }[topics.format]
    path = existing(base, topics.path)
    return read_queries(reader(_stream(path)), str(path), field)


def existing(base: Path, name: str) -> Path:
    """The path of a file of a description. Raises CollectionError when it is not there."""
    path = resolve(base, name)
    if not path.exists():
        raise CollectionError(f"{path}: is not there")
    return path


def resolve(base: Path, name: str) -> Path:
    """The path of a file, relative to `base`; ~ is the home directory."""
    return base / Path(name).expanduser()


def _stream(path: Path) -> Any:
    util = library().util
    local = util.LocalDownload(path, mkdir=False)
    return util.GzipExtract(local) if path.suffix == ".gz" else local
