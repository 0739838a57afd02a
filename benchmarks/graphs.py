"""Compares encoders' graphs: the time of each, measured in turns, and the distance of its logits from the first graph's.

    python -m benchmarks.graphs models/default/model.onnx build/other.onnx [--threads 1] [--turns 15]

Prints medians of the process's CPU time. All graphs get the same random tokens, with some padding.
"""

import argparse
import statistics
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from keyblock.runtime.providers import ProviderError
from keyblock.runtime.session import Session
from training.evaluation.tables import markdown

SHAPES = ((8, 128), (4, 256), (2, 512))
WAYS = (("openvino", "bf16"), ("openvino", "fp32"), ("cpu", "fp32"))


def main(options: argparse.Namespace) -> None:
    """Measure with every provider and precision that is installed, and print a table."""
    rows = [["provider", "rows x tokens", *(f"{path}, ms" for path in options.graphs), "first over last", "largest difference"]]
    for provider, precision in WAYS:
        try:
            sessions = [Session(path, provider, options.threads, precision) for path in options.graphs]
        except ProviderError as error:
            print(f"{provider} in {precision} is left out: {error}")
            continue
        rows += [
            [f"{provider} {precision}", f"{n} x {length}", *compared(sessions, n, length, options.turns)] for n, length in SHAPES
        ]
    print(markdown(rows))


def compared(sessions: Sequence[Session], rows: int, length: int, turns: int) -> list[str]:
    """Milliseconds of each, the ratio of the first to the last, and the largest difference of a logit from the first session's."""
    inputs = batch(rows, length)
    logits = [session.score(*inputs) for session in sessions]
    times: list[list[float]] = [[] for _ in sessions]
    for _ in range(turns):
        for session, own in zip(sessions, times, strict=True):
            started = time.process_time()
            session.score(*inputs)
            own.append((time.process_time() - started) * 1000)
    medians = [statistics.median(own) for own in times]
    furthest = max(float(np.abs(other - logits[0]).max()) for other in logits)
    return [*(f"{median:.1f}" for median in medians), f"{medians[0] / medians[-1]:.3f}", f"{furthest:.1e}"]


def batch(rows: int, length: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Ids, types and mask, of shape (rows, length); the first row is padded."""
    ids = np.random.default_rng(0).integers(1000, 20_000, (rows, length))
    mask = np.ones_like(ids)
    mask[0, length - length // 8 :] = 0
    types = np.broadcast_to(np.arange(length) >= length // 8, ids.shape).astype(np.int64)
    return ids * mask, types * mask, mask


if __name__ == "__main__":
    parser = argparse.ArgumentParser("benchmarks.graphs", description="Time encoders' graphs beside each other.")
    parser.add_argument("graphs", type=Path, nargs="+", help="ONNX files")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--turns", type=int, default=15)
    main(parser.parse_args())
