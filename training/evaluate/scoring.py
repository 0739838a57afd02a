"""Scores candidates with a PyTorch model, for dev measurements of a run and as the reference of an export."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from keyblock.packing import Packed
from keyblock.pipeline import Selection
from keyblock.scoring import Marks
from keyblock.text.tokenizer import Tokenizer
from training.model.cross_encoder import CrossEncoder
from training.model.ranker_module import RankerModule

BATCH_TOKENS = 8192


def score(
    model: RankerModule,
    sequences: Sequence[Packed],
    pad_id: int,
    bf16: bool = True,
    batch_tokens: int = BATCH_TOKENS,
    document_type: int = 1,
) -> NDArray[np.float32]:
    """Logits of shape (n_sequences,), in the order of `sequences`, each scored alone; batches have similar lengths."""
    return _batched(model, model.forward, sequences, pad_id, bf16, batch_tokens, document_type)


def _batched(
    model: RankerModule,
    forward: Callable[..., Tensor],
    sequences: Sequence[Packed],
    pad_id: int,
    bf16: bool,
    batch_tokens: int,
    document_type: int,
) -> NDArray[np.float32]:
    """The results of `forward` for every sequence, in eval mode without gradients; the model's mode is restored."""
    device = next(model.parameters()).device
    was_training = model.training
    model.eval()
    rows_of_batches, parts = [], []
    with torch.inference_mode(), torch.autocast(device.type, torch.bfloat16, enabled=bf16):
        for rows in length_batches([len(packed.ids) for packed in sequences], batch_tokens):
            inputs = model.inputs([sequences[row] for row in rows], pad_id, document_type)
            rows_of_batches.append(rows)
            parts.append(forward(*inputs).float().cpu().numpy())
    model.train(was_training)
    if not parts:
        return np.zeros(0, dtype=np.float32)
    values = np.concatenate(parts)
    ordered = np.empty_like(values)
    ordered[np.concatenate(rows_of_batches)] = values
    return ordered


@dataclass
class TorchModel:
    """A PyTorch model as `keyblock.scoring.Model`, in eval mode and without gradients; its own mode is restored.

    Attributes:
        model: scores sequences.
        tokenizer: the run's tokenizer.
        bf16: whether autocast to bf16 is on.
        chooser: scores single blocks for a learned selector in the model's place (BinB2, BeST); None: the model itself (BinB).
    """

    model: RankerModule
    tokenizer: Tokenizer
    bf16: bool = False
    chooser: RankerModule | None = None

    def outputs(self, sequences: Sequence[Packed]) -> NDArray[np.float32]:
        """See `keyblock.scoring.Model`."""
        return self._run(self.model, self.model.outputs, sequences)

    def mark(self, sequences: Sequence[Packed]) -> Marks:
        """See `keyblock.scoring.Marking`."""
        model = self.model
        if not isinstance(model, CrossEncoder) or model.marker is None:
            return Marks(self.outputs(sequences), None)
        longest = max((len(packed.ids) for packed in sequences), default=0)

        def forward(*inputs: Tensor) -> Tensor:
            states, marks = model.marked(*inputs)
            logits = model.scores(states)
            outputs = [logits[:, None], states] if model.combines else [logits[:, None]]
            return torch.cat([*outputs, F.pad(marks, (0, longest - marks.shape[1]))], dim=1)

        found = self._run(model, forward, sequences)
        if not len(found):
            return Marks(found, [])
        outputs, marks = found[:, : found.shape[1] - longest], found[:, found.shape[1] - longest :]
        logits = outputs if model.combines else outputs[:, 0]
        return Marks(logits, [row[: len(packed.ids)] for row, packed in zip(marks, sequences, strict=True)])

    def choose(self, sequences: Sequence[Packed]) -> NDArray[np.float32]:
        """See `keyblock.scoring.Model`."""
        model = self.chooser or self.model
        return self._run(model, model.forward, sequences)

    def combine(self, states: NDArray[np.float32], mask: NDArray[np.bool_]) -> NDArray[np.float32]:
        """See `keyblock.scoring.Model`; in fp32, as the service computes it."""
        device = next(self.model.parameters()).device
        with torch.inference_mode():
            logits = self.model.combine(torch.from_numpy(states).to(device), torch.from_numpy(mask).to(device))
        return np.asarray(logits.float().cpu().numpy())

    def _run(self, model: RankerModule, forward: Callable[..., Tensor], sequences: Sequence[Packed]) -> NDArray[np.float32]:
        document_type = self.tokenizer.template.document_type
        return _batched(model, forward, sequences, self.tokenizer.pad_id, self.bf16, BATCH_TOKENS, document_type)


def empty_last(logits: NDArray[np.float32], selections: Sequence[Selection]) -> NDArray[np.float32]:
    """The logits, shape (documents,), with -inf for a document without a block, since the service ranks it last."""
    empty = np.asarray([not len(selection.scores) for selection in selections], dtype=np.bool_)
    return np.where(empty, np.float32(-np.inf), logits)


def length_batches(lengths: Sequence[int], batch_tokens: int) -> Iterator[list[int]]:
    """Batches of row numbers, longest rows first: rows x longest stays under `batch_tokens` (but one row is always allowed)."""
    order = sorted(range(len(lengths)), key=lambda row: -lengths[row])
    while order:
        rows = max(1, batch_tokens // lengths[order[0]])
        yield order[:rows]
        order = order[rows:]
