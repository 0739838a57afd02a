"""A sentence encoder."""

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from training.model.devices import fastest_device

BATCH_TOKENS = 4096  # tokens of a batch, padding included
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
