"""How texts become vectors, so that a block can be found by its meaning even if it shares no word with the query.

Each encoder is one member of a registry. Its description is part of the pipeline's; `open` reads the file that it needs, which a
training run and a bundle hold under the encoder's own file name.
"""

import functools
import hashlib
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Self
from zipfile import BadZipFile

import numpy as np
from numpy.lib.npyio import NpzFile
from numpy.typing import NDArray
from pydantic import Field

from keyblock import native
from keyblock.prepared import BLOCKS_AT_ONCE, QUANTUM, Similar
from keyblock.registry import Component, Registry
from keyblock.text.tokenizer import Tokenizer

LARGEST_SCALE = 1e6  # of a token: sums over thousands of tokens stay finite
SIMILAR_TOKENS = 32  # the most tokens of a query that are compared: limits the work that a pasted page makes
UNREADABLE = (  # the errors that numpy and zipfile raise for damaged files and files that are no archives of arrays
    *(OSError, ValueError, EOFError, KeyError, BadZipFile, zlib.error),
    *(RuntimeError, MemoryError),  # parts that are encrypted, compressed in an unknown way, or larger than memory
)


class Texts(NamedTuple):
    """Ranges of a text's tokens, each of which gets a vector.

    Attributes:
        token_ids: shape (n_tokens,).
        bounds: shape (n, 2); text i is tokens ``bounds[i, 0]:bounds[i, 1]``; they may overlap.
    """

    token_ids: NDArray[np.int32]
    bounds: NDArray[np.int32]


class Encoder(ABC):
    """An opened encoder. Safe to use from several threads.

    Attributes:
        dimensions: length of a vector.
        vocabulary_size: token ids must be below it.
        fingerprint: a digest of everything that decides its vectors.
    """

    dimensions: int
    vocabulary_size: int
    fingerprint: bytes

    @abstractmethod
    def encode(self, several: Sequence[Texts], pause: Callable[[int], object] = int) -> list[NDArray[np.float32]]:
        """Vectors of length 1, or 0 for a text without a known token, shape (n, dimensions) for each of `several`.

        Args:
            several: texts.
            pause: is called with 0 between steps of bounded length; may raise to end the work.
        """

    def quantized(self, several: Sequence[Texts], pause: Callable[[int], object] = int) -> list[NDArray[np.int8]]:
        """The vectors of `encode` in the form that documents keep; see `quantized`."""
        return [quantized(vectors) for vectors in self.encode(several, pause)]

    def similar(self, token_ids: NDArray[np.int32]) -> Similar:
        """How near any token is to a query's tokens: cosines, none below 0, times the query token's share of the query's weight.

        There is a column for each distinct query token with a vector, but only for the SIMILAR_TOKENS heaviest.

        Args:
            token_ids: shape (n_tokens,), the query's tokens.

        Raises ValueError for an encoder whose vectors are of whole texts.
        """
        raise ValueError("this encoder has vectors of texts, and none of single tokens")


class TextEncoder(Component):
    """Describes an encoder; see `open`."""

    carried_as: ClassVar[str] = ""
    of_tokens: ClassVar[bool] = False  # whether single tokens have vectors: see `Encoder.similar`
    file: str = Field(description="the encoder's file; in a recipe a path, in a run or a bundle the name of a file in it")

    def open(self, path: Path) -> Encoder:
        """Read the encoder from its file. Raises ValueError, in one line that names the file, if it holds no encoder."""
        raise TypeError(f"{type(self).__name__} does not say how it is read")

    def carried(self) -> Self:
        """The description for a run or a bundle, which holds the file under the encoder's own file name."""
        return self.model_copy(update={"file": self.carried_as})


ENCODERS: Registry[TextEncoder] = Registry("encoder")


def open_encoder(description: Mapping[str, Any] | None, folder: Path, tokenizer: Tokenizer) -> Encoder | None:
    """See `open_described`; None for no description."""
    return None if description is None else open_described(description, folder, tokenizer)


def open_described(description: Mapping[str, Any], folder: Path, tokenizer: Tokenizer) -> Encoder:
    """The encoder that a description names, with its file in `folder`.

    Raises ValueError if the file holds no encoder, or one of another tokenizer.
    """
    described = ENCODERS.create(description)
    path = folder / described.file
    encoder = described.open(path)
    if encoder.vocabulary_size != tokenizer.vocabulary_size:
        raise ValueError(
            f"{path}: is of a vocabulary of {encoder.vocabulary_size} tokens, and the tokenizer has {tokenizer.vocabulary_size}: "
            "they belong to different models"
        )
    return encoder


def vector_of(token_ids: NDArray[np.int32], encoder: Encoder) -> NDArray[np.float32]:
    """The vector of one text, shape (dimensions,), of length 1, or 0."""
    (vectors,) = encoder.encode([Texts(token_ids, np.asarray([[0, len(token_ids)]], np.int32))])
    return np.asarray(vectors[0])


def quantized(vectors: NDArray[np.float32]) -> NDArray[np.int8]:
    """Vectors of at most length 1 as integers from -QUANTUM to QUANTUM, in the same shape."""
    return np.rint(vectors * QUANTUM).astype(np.int8)


def unit(vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    """The vectors, shape (n, dimensions), scaled to length 1; a zero vector stays 0."""
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.asarray(np.divide(vectors, lengths, out=np.zeros_like(vectors), where=lengths > np.finfo(np.float32).tiny))


@ENCODERS.register("static")
class Static(TextEncoder):
    """A table of token vectors: a text's vector is the sum of its tokens' vectors, in any order (as in model2vec).

    The file is a numpy archive: `table`, int8 of shape (vocabulary, dimensions), and `scales`, float32 of shape (vocabulary,), the
    factors of the rows; they include the token's weight, so that words of little meaning count little.
    """

    carried_as: ClassVar[str] = "token_vectors.npz"
    of_tokens: ClassVar[bool] = True
    file: str = Field(
        "token_vectors.npz", description="the table; in a recipe a path, in a run or a bundle the name of a file in it"
    )

    def open(self, path: Path) -> "TokenTable":
        """See TextEncoder."""
        return TokenTable.read(path)


class TokenTable(Encoder):
    """Token vectors.

    Args:
        table: shape (vocabulary, dimensions).
        scales: shape (vocabulary,), the factors of the rows.
    """

    def __init__(self, table: NDArray[np.int8], scales: NDArray[np.float32]) -> None:
        self.table, self.scales = table, scales
        self.vocabulary_size, self.dimensions = table.shape
        self.fingerprint = hashlib.sha256(repr(table.shape).encode() + table.tobytes() + scales.tobytes()).digest()

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read a table. Raises ValueError, in one line, if the file holds none."""
        try:
            with path.open("rb") as stream:
                archive = np.load(stream, allow_pickle=False)
                if not isinstance(archive, NpzFile):
                    raise ValueError("one array, and no archive of them")
                table, scales = archive["table"], archive["scales"]
                if not (isinstance(table, np.ndarray) and isinstance(scales, np.ndarray)):
                    raise ValueError("an archive of files that are no arrays")
        except UNREADABLE as error:
            raise ValueError(f"{path}: no table of token vectors ({' '.join(str(error).split())[:200]})") from None
        if table.dtype != np.int8 or table.ndim != 2 or 0 in table.shape:
            raise ValueError(f"{path}: 'table' must be int8 of shape (vocabulary, dimensions), not {table.dtype} {table.shape}")
        if scales.dtype != np.float32 or scales.shape != table.shape[:1]:
            raise ValueError(f"{path}: 'scales' must be float32 of shape {table.shape[:1]}, not {scales.dtype} {scales.shape}")
        if not (np.abs(scales) <= LARGEST_SCALE).all():
            raise ValueError(f"{path}: 'scales' must hold numbers from {-LARGEST_SCALE:g} to {LARGEST_SCALE:g}")
        return cls(table, scales)

    def write(self, path: Path) -> None:
        """Write the table to `path`, which must end in ``.npz``."""
        np.savez_compressed(path, table=self.table, scales=self.scales)

    def encode(self, several: Sequence[Texts], pause: Callable[[int], object] = int) -> list[NDArray[np.float32]]:
        """See Encoder."""
        found = []
        for texts in several:
            found.append(unit(self._sums(texts)))
            pause(0)
        return found

    def quantized(self, several: Sequence[Texts], pause: Callable[[int], object] = int) -> list[NDArray[np.int8]]:
        """See Encoder; the compiled part may round differently, by 1."""
        if self.compiled is None:
            return super().quantized(several, pause)
        found = []
        for texts in several:
            found.append(self.compiled.encode(texts.token_ids, texts.bounds))
            pause(0)
        return found

    @functools.cached_property
    def compiled(self) -> Any:
        """The table for `keyblock_native`; None without that."""
        return native.core and native.core.Encoder(self.table, self.scales, self.to_length_1)

    def similar(self, token_ids: NDArray[np.int32]) -> Similar:
        """See Encoder."""
        ids = np.unique(token_ids)
        weights = np.linalg.norm(self.table[ids].astype(np.float32), axis=1) * np.abs(self.scales[ids])
        heaviest = np.argsort(-weights, kind="stable")[:SIMILAR_TOKENS]
        heaviest = np.sort(heaviest[weights[heaviest] > 0])
        shares = weights[heaviest] / (weights[heaviest].sum() or 1.0)
        ids = ids[heaviest]
        return SimilarTokens(self, ids, self.to_length_1[ids] * shares)

    @functools.cached_property
    def to_length_1(self) -> NDArray[np.float32]:
        """Factors that scale each row to length 1, with the sign of its scale; 0 for rows without weight. Shape (vocabulary,)."""
        lengths = np.linalg.norm(self.table.astype(np.float32), axis=1)
        return np.asarray(np.divide(np.sign(self.scales), lengths, out=np.zeros_like(lengths), where=lengths > 0))

    def _sums(self, texts: Texts) -> NDArray[np.float32]:
        sums = np.zeros((len(texts.bounds), self.dimensions), np.float32)
        for first in range(0, len(sums), BLOCKS_AT_ONCE):
            part = texts.bounds[first : first + BLOCKS_AT_ONCE]
            start = int(part[0, 0])
            ids = texts.token_ids[start : int(part[:, 1].max())]
            rows, scales = self.table.take(ids, axis=0).astype(np.float32), self.scales.take(ids)
            for i, (begin, end) in enumerate((part - start).tolist(), first):
                np.matmul(scales[begin:end], rows[begin:end], out=sums[i])
        return sums


class SimilarTokens:
    """See `Similar`: similarities from a table, computed for a token on first use.

    Products of rows are sums of integers, exact in any order, so that the compiled part gets the same bits.

    Args:
        encoder: the table.
        ids: shape (n,), the query's tokens.
        weights: shape (n,), their weights times the factors that scale their rows to length 1.
    """

    def __init__(self, encoder: TokenTable, ids: NDArray[np.int32], weights: NDArray[np.float32]) -> None:
        self._encoder, self._ids, self._weights = encoder, ids, weights

    def of(self, token_ids: NDArray[np.int32]) -> NDArray[np.float32]:
        """See Similar."""
        rows, known = self._rows
        token_ids = np.minimum(token_ids, len(rows) - 1)
        new = np.unique(token_ids[~known[token_ids]])
        products = self._encoder.table[new].astype(np.float64) @ self._query
        rows[new] = np.maximum(products.astype(np.float32) * self._encoder.to_length_1[new, None] * self._weights, 0)
        known[new] = True  # only once the row is there: other threads read it
        return np.asarray(rows[token_ids])

    @functools.cached_property
    def compiled(self) -> Any:
        """See Similar."""
        return native.core.Similar(self._encoder.compiled, self._ids, self._weights)

    @functools.cached_property
    def _query(self) -> NDArray[np.float64]:
        """The rows of the query's tokens, shape (dimensions, n)."""
        return self._encoder.table[self._ids].T.astype(np.float64)

    @functools.cached_property
    def _rows(self) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
        """The rows computed so far, shape (vocabulary, n), and which tokens have one, shape (vocabulary,)."""
        n = self._encoder.vocabulary_size
        return np.zeros((n, len(self._ids)), np.float32), np.zeros(n, np.bool_)
