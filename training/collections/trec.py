"""TREC files: documents and topics, read by ir_datasets' parsers. Judgements: see directory; runs: see runs."""

from collections import namedtuple
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from training.collections import datasets
from training.collections.types import CollectionError


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
    library, path = datasets.library(), existing(base, files.path)
    store = f"{path}.pklz4"
    if files.format == "trec":
        return library.formats.TrecDocs(_stream(path), parser="sax", docstore_path=store)
    if files.format == "tsv":
        return library.formats.TsvDocs(_stream(path))  # its store has the same place
    record = namedtuple("record", list(files.fields))  # type: ignore[misc]  # its fields are the description's
    return library.formats.JsonlDocs(_stream(path), doc_cls=record, mapping=files.fields, docstore_path=store)


def read_topics(topics: Topics, base: Path, field: str | None = None) -> dict[str, str]:
    """Query texts by id: the topics' titles, or the named field. Raises CollectionError for files that cannot be read."""
    formats = datasets.library().formats
    reader = {
        "trec": formats.TrecQueries,
        "xml": formats.TrecXmlQueries,
        "tsv": formats.TsvQueries,
        "colon": formats.TrecColonQueries,
    }[topics.format]
    path = existing(base, topics.path)
    return datasets.read_queries(reader(_stream(path)), str(path), field)


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
    util = datasets.library().util
    local = util.LocalDownload(path, mkdir=False)
    return util.GzipExtract(local) if path.suffix == ".gz" else local
