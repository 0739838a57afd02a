"""python -m benchmarks.simulation: see the package."""

import argparse
import random
import sys
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from contextlib import nullcontext
from functools import partial
from multiprocessing import get_context

import benchmarks.simulation
from benchmarks.simulation.episode import REQUESTS, Report, run
from keyblock.runtime.cpus import default_threads


def main(options: argparse.Namespace) -> int:
    """Run episodes. Returns the exit code: 1 if an invariant does not hold."""
    seed = random.SystemRandom().randrange(10**9) if options.seed is None else options.seed
    seeds = -(-options.requests // REQUESTS)
    episode = partial(run, min(options.requests, REQUESTS))
    processes = min(options.processes, seeds)
    total, began = Report(Counter(), Counter(), 0, 0, 0.0), time.perf_counter()
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) if processes > 1 else nullcontext() as pool:
        for report in (pool.map if pool else map)(episode, range(seed, seed + seeds)):
            if isinstance(report, str):
                print(report)
                return 1
            total = Report(*(so_far + more for so_far, more in zip(total, report, strict=True)))
    seconds, n = time.perf_counter() - began, total.outcomes.total()
    print(f"{n:,} requests of {seeds} seeds from {seed} in {seconds:.1f} s: {n / seconds:,.0f} a second; all invariants hold")
    print(f"{total.events:,} events, {total.batches:,} batches, {total.seconds / 3600:,.1f} hours of the simulated clock")
    for what, counted in (("requests", total.outcomes), ("faults", total.faults)):
        print(f"{what}: " + ", ".join(f"{number:,} {name}" for name, number in counted.most_common()))
    return 0


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(
        "python -m benchmarks.simulation",
        description=benchmarks.simulation.__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument("--requests", type=int, default=REQUESTS, help=f"in all; an episode has at most {REQUESTS}")
    made.add_argument("--seed", type=int, help="of the first episode; a fresh one where it is left out")
    made.add_argument("--processes", type=int, default=default_threads(), help="episodes at the same time")
    return made


if __name__ == "__main__":
    sys.exit(main(parser().parse_args()))
