"""A sentence encoder that makes the vectors: a transformer reads each block, which finds paraphrases best.

Its model has to read the whole document. Documents stored by id pay for that once; take `static` for texts that come with each
request.
"""

import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from keyblock.encoders import ENCODERS, Encoder, TextEncoder, Texts, unit

FILE = "sentence_encoder.onnx"
BATCH_TOKENS = 2048  # of a batch, padding included: bounds a step's memory, and work can stop between two batches
KEYS = ("vocabulary_size", "first", "last", "longest")  # in the graph's metadata, see SentenceGraph
GPU, CPU = "CUDAExecutionProvider", "CPUExecutionProvider"


@ENCODERS.register("sentence")
class Sentence(TextEncoder):
    """A sentence encoder with the ranker's vocabulary; `keyblock-encoder` writes it."""

    carried_as: ClassVar[str] = FILE
    file: str = Field(FILE, description="the graph; in a recipe a path, in a run or a bundle the name of a file in it")

    def open(self, path: Path) -> "SentenceGraph":
        """See TextEncoder."""
        return SentenceGraph(path)


class SentenceGraph(Encoder):
    """An ONNX graph: input_ids and attention_mask, int64 of shape (batch, length), to vectors of shape (batch, dimensions).

    Its metadata say how to read a text: `vocabulary_size`, the special tokens `first` and `last` around it, and the most tokens of
    a sequence, `longest`. Each call computes in one thread, since a service prepares documents in parallel. Each document's vectors
    are computed separately, so they do not depend on the documents prepared with it.

    Raises ValueError, in one line, for a file that holds no such graph.
    """

    def __init__(self, path: Path) -> None:
        self._session = _open(path)
        described = self._session.get_modelmeta().custom_metadata_map
        inputs, outputs = ([one.name for one in given] for given in (self._session.get_inputs(), self._session.get_outputs()))
        if inputs != ["input_ids", "attention_mask"] or len(outputs) != 1 or not all(described.get(k, "").isdigit() for k in KEYS):
            raise ValueError(f"{path}: no sentence encoder of keyblock-encoder (inputs {inputs}, outputs {outputs})")
        self.vocabulary_size, self._first, self._last, self._longest = (int(described[key]) for key in KEYS)
        self.fingerprint = hashlib.sha256(path.read_bytes()).digest()
        probe = self._run([np.asarray([self._first], np.int64)])
        if probe.ndim != 2:
            raise ValueError(f"{path}: gives outputs of shape {probe.shape} for one text, where (1, dimensions) is due")
        self.dimensions = probe.shape[1]

    def encode(self, several: Sequence[Texts], pause: Callable[[int], object] = int) -> list[NDArray[np.float32]]:
        """See Encoder. The encoder reads the first tokens of a text that is too long for it."""
        return [self._document(texts, pause) for texts in several]

    def _document(self, texts: Texts, pause: Callable[[int], object]) -> NDArray[np.float32]:
        room, vectors = self._longest - 2, np.zeros((len(texts.bounds), self.dimensions), np.float32)
        rows = [texts.token_ids[start : min(end, start + room)] for start, end in texts.bounds.tolist()]
        for batch in _batches([len(row) for row in rows]):
            vectors[batch] = unit(self._run([np.concatenate([[self._first], rows[i], [self._last]]) for i in batch]))
            pause(0)
        return vectors

    def _run(self, rows: Sequence[NDArray[np.int64]]) -> NDArray[np.float32]:
        ids = np.zeros((len(rows), max(map(len, rows))), np.int64)
        mask = np.zeros_like(ids)
        for number, row in enumerate(rows):
            ids[number, : len(row)], mask[number, : len(row)] = row, 1
        (vectors,) = self._session.run(None, {"input_ids": ids, "attention_mask": mask})
        return np.asarray(vectors, np.float32)


def _batches(lengths: Sequence[int]) -> list[list[int]]:
    """Numbers of the texts that have tokens, in batches of similar length and at most BATCH_TOKENS, padding included."""
    order = sorted((number for number, length in enumerate(lengths) if length), key=lambda number: -lengths[number])
    batches: list[list[int]] = []
    while order:
        count = max(1, BATCH_TOKENS // (lengths[order[0]] + 2))
        batches.append(order[:count])
        order = order[count:]
    return batches


def _open(path: Path) -> Any:
    """An ONNX Runtime session on a GPU if the runtime has one, else on the CPU. Raises ValueError."""
    import onnxruntime  # late: serving a table of token vectors needs no ONNX Runtime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 4
    providers = [name for name in (GPU, CPU) if name in onnxruntime.get_available_providers()]
    try:
        return onnxruntime.InferenceSession(str(path), options, providers=providers)
    except Exception as error:  # ONNX Runtime raises a class of its own for each status code
        raise ValueError(f"{path}: no graph that can be read ({' '.join(str(error).split())[:200]})") from None
