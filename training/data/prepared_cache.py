"""Keeps prepared documents on disk, so that no run tokenizes and segments the same text twice.

Each way of preparing documents has a store, one directory of shards. A shard is written once and renamed into place whole. It holds
``digests.npy``, which names its documents by their content, and for every field of PreparedDocument the documents' arrays end to
end (``FIELD.npy``, read through a memory map) with their bounds (``FIELD.bounds.npy``). A run that needs other documents adds a
shard; two processes that need the same documents at once write the same shard. A store may be removed at any time.
"""

import hashlib
import os
import shutil
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from keyblock.fingerprint import preparation_fingerprint
from keyblock.pipeline import Pipeline
from keyblock.prepared import PreparedDocument, content_digest
from training.data.types import Document

AT_ONCE = 32  # documents that are tokenized together
SHARD, KEPT_FOR = 1024, 60.0  # documents, or seconds since the last shard, after which a shard is written: a kill loses no more
DIGEST = 16  # bytes
FIELDS = [field.name for field in fields(PreparedDocument)]


def default_directory() -> Path:
    """The cache directory: KEYBLOCK_CACHE, else ~/.cache/keyblock."""
    return Path(os.environ.get("KEYBLOCK_CACHE") or Path.home() / ".cache" / "keyblock")


class Shard:
    """A directory of prepared documents.

    Args:
        directory: the shard's directory.
        names: names of the fields that its documents have.

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
        directory: the directory of all stores; created with the first shard.
        pipeline: prepares the documents.
        tokenizer_file: the file of the pipeline's tokenizer.
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
        digest = content_digest(document.title, document.text)
        with self._lock:
            if digest not in self._places and digest not in self._fresh:
                self._keep({digest: self.pipeline.prepare_document(document.text, document.title)})
            if digest in self._fresh:
                return self._fresh[digest]
            shard, row = self._places[digest]
            return self._shards[shard][row]

    def fill(self, documents: Sequence[Document]) -> None:
        """Prepare and keep the documents that the store lacks, in batches, with a progress bar. Raises OSError like `prepare`."""
        self._open_shards()  # another process may have filled it meanwhile
        known = self._places.keys() | self._fresh.keys()
        found = ((content_digest(d.title, d.text), d) for d in documents)
        missing = list({digest: d for digest, d in found if digest not in known}.items())
        with tqdm(total=len(missing), desc="prepare", unit="doc", dynamic_ncols=True, disable=not missing) as bar:
            for first in range(0, len(missing), AT_ONCE):
                part = missing[first : first + AT_ONCE]
                prepared = self.pipeline.prepare_documents([d.text for _, d in part], [d.title for _, d in part])
                self._keep(dict(zip((digest for digest, _ in part), prepared, strict=True)))
                bar.update(len(part))
        self.flush()

    def flush(self) -> None:
        """Write the documents that are not in the store yet. Raises OSError when the disk is full."""
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
        except (FileNotFoundError, ValueError, EOFError):  # damaged by a power cut: its documents are prepared again
            shutil.rmtree(path, ignore_errors=True)
            return
        self._places |= {digest: (len(self._shards), row) for row, digest in enumerate(shard.digests)}
        self._shards.append(shard)
        self._opened.add(path)


def _rename(fresh: Path, final: Path) -> None:
    try:
        os.rename(fresh, final)
    except OSError:
        if not final.is_dir():  # else another process has written the same shard
            raise


def _mapped(path: Path) -> NDArray[Any]:
    """A file's array through a memory map, as a plain array, which is cheaper to slice than numpy's memmap."""
    return np.load(path, mmap_mode="r").view(np.ndarray)
