"""Whole episodes of the service's own code on a simulated machine, with fresh seeds."""

import os
import random

from benchmarks.simulation.episode import Episode, Report

FRESH, EACH = 10, 400  # episodes of a run of these tests, and requests of each


def test_what_must_hold_holds_for_fresh_seeds() -> None:
    """A seed that fails is in the message, with the command that repeats it. In CI they are the same each time."""
    first = 0 if "CI" in os.environ else random.SystemRandom().randrange(10**9)
    reports = [Episode(seed, EACH).run() for seed in range(first, first + FRESH)]
    assert sum(report.outcomes.total() for report in reports) == FRESH * EACH


def test_a_seed_repeats_everything() -> None:
    def last() -> tuple[Report, list[str]]:
        one = Episode(11, 100)
        return one.run(), one.checks.trace.lines()

    assert last() == last()
