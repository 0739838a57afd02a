"""A sentence encoder: the teacher of the static token vectors."""

import hashlib
import json
import os
from collections.abc import Sequence
from pathlib import Path
from zipfile import BadZipFile

import numpy as np
import tokenizers
import torch
from numpy.typing import NDArray
from torch import Tensor
from tqdm import tqdm

from training.model.devices import fastest_device

BATCH_TOKENS = 4096  # tokens of a batch, padding included
SAVED_EVERY = 512  # texts: a kill loses no more
POOLING = ("1_Pooling", "config.json")  # sentence-transformers' file that says how a sentence's vector is computed


class SentenceEncoder:
    """A transformer whose sentence vector is the mean of its token states, of length 1, as sentence-transformers' models make it.

    Args:
        name: a folder of sentence-transformers or transformers, or a hub name.
        longest: the largest number of tokens read of a text, special tokens included.
        attention: transformers' attention implementation; "eager" can be traced.

    Raises ValueError for a folder with another pooling.
    """

    def __init__(self, name: str, longest: int = 128, attention: str = "sdpa") -> None:
        from transformers import AutoModel, AutoTokenizer

        check_pooling(Path(name))
        self.name, self.longest, self.device = name, longest, fastest_device()
        self.tokenizer = AutoTokenizer.from_pretrained(name).backend_tokenizer
        self.tokenizer.enable_truncation(longest)
        self.tokenizer.no_padding()
        self.model = AutoModel.from_pretrained(name, attn_implementation=attention).eval().to(self.device)

    @property
    def width(self) -> int:
        """Dimensions of a vector."""
        return int(self.model.config.hidden_size)

    def rows(self, texts: Sequence[str]) -> list[list[int]]:
        """The token ids of each text, special tokens included."""
        return [encoding.ids for encoding in self.tokenizer.encode_batch(list(texts))]

    def token_rows(self, tokenizer: tokenizers.Tokenizer) -> list[list[int]]:
        """Token ids for each token of another vocabulary: the same token between special tokens, or the encoding of its text."""
        first, *_, last = self.tokenizer.encode("a").ids
        names = (tokenizer.id_to_token(i) for i in range(1 + max(tokenizer.get_vocab().values())))
        own = [None if name is None else self.tokenizer.token_to_id(name) for name in names]
        return [[first, i, last] if i is not None else self.tokenizer.encode(tokenizer.decode([t])).ids for t, i in enumerate(own)]

    def encode(self, rows: Sequence[Sequence[int]]) -> NDArray[np.float32]:
        """The vectors of rows of token ids, special tokens included, with at least one id each; shape (n_rows, width)."""
        vectors = np.zeros((len(rows), self.width), np.float32)
        for batch in _batches([len(row) for row in rows]):
            vectors[batch] = self._encode([rows[i] for i in batch]).cpu().numpy()
        return vectors

    @torch.inference_mode()
    def _encode(self, rows: Sequence[Sequence[int]]) -> Tensor:
        """As `encode`, in one batch; states (B, T, H) are averaged over their T tokens."""
        lengths = torch.tensor([len(row) for row in rows])
        mask = (torch.arange(int(lengths.max())) < lengths[:, None]).to(self.device)
        ids = torch.nn.utils.rnn.pad_sequence([torch.tensor(row) for row in rows], batch_first=True).to(self.device)
        states = self.model(input_ids=ids, attention_mask=mask.long()).last_hidden_state
        return torch.nn.functional.normalize((states * mask[:, :, None]).sum(1), dim=1)

    def encode_kept(self, rows: Sequence[Sequence[int]], directory: Path) -> NDArray[np.float32]:
        """As `encode`, but each row's vector is kept in `directory`, under the model's digest, and read again.

        Vectors encoded before an interruption are kept, too. Raises OSError when the disk is full.
        """
        folder = directory / self._digest()
        folder.mkdir(parents=True, exist_ok=True)
        digests = [_row_digest(row) for row in rows]
        kept = _read_kept(folder)
        missing = sorted({d: i for i, d in enumerate(digests) if d not in kept}.items(), key=lambda item: item[1])
        with tqdm(total=len(missing), desc="teacher", unit="text", disable=not missing) as bar:
            for first in range(0, len(missing), SAVED_EVERY):
                part = missing[first : first + SAVED_EVERY]
                vectors = self.encode([rows[i] for _, i in part]).astype(np.float16)
                _keep(folder, [digest for digest, _ in part], vectors)
                kept |= zip((digest for digest, _ in part), vectors, strict=True)
                bar.update(len(part))
        return np.stack([kept[digest] for digest in digests]).astype(np.float32) if rows else np.zeros((0, self.width), np.float32)

    def _digest(self) -> str:
        weights = hashlib.blake2b(digest_size=16)
        for name, weight in sorted(self.model.state_dict().items()):
            weights.update(name.encode() + weight.cpu().numpy().tobytes())
        return weights.hexdigest()


def _row_digest(row: Sequence[int]) -> bytes:
    return hashlib.blake2b(np.asarray(row, np.int32).tobytes(), digest_size=16).digest()


def _read_kept(folder: Path) -> dict[bytes, NDArray[np.float16]]:
    """The vectors kept in a folder, by the digest of their row. A damaged file is removed, so that its rows are encoded again."""
    kept: dict[bytes, NDArray[np.float16]] = {}
    for file in sorted(folder.glob("*.npz")):
        try:
            with file.open("rb") as stream, np.load(stream) as shard:
                kept |= zip(map(bytes, shard["digests"]), shard["vectors"], strict=True)
        except (ValueError, KeyError, EOFError, OSError, BadZipFile):
            file.unlink(missing_ok=True)
    return kept


def _keep(folder: Path, digests: Sequence[bytes], vectors: NDArray[np.float16]) -> None:
    """Write vectors, shape (n, width), to a new file, completely or not at all."""
    name = hashlib.blake2b(b"".join(digests), digest_size=16).hexdigest()
    partial = folder / f"{name}.{os.getpid()}.partial"
    with partial.open("wb") as stream:
        np.savez(stream, digests=np.frombuffer(b"".join(digests), np.uint8).reshape(-1, 16), vectors=vectors)
    partial.replace(folder / f"{name}.npz")


def _batches(lengths: Sequence[int]) -> list[NDArray[np.intp]]:
    """Row numbers in batches of similar length and at most BATCH_TOKENS tokens; a longer row is a batch alone."""
    order, batches, first = np.argsort(lengths, kind="stable"), [], 0
    while first < len(order):
        last = first + 1
        while last < len(order) and (last + 1 - first) * lengths[order[last]] <= BATCH_TOKENS:
            last += 1
        batches.append(order[first:last])
        first = last
    return batches


def check_pooling(folder: Path) -> None:
    """Raise ValueError if sentence-transformers' folder says that a sentence's vector is not the mean of its token states."""
    file = folder.joinpath(*POOLING)
    if not file.exists():
        return
    modes = [key for key, value in json.loads(file.read_text(encoding="utf-8")).items() if key.startswith("pooling_mode") and value]
    if modes != ["pooling_mode_mean_tokens"]:
        raise ValueError(f"{folder}: pools by {', '.join(modes) or 'nothing'}; only the mean of token states is built in")
