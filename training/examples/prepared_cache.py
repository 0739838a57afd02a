"""Prepared documents on disk, so that no run tokenizes and cuts the same text twice.

A store is one directory for everything that decides how a document is prepared; in it lie shards, each written once and renamed
into place whole: ``digests.npy``, which names its documents by their content, and for every field of PreparedDocument the arrays
of all of them end to end (``FIELD.npy``, read through a memory map) with their bounds (``FIELD.bounds.npy``). Runs that need other
documents add a shard; two processes that need the same at once write the same one. A store may be removed at any time.
"""

import hashlib
import os
import shutil
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from keyblock.fingerprint import preparation_fingerprint
from keyblock.pipeline import Pipeline
from keyblock.prepared import PreparedDocument
from training.collections.types import Document

AT_ONCE = 32  # documents that are tokenized together
SHARD, KEPT_FOR = 1024, 60.0  # documents, and seconds since the last shard, at which one is written: what a kill can lose
DIGEST = 16  # bytes
FIELDS = [field.name for field in fields(PreparedDocument)]


def default_directory() -> Path:
    """KEYBLOCK_CACHE, else ~/.cache/keyblock."""
    return Path(os.environ.get("KEYBLOCK_CACHE") or Path.home() / ".cache" / "keyblock")


def content_digest(document: Document) -> bytes:
    """16 bytes that name a document's title and text; its id plays no part."""
    title, body = (part.encode("utf-8", "surrogatepass") for part in (document.title, document.text))
    return hashlib.blake2b(len(title).to_bytes(8, "little") + title + body, digest_size=DIGEST).digest()


class Shard:
    """A directory of prepared documents.

    Args:
        names: of the fields that its documents have.

    Raises OSError or ValueError when it is damaged.
    """

    def __init__(self, directory: Path, names: Sequence[str]) -> None:
        self.digests = [row.tobytes() for row in np.load(directory / "digests.npy")]
        self._values = {name: _mapped(directory / f"{name}.npy") for name in names}
        self._bounds = {name: np.load(directory / f"{name}.bounds.npy") for name in names}

    def __getitem__(self, row: int) -> PreparedDocument:
        parts = {name: self._values[name][slice(*self._bounds[name][row : row + 2])] for name in self._values}
        return PreparedDocument(**parts)

    @staticmethod
    def write(directory: Path, names: Sequence[str], digests: Sequence[bytes], documents: Sequence[PreparedDocument]) -> None:
        """Write a shard into an empty directory."""
        np.save(directory / "digests.npy", np.frombuffer(b"".join(digests), np.uint8).reshape(-1, DIGEST))
        for name in names:
            arrays = [getattr(document, name) for document in documents]
            np.save(directory / f"{name}.npy", np.concatenate(arrays))
            np.save(directory / f"{name}.bounds.npy", np.cumsum([0, *map(len, arrays)], dtype=np.int64))


class PreparedCache:
    """Prepares documents by a pipeline, and keeps them in its store under `directory`. Safe to use from several threads.

    Args:
        directory: of all stores; made when there is something to keep.
        pipeline: prepares.
        tokenizer_file: the file that its tokenizer was read from.
    """

    def __init__(self, directory: Path, pipeline: Pipeline, tokenizer_file: Path) -> None:
        self.pipeline = pipeline
        self.store = directory / "prepared" / preparation_fingerprint(pipeline, tokenizer_file)
        self._names = FIELDS if pipeline.encoder else [name for name in FIELDS if name != "vectors"]
        self._shards: list[Shard] = []
        self._places: dict[bytes, tuple[int, int]] = {}
        self._fresh: dict[bytes, PreparedDocument] = {}
        self._lock = threading.RLock()
        self._written = time.monotonic()
        self._opened: set[Path] = set()
        self._open_shards()

    def prepare(self, document: Document) -> PreparedDocument:
        """The prepared document: from the store, or made now and kept. Raises OSError when the store cannot be written."""
        return self._find(content_digest(document), document)

    def fill(self, documents: Sequence[Document]) -> None:
        """Prepare and keep those that the store lacks, several at once, with a progress bar. Raises OSError like `prepare`."""
        self._open_shards()  # another process may have filled it meanwhile
        known = self._places.keys() | self._fresh.keys()
        missing = {digest: d for d in documents if (digest := content_digest(d)) not in known}
        with tqdm(total=len(missing), desc="prepare", unit="doc", dynamic_ncols=True, disable=not missing) as bar:
            for part in _parts(list(missing.items()), AT_ONCE):
                prepared = self.pipeline.prepare_documents([d.text for _, d in part], [d.title for _, d in part])
                self._keep(dict(zip((digest for digest, _ in part), prepared, strict=True)))
                bar.update(len(part))
        self.flush()

    def flush(self) -> None:
        """Write what is not in the store yet. Raises OSError when there is no room."""
        with self._lock:
            if not self._fresh:
                return
            self.store.mkdir(parents=True, exist_ok=True)
            name = f"shard-{hashlib.blake2b(b''.join(self._fresh), digest_size=DIGEST).hexdigest()}"
            with tempfile.TemporaryDirectory(dir=self.store, prefix="new-", ignore_cleanup_errors=True) as fresh:
                Shard.write(Path(fresh), self._names, list(self._fresh), list(self._fresh.values()))
                _rename(Path(fresh), self.store / name)
            self._open(self.store / name)
            self._fresh, self._written = {}, time.monotonic()

    def _find(self, digest: bytes, document: Document) -> PreparedDocument:
        with self._lock:
            if digest in self._places:
                shard, row = self._places[digest]
                return self._shards[shard][row]
            if digest not in self._fresh:
                self._keep({digest: self.pipeline.prepare_document(document.text, document.title)})
            return self._fresh[digest] if digest in self._fresh else self._find(digest, document)

    def _keep(self, prepared: Mapping[bytes, PreparedDocument]) -> None:
        with self._lock:
            self._fresh |= prepared
            if len(self._fresh) >= SHARD or time.monotonic() - self._written > KEPT_FOR:
                self.flush()

    def _open_shards(self) -> None:
        with self._lock:
            for path in sorted(set(self.store.glob("shard-*")) - self._opened):
                self._open(path)

    def _open(self, path: Path) -> None:
        try:
            shard = Shard(path, self._names)
        except (FileNotFoundError, ValueError, EOFError):  # as a power cut leaves it: its documents are prepared again
            shutil.rmtree(path, ignore_errors=True)
            return
        self._places |= {digest: (len(self._shards), row) for row, digest in enumerate(shard.digests)}
        self._shards.append(shard)
        self._opened.add(path)


def _rename(fresh: Path, final: Path) -> None:
    try:
        os.rename(fresh, final)
    except OSError:
        if not final.is_dir():  # another process wrote the same documents first: theirs do
            raise


def _mapped(path: Path) -> NDArray[Any]:
    """A file's array through a memory map; a plain view of it, which is cheaper to slice than numpy's memmap."""
    return np.load(path, mmap_mode="r").view(np.ndarray)


def _parts(items: Sequence[Any], size: int) -> Iterator[Sequence[Any]]:
    return (items[first : first + size] for first in range(0, len(items), size))
