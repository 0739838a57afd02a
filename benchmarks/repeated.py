"""The time that the cache of scores saves for repeated requests, and that it costs requests that are never repeated.

    python -m benchmarks.repeated [--documents 100] [--words 2000] [--rounds 7] [--threads N]

Sends new documents to a service of the embedded bundle, and then the same again. Then a full cache looks up and keeps the scores of
as many new sequences, as the service does on its event loop: this is the whole cost for a request that never hits. Prints medians
and ratios.
"""

import argparse
import statistics
import tempfile
import time
from pathlib import Path
from typing import cast

import numpy as np

from benchmarks.performance.service import Service
from benchmarks.performance.texts import invented
from keyblock.bundle import TOKENIZER_FILE, load_bundle
from keyblock.packing import Packed
from keyblock.runtime.batching import Scorer
from keyblock.runtime.cpus import default_threads
from service.engine.encoder import Encoder
from service.engine.jobs import Job
from service.engine.score_cache import ENTRY_BYTES, ScoreCache
from service.pace import Pace
from service.settings import DEFAULT_BUNDLE, Settings
from service.telemetry.metrics import Metrics

ENTRIES = 20_000  # entries of the full cache
TOKENS = 128
TIMES = 300


def main(options: argparse.Namespace) -> None:
    """Measure both and print them."""
    first, again = asked_twice(options)
    cost = statistics.median(never_hit(options.documents))
    print(f"{options.documents} documents of {options.words:,} words, {options.threads} threads, medians of {options.rounds}:")
    print(f"first {1e3 * first:.1f} ms, again {1e3 * again:.1f} ms: 1 / {first / again:.1f}")
    print(
        f"the cache takes {1e6 * cost:.0f} us of a request that never hits, {1e6 * cost / options.documents:.2f} a sequence:",
        end=" ",
    )
    print(f"{100 * cost / first:.3f}% of it")


def asked_twice(options: argparse.Namespace) -> tuple[float, float]:
    """Median seconds of a request with new documents, and of the same request repeated."""
    source = invented(DEFAULT_BUNDLE / TOKENIZER_FILE)
    room = Settings.model_fields["score_cache_bytes"].default
    seconds: list[tuple[float, float]] = []
    with (
        tempfile.TemporaryDirectory() as folder,
        Service(options.threads, Path(folder) / "log", bundle=DEFAULT_BUNDLE, score_cache_bytes=room) as service,
    ):
        for _ in range(options.rounds):
            request = source.request(options.documents, options.words)
            answers = service.rank(request), service.rank(request)
            if answers[0].scores != answers[1].scores:
                raise RuntimeError("the same again has other scores")
            seconds.append((answers[0].seconds, answers[1].seconds))
        print({stage: f"{1e3 * time:.1f} ms" for stage, time in answers[1].stages.items()})
    first, again = zip(*seconds, strict=True)
    return statistics.median(first), statistics.median(again)


def never_hit(documents: int, tokens: int = TOKENS, entries: int = ENTRIES, times: int = TIMES) -> list[float]:
    """Seconds that a full cache takes for each of `times` requests of `documents` new sequences."""
    encoder = Encoder(cast(Scorer, None), "model", load_bundle(DEFAULT_BUNDLE).tokenizer, Pace())  # runs no model
    cache = ScoreCache(entries * ENTRY_BYTES, Metrics().of("model"))
    rng = np.random.default_rng(0)
    seconds: list[float] = []
    fill = -(-entries // documents)
    for _ in range(fill + times):
        ids = rng.integers(30_000, size=(documents, tokens), dtype=np.int32)
        job = Job([Packed(row.copy(), 10, np.zeros(1, np.intp)) for row in ids], encoder)
        started = time.perf_counter()
        missed = cache.recall(job)
        taken = time.perf_counter() - started
        for number, logit in enumerate(rng.normal(size=documents).astype(np.float32)):
            job.score(number, logit)
        started = time.perf_counter()
        cache.keep(job, missed)
        seconds.append(taken + time.perf_counter() - started)
    return seconds[fill:]


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--documents", type=int, default=100)
    made.add_argument("--words", type=int, default=2000)
    made.add_argument("--rounds", type=int, default=7)
    made.add_argument("--threads", type=int, default=default_threads())
    return made


if __name__ == "__main__":
    main(parser().parse_args())
