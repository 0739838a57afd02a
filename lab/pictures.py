"""Draws measurements: places of gold passages, quality against latency, learning curves of several runs."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter

from lab.positions import GoldPlace, chunk_shares
from training.learn.tracking import WINDOW, dev_curves, smoothed_loss

PICTURE_POINTS = (450, 340)  # size of the plot area of `draw_quality_latency`
LINE_POINTS, LETTER_POINTS = 9, 4.5  # height of a name, and width of its letters


def draw_gold_places(places: Mapping[str, Sequence[GoldPlace]], size: int, chunks: int) -> Figure:
    """Table 1 of the evaluation paper as bars: the share of gold passages that start in each chunk, by collection."""
    figure = Figure(figsize=(8, 4), layout="constrained")
    axes = figure.subplots()
    width = 0.8 / len(places)
    for number, (name, found) in enumerate(places.items()):
        left = np.arange(1, chunks + 2) - 0.4 + (number + 0.5) * width
        axes.bar(left, chunk_shares([place.start for place in found], size, chunks), width, label=f"{name}: {len(found):,}")
    axes.set(xlabel=f"chunk of {size} tokens", ylabel="share of the gold passages that start in it")
    axes.set_xticks(range(1, chunks + 2), [*map(str, range(1, chunks + 1)), f"{chunks}+"])
    axes.legend()
    return figure


class Measured(NamedTuple):
    """A system's quality and its cost."""

    name: str
    milliseconds: float
    quality: float


def frontier(systems: Sequence[Measured]) -> list[Measured]:
    """The systems that no other system beats in speed and quality, from the fastest to the best."""
    best: list[Measured] = []
    for system in sorted(systems, key=lambda s: (s.milliseconds, -s.quality)):
        if not best or system.quality > best[-1].quality:
            best.append(system)
    return best


def draw_quality_latency(systems: Sequence[Measured], measure: str) -> Figure:
    """A point for each system, and a line along the frontier; milliseconds a document are on a logarithmic scale."""
    figure = Figure(figsize=(9, 6), layout="constrained")
    axes = figure.subplots()
    axes.scatter([s.milliseconds for s in systems], [s.quality for s in systems], zorder=2)
    edge = frontier(systems)
    axes.plot([s.milliseconds for s in edge], [s.quality for s in edge], linewidth=1, color="0.7", zorder=1)
    for system, lower in zip(systems, lowered(systems), strict=True):
        place = (system.milliseconds, system.quality)
        line = {"arrowstyle": "-", "color": "0.7", "linewidth": 0.5} if lower else None
        axes.annotate(system.name, place, (6, 3 - lower), textcoords="offset points", fontsize=8, arrowprops=line)
    axes.set(xscale="log", xlabel="milliseconds a document", ylabel=measure)
    axes.margins(x=0.15)  # room for the name of the rightmost system
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.xaxis.set_major_formatter("{x:g}")
    axes.xaxis.set_minor_formatter(NullFormatter())
    return figure


def lowered(systems: Sequence[Measured]) -> list[int]:
    """How many points each name is moved down so that no two names overlap; the names of the best systems stay in place."""
    places = np.asarray([(np.log(s.milliseconds), s.quality) for s in systems]).reshape(-1, 2)
    spread = np.ptp(places, axis=0) if len(places) else np.ones(2)
    x, y = (places / np.where(spread > 0, spread, 1) * PICTURE_POINTS).T
    rows = [0] * len(systems)
    taken: list[tuple[float, float, int]] = []  # x, y and number of letters of the names placed so far
    for i in sorted(range(len(systems)), key=lambda i: -y[i]):
        letters = len(systems[i].name)
        while any(_meet((x[i], y[i] - rows[i], letters), other) for other in taken):
            rows[i] += LINE_POINTS
        taken.append((x[i], y[i] - rows[i], letters))
    return rows


def _meet(one: tuple[float, float, int], other: tuple[float, float, int]) -> bool:
    left, right = sorted((one, other))
    return right[0] - left[0] < LETTER_POINTS * left[2] and abs(one[1] - other[1]) < LINE_POINTS


def draw_learning_curves(logs: Mapping[str, Sequence[Mapping[str, Any]]], measure: str = "RR@10") -> Figure:
    """A line for each run: the loss, and a measure on the dev sample of each collection.

    Args:
        logs: records of log.jsonl (`training.learn.tracking.read_log`) by the run's name.
        measure: a measure that training logs.
    """
    dev = {name: dev_curves(records, measure) for name, records in logs.items()}
    collections = list(dict.fromkeys(collection for curves in dev.values() for collection in curves))
    figure = Figure(figsize=(5 * (1 + len(collections)), 4), layout="constrained")
    left, *rest = figure.subplots(1, 1 + len(collections), squeeze=False)[0]
    colours = {name: f"C{number}" for number, name in enumerate(logs)}
    for name, records in logs.items():
        left.plot(*smoothed_loss(records), color=colours[name], label=name)
    left.set(xlabel="step", ylabel=f"loss, mean of {WINDOW} steps")
    for axes, collection in zip(rest, collections, strict=True):
        for name in (name for name, curves in dev.items() if collection in curves):
            axes.plot(*zip(*dev[name][collection], strict=True), color=colours[name], marker="o")
        axes.set(title=collection, xlabel="step", ylabel=f"{measure} on the dev sample", ylim=(0, 1))
    figure.legend(*left.get_legend_handles_labels(), loc="outside lower center", ncols=4)
    return figure
