"""Simulates a day's traffic with fixed numbers of replicas and with each autoscaler of k8s/components: cost, waits, refusals.

    python -m benchmarks.scaling [--peak 480] [--seed 0] [--picture docs/images/scaling.png]

Traffic has a lunch peak and a burst (benchmarks/scaling/traffic.py); service times are drawn from docs/results/performance.json;
targets, windows, rates and bounds are read from k8s/components. All cases get the same requests. It takes about ten seconds.
"""

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import ceil
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benchmarks.scaling.autoscaler import COMPONENTS, Settings, read
from benchmarks.scaling.cluster import Cluster, Result, simulate
from benchmarks.scaling.traffic import BURST, DAY, HOUR, Requests, capacity, day, measured, rate

SHARE = 0.7  # of a replica's capacity, as docs/sizing.md sizes
START = 12.0  # the image's 7 s on one busy thread (docs/deploy-checked.md), and 5 s to schedule, create and probe the pod
NEW_NODE = 120.0  # seconds if a new node must start first
LONG = 1.0  # seconds of a long wait
PIECE = 600  # seconds: the picture shows the p99 of each piece
SHOWN = ("fixed, for the lunch peak", "keda", "hpa-cpu", "hpa-both")


@dataclass(frozen=True)
class Case:
    """A fixed number of replicas, or an autoscaler, to be simulated."""

    name: str
    replicas: int
    settings: tuple[Settings, ...] = ()
    start: float = START


def cases(peak: float) -> Iterator[Case]:
    """The compared cases."""
    one, mean = SHARE * capacity(measured()), float(rate(np.arange(DAY) + 0.5, peak).mean())
    yield Case("fixed, for the day's mean", ceil(mean / one))
    yield Case("fixed, for the lunch peak", ceil(peak / one))
    yield Case("fixed, the autoscalers' most", read("hpa-cpu")[0].most)
    for start, note in ((START, ""), (NEW_NODE, f", pods ready after {NEW_NODE:g} s")):
        for name in COMPONENTS:
            settings = read(name)
            yield Case(name + note, settings[0].least, settings, start)


def share_waiting(result: Result) -> float:
    """The share of the answered requests that waited longer than LONG seconds."""
    return float((result.served > LONG).mean()) if len(result.served) else 0.0


def line(name: str, result: Result, during: Result) -> str:
    """A row of the table."""
    hours = result.pod_seconds / HOUR
    busy = result.worked / result.pod_seconds
    waits = f"{share_waiting(result):.2%} | {result.wait(0.99):.2f} | {during.wait(0.99):.1f}"
    most = int(result.replicas[:, 1].max())
    refused = f"{result.refused:.3%} | {during.refused:.1%}"
    return f"| {name} | {hours:.0f} | {most} | {busy:.0%} | {waits} | {refused} |"


HEAD = """| replicas | pod-hours | most | busy | wait over 1 s | p99 s | p99 s in the burst | refused | in the burst |
| --- | --- | --- | --- | --- | --- | --- | --- | --- |"""


def within(result: Result, requests: Requests, first: float, last: float) -> Result:
    """The result for only the requests that arrived in a part of the day."""
    chosen = (requests.at >= first) & (requests.at < last)
    return Result(result.waits[chosen], result.replicas, result.pod_seconds, result.worked, result.until)


def draw(requests: Requests, peak: float, results: Sequence[tuple[str, Result]]) -> Figure:
    """Draw demand, replicas and waits through the day."""
    figure = Figure(figsize=(11, 8.5), layout="constrained")
    demand, replicas, waits = figure.subplots(3, 1, sharex=True)
    at, every = np.arange(0, DAY, PIECE), np.arange(0, DAY, 60)
    counts, _ = np.histogram(requests.at, bins=[*every, DAY], weights=requests.documents)
    demand.plot(every / HOUR, counts / 60, color="0.7", linewidth=0.7, label="documents a second, by the minute")
    demand.plot(every / HOUR, rate(every.astype(float), peak), color="black", label="expected")
    demand.set(ylabel="documents a second", title="A day's traffic, simulated from measured service times", ylim=(0, None))
    demand.legend(loc="upper left", fontsize=8)
    for number, (name, result) in enumerate(results):
        color = f"C{number}"
        replicas.step(result.replicas[:, 0] / HOUR, result.replicas[:, 1], where="post", color=color, linewidth=1, label=name)
        waits.plot(at / HOUR, pieces(requests, result), color=color, linewidth=1.2, label=name)
    needed = rate(every.astype(float), peak) / (SHARE * capacity(measured()))
    replicas.plot(every / HOUR, needed, color="black", linewidth=0.8, linestyle=":", label=f"{SHARE:.0%} busy")
    finish(replicas, waits)
    return figure


def finish(replicas: Axes, waits: Axes) -> None:
    """Set labels and scales of the axes."""
    replicas.set(ylabel="replicas", ylim=(0, None))
    replicas.legend(loc="upper left", fontsize=8)
    waits.set(ylabel="p99 wait in ten minutes, seconds", xlabel="hour of the day", xlim=(0, 24), ylim=(0, 15))
    waits.set_yscale("symlog", linthresh=1)
    waits.set_yticks([0, 0.5, 1, 2, 5, 10], labels=["0", "0.5", "1", "2", "5", "10"])
    waits.set_xticks(range(0, 25, 2))
    waits.grid(axis="y", alpha=0.3)


def pieces(requests: Requests, result: Result) -> list[float]:
    """The p99 of the waits of each piece of the day."""
    edges = np.searchsorted(requests.at, np.arange(0, DAY + PIECE, PIECE))
    parts = (result.waits[first:last] for first, last in pairwise(edges))
    return [float(np.nanquantile(piece, 0.99)) if np.isfinite(piece).any() else 0.0 for piece in parts]


def main(options: argparse.Namespace) -> None:
    """Simulate every case, print the table and draw the picture."""
    requests, drawn = day(options.peak, options.seed), []
    print(
        f"{len(requests):,} requests, {requests.documents.sum():,} documents; a replica does {capacity(measured()):.1f} a second\n"
    )
    print(HEAD)
    for case in cases(options.peak):
        result = simulate(requests, Cluster(case.replicas, case.settings, case.start))
        name = case.name if case.settings else f"{case.name} ({case.replicas})"
        print(line(name, result, within(result, requests, BURST[0], BURST[1] + 300)), flush=True)
        if case.start == START and case.name in SHOWN:
            drawn.append((name, result))
    if options.picture:
        draw(requests, options.peak, drawn).savefig(options.picture, dpi=80, pil_kwargs={"optimize": True})


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peak", type=float, default=480.0, help="documents a second at lunch; the burst is 2.5 times its hour's")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--picture", type=Path)
    given = parser.parse_args()
    if not given.peak > 0:
        parser.error(f"--peak is {given.peak:g}; say how many documents a second there are at lunch, more than 0")
    main(given)
