"""Scores real sequences of the embedded bundle in other arithmetic: the change of logits and of rankings."""

import time
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from benchmarks.gpu.bench import Bench
from benchmarks.gpu.engines import Batch, Engine, Way, open_session
from benchmarks.gpu.graphs import EMBEDDED
from benchmarks.gpu.record import Row
from benchmarks.gpu.sequences import Sequences
from keyblock.bundle import GRAPH_FILE, load_bundle
from keyblock.runtime.batching import Scorer, score_all
from keyblock.runtime.providers import Provider
from keyblock.runtime.session import Session, one_line

SEQUENCES_FILE = "sequences.npz"
GPU_WAYS = (
    Way("CUDA fp16, without padding", "fp16", Provider.CUDA, "unpadded"),
    Way("CUDA fp16, padded", "fp16", Provider.CUDA, "fp16"),
    Way("CUDA fp16, padded, bound", "fp16", Provider.CUDA, "fp16", bound=True),
    Way("CUDA bf16, padded", "bf16", Provider.CUDA, "bf16"),
    Way("CUDA fp32 (TF32)", "fp32", Provider.CUDA, "fp32"),
    Way("TensorRT fp16", "fp16", Provider.TENSORRT, "plain"),
)
CPU_WAYS = (
    Way("CPU fp32, its graph filled again", "fp32", Provider.CPU, "fp32"),
    Way("CPU fp32, bound", "fp32", Provider.CPU, "fp32", bound=True),
    Way("CPU fp32, standard operators", "fp32", Provider.CPU, "plain"),
    Way("CPU bf16", "bf16", Provider.CPU, "bf16"),
)


class Bound:
    """An engine with the interface that `score_all` needs."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def score(self, *batch: NDArray[np.int64]) -> NDArray[np.float32]:
        """See `keyblock.runtime.batching.Scorer`."""
        ids, types, mask = batch
        given: Batch = (ids, types, mask)
        work = self._engine(given)
        work.start()
        return work.answer().copy()


def measure(bench: Bench) -> Iterator[Row]:
    """A row for each way. The reference is the bundle's own graph in fp32 on the CPU."""
    sequences = Sequences.load(bench.prepared / SEQUENCES_FILE).first(bench.sizes.sequences)
    tokenizer = load_bundle(bench.bundle).tokenizer
    queries = np.asarray(sequences.queries)

    def logits(scorer: Scorer) -> NDArray[np.float32]:
        return score_all(scorer, sequences.packed, tokenizer.pad_id, tokenizer.template.document_type)

    started = time.perf_counter()
    reference = logits(Session(bench.bundle / GRAPH_FILE, Provider.CPU))
    common = {"table": "parity", "sequences": len(queries), "queries": len(set(sequences.queries))}
    yield common | {"way": "CPU fp32", "seconds": time.perf_counter() - started, **compared(reference, reference, queries)}
    for way in GPU_WAYS if bench.on_gpu else CPU_WAYS:
        row = common | {"way": way.title}
        try:
            found = logits(Bound(open_session(bench, EMBEDDED, way)))
        except Exception as error:  # each library has its own exceptions
            yield row | {"refused": one_line(error)}
            continue
        yield row | compared(reference, found, queries)


def compared(reference: NDArray[np.float32], found: NDArray[np.float32], queries: NDArray[np.int64]) -> Row:
    """The differences of logits, and the shares of queries and pairs of documents whose order changes."""
    apart = np.abs(found - reference)
    groups = [np.flatnonzero(queries == query) for query in np.unique(queries)]
    firsts = [bool(reference[group].argmax() == found[group].argmax()) for group in groups]
    pairs = [swapped(reference[group], found[group]) for group in groups]
    counts = np.asarray(pairs).sum(0)
    return {
        "largest": float(apart.max()),
        "mean": float(apart.mean()),
        "first_kept": sum(firsts) / len(firsts),
        "swapped": float(counts[0] / max(counts[1], 1)),
    }


def swapped(reference: NDArray[np.float32], found: NDArray[np.float32]) -> tuple[int, int]:
    """The number of pairs of documents in reversed order, and of all pairs without a tie in the reference."""
    upper = np.triu_indices(len(reference), 1)
    before, after = (np.sign(values[:, None] - values[None, :])[upper] for values in (reference, found))
    return int((before * after < 0).sum()), int((before != 0).sum())
