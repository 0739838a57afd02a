"""Measures waiting times by the balancer's rule, and what hashing documents to replicas could gain.

    python -m benchmarks.scaling.balancers [--replicas 8] [--hours 2] [--seed 0] [--data DATA/squad-articles]

The first table simulates --replicas replicas at three loads with the requests of benchmarks/scaling/traffic.py. The second table
computes the share of a request's documents in a replica's LRU cache (Che's approximation), when each replica sees all documents and
when each document has its own replica.
"""

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.preparation import BUNDLE
from benchmarks.scaling.cluster import Choose, Cluster, hashed, least_outstanding, least_work, round_robin, simulate
from benchmarks.scaling.stores import texts_of
from benchmarks.scaling.traffic import HOUR, Floats, capacity, measured, steady
from keyblock.bundle import load_bundle
from service.ranking.cache import ENTRY_BYTES
from service.settings import Settings

LOADS = (0.5, 0.7, 0.85)
CALLERS = 200  # their shares of the requests follow Zipf's law
SEARCHES = (100_000, 1_000_000, 10_000_000)  # numbers of documents
EXPONENTS = (0.8, 1.0)  # exponents of Zipf's law of the documents' popularity
WORDS, SAMPLE = 2_000, 20


@dataclass(frozen=True)
class Rule:
    """A balancer's rule, and the keys of requests if it needs them."""

    name: str
    choose: Choose
    keys: Sequence[int] = ()


def all_rules(n: int, rng: np.random.Generator) -> Iterator[Rule]:
    """All rules, for `n` requests."""
    yield Rule("least work, which no balancer knows", least_work)
    yield Rule("least outstanding (nginx `least_conn`)", least_outstanding)
    yield Rule("round robin", round_robin)
    yield Rule("random (a plain Service, by connection)", hashed, rng.integers(0, 1 << 30, n).tolist())
    places = np.random.default_rng(0).integers(0, 1 << 30, CALLERS)
    yield Rule(f"hash of {CALLERS} callers", hashed, places[rng.choice(CALLERS, n, p=zipf(CALLERS, 1.0))].tolist())


def zipf(n: int, exponent: float) -> Floats:
    """Shares of n things, the first the most popular."""
    weights = np.arange(1, n + 1) ** -exponent
    return weights / weights.sum()


def hit_share(popularity: Floats, entries: float) -> float:
    """The share of requests that find their document in an LRU cache of `entries` entries."""
    if entries >= len(popularity):
        return 1.0
    low, high = 0.0, 1.0 / popularity.min() * 50
    for _ in range(60):  # bisects the time, in requests, for which an unused entry stays
        stays = (low + high) / 2
        low, high = (stays, high) if -np.expm1(-popularity * stays).sum() < entries else (low, stays)
    return float((popularity * -np.expm1(-popularity * low)).sum())


def entry_bytes(data: Path | None) -> float:
    """Mean bytes of a prepared document of WORDS words in the cache."""
    documents = load_bundle(BUNDLE).pipeline.prepare_documents(texts_of(data, SAMPLE, WORDS))
    return sum(document.nbytes for document in documents) / SAMPLE + ENTRY_BYTES


def main(options: argparse.Namespace) -> None:
    """Print both tables."""
    one = capacity(measured())
    print("| balancer | " + " | ".join(f"{load:.0%} busy: p50, p99, refused" for load in LOADS) + " |")
    rows: dict[str, list[str]] = {}
    for load in LOADS:
        requests = steady(load * one * options.replicas, options.hours * HOUR, options.seed)
        for rule in all_rules(len(requests), np.random.default_rng(options.seed)):
            result = simulate(requests, Cluster(options.replicas), rule.choose, rule.keys)
            rows.setdefault(rule.name, []).append(f"{result.wait(0.5):.2f}, {result.wait(0.99):.2f}, {result.refused:.2%}")
    print("\n".join(f"| {name} | {' | '.join(cells)} |" for name, cells in rows.items()))
    size, room = entry_bytes(options.data), Settings().cache_bytes
    entries = int(room / size)
    print(f"\nAn entry has {size:,.0f} bytes: {entries:,} documents in {room >> 20} MiB.\n")
    print(f"| documents | Zipf | every replica sees all | hashed over {options.replicas} |")
    for n in SEARCHES:
        for exponent in EXPONENTS:
            shares = zipf(n, exponent)
            apart = hit_share(shares, entries * options.replicas)
            print(f"| {n:,} | {exponent:g} | {hit_share(shares, entries):.0%} | {apart:.0%} |")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--replicas", type=int, default=8)
    parser.add_argument("--hours", type=float, default=2.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--data", type=Path, help="collection of the documents, longest first; random words by default")
    main(parser.parse_args())
