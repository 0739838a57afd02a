"""How fast a bundle's graphs are on this machine."""

import platform
import time
from typing import Any

import numpy as np

from keyblock.packing import Packed
from keyblock.runtime.batching import TOKEN_CAP, bucket
from keyblock.runtime.model import GraphModel

RUNS = 3  # the best run counts: a busy machine is sometimes slower
MOST_ROWS = 8  # on a CPU, more rows are no faster for each token


def measured_pace(model: GraphModel, length: int) -> dict[str, Any]:
    """How many sequences of `length` tokens the graphs score in a second, in batches of the largest shape up to MOST_ROWS rows."""
    rows = max(1, min(MOST_ROWS, TOKEN_CAP // bucket(length)))
    ids = np.arange(length, dtype=np.int32) % model.tokenizer.vocabulary_size
    sequences = [Packed(ids, 1, np.zeros(1, np.intp))] * rows
    model.outputs(sequences)
    best = min(_seconds(model, sequences) for _ in range(RUNS))
    choice = model.session.choice
    return {
        "sequences_per_second": round(rows / best, 2),
        "tokens": length,
        "provider": choice.provider.value,
        "precision": choice.precision.value,
        "threads": model.session.threads,
        "machine": platform.processor() or platform.machine(),
    }


def _seconds(model: GraphModel, sequences: list[Packed]) -> float:
    started = time.perf_counter()
    model.outputs(sequences)
    return time.perf_counter() - started
