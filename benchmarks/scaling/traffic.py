"""Draws a day's requests: when they arrive, and how long a replica needs, from the measurements of `make bench`."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

ROOT = Path(__file__).resolve().parent.parent.parent
RECORD = ROOT / "docs" / "results" / "performance.json"
SYSTEM = "KeyBlock, 128 tokens"
HOUR, DAY = 3600, 86_400

# documents and words of a request, and the percentage of such requests
MIX = {(10, 500): 30, (10, 2_000): 40, (10, 20_000): 4, (100, 500): 10, (100, 2_000): 15, (100, 20_000): 1}
# hours, and documents a second relative to the lunch peak
CURVE = ((0, 0.08), (5, 0.05), (8, 0.25), (10, 0.62), (11.5, 0.70), (12.5, 1.0), (13.5, 0.70), (17, 0.58), (20, 0.30), (24, 0.08))
BURST = (15 * HOUR, 15 * HOUR + 600, 2.5)  # start, end, and factor of the curve: it begins at once

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Spread:
    """Seconds that a request of one kind took: the lowest, the median, the highest."""

    low: float
    median: float
    high: float

    def draw(self, rng: np.random.Generator, n: int) -> Floats:
        """Draw n values; the distribution function is linear between the three values."""
        return np.interp(rng.random(n), (0, 0.5, 1), (self.low, self.median, self.high))

    @property
    def mean(self) -> float:
        """The mean of the distribution."""
        return (self.low + 2 * self.median + self.high) / 4


Measured = Mapping[tuple[int, int], Spread]


@dataclass(frozen=True)
class Requests:
    """Requests in the order in which they arrive.

    Attributes:
        at: seconds since the start at which each arrives.
        seconds: seconds that a replica needs for each, without other requests.
        documents: number of documents of each.
        until: seconds from the start to the end of arrivals.
    """

    at: Floats
    seconds: Floats
    documents: NDArray[np.int64]
    until: float

    def __len__(self) -> int:
        return len(self.at)


def measured(record: Path = RECORD, system: str = SYSTEM) -> Measured:
    """Seconds by documents and words, from the last published grid. Raises ValueError if a size of MIX is not in it."""
    rows = json.loads(record.read_text(encoding="utf-8"))["parts"].get("grid", {"rows": []})["rows"]
    rows = [row for row in rows if row["name"] == system]
    found = {(row["documents"], row["words"]): Spread(*(row["seconds"][k] for k in ("low", "median", "high"))) for row in rows}
    if missing := MIX.keys() - found.keys():
        kinds = ", ".join(f"{documents} x {words}" for documents, words in sorted(missing))
        raise ValueError(f'{record} lacks {system} for {kinds}: measure with make bench BENCH="--only grid --publish"')
    return found


def mean_documents(mix: Mapping[tuple[int, int], int] = MIX) -> float:
    """The mean number of documents of a request."""
    return sum(documents * share for (documents, _), share in mix.items()) / sum(mix.values())


def capacity(spreads: Measured, mix: Mapping[tuple[int, int], int] = MIX) -> float:
    """Documents a second of a replica that is never idle."""
    seconds = sum(spreads[kind].mean * share for kind, share in mix.items())
    return mean_documents(mix) * sum(mix.values()) / seconds


def rate(at: Floats, peak: float) -> Floats:
    """Documents a second at each time of the day, given the peak at lunch."""
    hours, heights = zip(*CURVE, strict=True)
    first, last, times = BURST
    return peak * np.interp(at / HOUR, hours, heights) * np.where((at >= first) & (at < last), times, 1)


def day(peak: float, seed: int = 0) -> Requests:
    """The requests of a day with a lunch peak of so many documents a second."""
    rng = np.random.default_rng(seed)
    counts = rng.poisson(rate(np.arange(DAY) + 0.5, peak) / mean_documents())
    at = np.sort(np.repeat(np.arange(DAY), counts) + rng.random(counts.sum()))
    return requests(at, DAY, rng)


def steady(documents_a_second: float, until: float, seed: int = 0) -> Requests:
    """Requests at the same rate all the time."""
    rng = np.random.default_rng(seed)
    n = rng.poisson(documents_a_second / mean_documents() * until)
    return requests(np.sort(rng.random(n) * until), until, rng)


def requests(at: Floats, until: float, rng: np.random.Generator) -> Requests:
    """Requests at these times: kinds are drawn by MIX, and seconds from those measured for the kind."""
    spreads, kinds = measured(), list(MIX)
    shares = np.array([MIX[kind] for kind in kinds], dtype=float)
    kind = rng.choice(len(kinds), len(at), p=shares / shares.sum())
    drawn = np.stack([spreads[each].draw(rng, len(at)) for each in kinds])
    return Requests(at, drawn[kind, np.arange(len(at))], np.array([documents for documents, _ in kinds])[kind], until)
