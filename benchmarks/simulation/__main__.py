"""python -m benchmarks.simulation: see the package."""

import argparse
import logging
import random
import sys
import time
from collections import Counter

import benchmarks.simulation
from benchmarks.simulation.episode import REQUESTS, Episode
from benchmarks.simulation.invariants import ViolationError


def main(options: argparse.Namespace) -> int:
    """Run episodes; the exit code is 1 where something does not hold."""
    seed = random.SystemRandom().randrange(10**9) if options.seed is None else options.seed
    seeds = options.seeds if options.seeds else -(-options.requests // REQUESTS)
    each = min(options.requests, REQUESTS)
    outcomes, faults, events, batches, virtual = Counter[str](), Counter[str](), 0, 0, 0.0
    began = time.perf_counter()
    for number in range(seed, seed + seeds):
        try:
            report = Episode(number, each).run()
        except ViolationError as error:
            print(error)
            return 1
        outcomes += report.outcomes
        faults += report.faults
        events, batches, virtual = events + report.events, batches + report.batches, virtual + report.seconds
    seconds = time.perf_counter() - began
    n = outcomes.total()
    print(f"{n:,} requests of {seeds} seeds from {seed} in {seconds:.1f} s: {n / seconds:,.0f} a second; all invariants hold")
    print(f"{events:,} events, {batches:,} batches, {virtual / 3600:,.1f} hours of the simulated clock")
    for what, counted in (("requests", outcomes), ("faults", faults)):
        print(f"{what}: " + ", ".join(f"{number:,} {name}" for name, number in counted.most_common()))
    return 0


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(
        "python -m benchmarks.simulation",
        description=benchmarks.simulation.__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument(
        "--requests",
        type=int,
        default=REQUESTS,
        help=f"in all, or of each episode where --seeds is given; an episode has at most {REQUESTS}",
    )
    made.add_argument("--seed", type=int, help="of the first episode; a fresh one where it is left out")
    made.add_argument("--seeds", type=int, help="episodes; as many as the requests need where it is left out")
    return made


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)  # the service says what fails, and all that is meant to
    sys.exit(main(parser().parse_args()))
