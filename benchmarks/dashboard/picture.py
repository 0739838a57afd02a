"""A dashboard as a picture: each panel's data, drawn where it would stand, so that a person can judge it without a Grafana."""

from collections.abc import Callable
from math import isfinite

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from benchmarks.dashboard.prometheus import Line, Prometheus
from k8s.monitoring.grafana import COLUMNS, places
from k8s.monitoring.panels import NAME_COLOURS, Board, Kind, Panel, Query, Unit

WIDTH, UNIT_HEIGHT, DPI = 20.0, 0.36, 75  # inches, inches a grid unit
LINES = ("#5794f2", "#73bf69", "#ff9830", "#f2495c", "#b877d9", "#fade2a", "#8ab8ff", "#96d98d")
COLOURS = ("#37872d", "#e0752d", "#c4162a")
LINE_COLOURS = {"green": "#73bf69", "red": "#f2495c", "orange": "#ff9830", "blue": "#5794f2", "purple": "#b877d9"}
INK, PALE = "#24292e", "#d8dade"
Answers = list[tuple[Query, list[Line]]]


def draw(board: Board, prometheus: Prometheus, start: float, end: float) -> Figure:
    """Draw the dashboard between two times."""
    height = sum(1 + _row_height(row.panels) for row in board.rows)
    figure = Figure(figsize=(WIDTH, (height + 2) * UNIT_HEIGHT), dpi=DPI, facecolor="#f4f5f5")
    figure.text(0.008, 1 - 1.1 / (height + 2), board.title, fontsize=17, color=INK, va="center")
    figure.text(0.25, 1 - 1.1 / (height + 2), board.description, fontsize=11, color="#6e7178", va="center")
    top = 2
    for row in board.rows:
        figure.text(0.008, 1 - (top + 0.5) / (height + 2), f"v  {row.title}", fontsize=13, color=INK, va="center", weight="bold")
        top += 1
        for panel, place in zip(row.panels, places(row.panels, top), strict=True):
            box = (place.x / COLUMNS, 1 - (place.y + place.h) / (height + 2), place.w / COLUMNS, place.h / (height + 2))
            _panel(figure, box, panel, [(query, _answer(panel, query, prometheus, start, end)) for query in panel.queries])
        top += _row_height(row.panels)
    return figure


def _row_height(panels: list[Panel]) -> int:
    return max(place.y + place.h for place in places(panels, 0))


def _answer(panel: Panel, query: Query, prometheus: Prometheus, start: float, end: float) -> list[Line]:
    if panel.kind is Kind.STAT:
        return prometheus.instant(query.expression)
    return prometheus.lines(query.expression, start, end)


def _panel(figure: Figure, box: tuple[float, float, float, float], panel: Panel, answers: Answers) -> None:
    left, bottom, width, height = box
    inch_x, inch_y = 1 / figure.get_figwidth(), 1 / figure.get_figheight()
    frame = figure.add_axes((left + 0.05 * inch_x, bottom + 0.05 * inch_y, width - 0.1 * inch_x, height - 0.1 * inch_y))
    frame.set_xticks([])
    frame.set_yticks([])
    for spine in frame.spines.values():
        spine.set_color(PALE)
    figure.text(left + 0.15 * inch_x, bottom + height - 0.25 * inch_y, panel.title, fontsize=11, color=INK, va="center")
    lines = [line for _, found in answers for line in found]
    if not lines:
        lacking = f" (no {panel.needs} here)" if panel.needs else ""
        frame.text(0.5, 0.45, f"no data{lacking}", ha="center", color="#6e7178", fontsize=12)
        return
    if panel.kind is Kind.STAT:
        _stat(frame, panel, answers)
        return
    inner = (left + 0.75 * inch_x, bottom + 0.85 * inch_y, width - 1.0 * inch_x, height - 1.35 * inch_y)
    axes = figure.add_axes((left + 0.75 * inch_x, bottom + 0.4 * inch_y, inner[2], height - 0.9 * inch_y))
    if panel.kind is not Kind.HEATMAP:
        axes.set_position(inner)
    _DRAWN[panel.kind](axes, panel, answers)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda at, _: f"{int(at // 60)}:{int(at % 60):02d}"))
    axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    axes.tick_params(labelsize=9, colors="#6e7178", length=0)
    for spine in axes.spines.values():
        spine.set_visible(False)


def _stat(frame: Axes, panel: Panel, answers: Answers) -> None:
    newest = [(line.name(query.legend), line.values[-1]) for query, found in answers for line in found]
    for number, (name, value) in enumerate(newest):
        at = (number + 0.5) / len(newest)
        colour = COLOURS[
            sum(value >= step for step in panel.steps) if len(panel.steps) > 1 else 2 * any(value >= s for s in panel.steps)
        ]
        frame.text(at, 0.4, written(value, panel.unit), fontsize=22, color=colour, ha="center", va="center")
        frame.text(at, 0.1, name, fontsize=9, color="#6e7178", ha="center", va="center")


def _colour(name: str, number: int) -> str:
    return LINE_COLOURS[NAME_COLOURS[name]] if name in NAME_COLOURS else LINES[number % len(LINES)]


def _times(line: Line, answers: Answers) -> list[float]:
    first = min(line.times[0] for _, found in answers for line in found)
    return [at - first for at in line.times]


def _lines(axes: Axes, panel: Panel, answers: Answers) -> None:
    found = [(line.name(query.legend), line) for query, lines in answers for line in lines]
    for number, (name, line) in enumerate(found):
        axes.plot(_times(line, answers), line.values, color=_colour(name, number), linewidth=1.3, label=name)
    _finish(axes, panel)
    highest = max((v for _, line in found for v in line.values if isfinite(v)), default=0.0)
    for step, colour in zip(panel.steps, COLOURS[1:], strict=False):
        if step <= 1.5 * highest:
            axes.axhline(step, color=colour, linewidth=1, linestyle="--")
    whole = panel.unit is Unit.SHARE and not (panel.steps and panel.steps[0] < 0.01)
    axes.set_ylim(0, max(1.08 * highest, 1.0) if whole else 1.08 * highest or 1.0)


def _stacked(axes: Axes, panel: Panel, answers: Answers) -> None:
    found = [(line.name(query.legend), line) for query, lines in answers for line in lines]
    times = sorted({at for _, line in found for at in _times(line, answers)})
    values = [np.nan_to_num(np.interp(times, _times(line, answers), line.values, left=0, right=0)) for _, line in found]
    colours = [_colour(name, number) for number, (name, _) in enumerate(found)]
    axes.stackplot(times, values, labels=[name for name, _ in found], colors=colours, alpha=0.75, linewidth=0)
    _finish(axes, panel)


def _finish(axes: Axes, panel: Panel) -> None:
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: written(value, panel.unit)))
    axes.yaxis.set_major_locator(MaxNLocator(5))
    axes.grid(color=PALE, linewidth=0.6)
    axes.margins(x=0)
    handles, labels = axes.get_legend_handles_labels()
    named = [(handle, label) for handle, label in zip(handles, labels, strict=True) if label]
    if named:
        place = {"loc": "upper left", "bbox_to_anchor": (-0.08, -0.12), "ncols": min(len(named), 6)}
        axes.legend(
            *zip(*named, strict=True), fontsize=8.5, frameon=False, labelcolor=INK, handlelength=1.2, columnspacing=1, **place
        )


def _heatmap(axes: Axes, panel: Panel, answers: Answers) -> None:
    lines = sorted((line for _, found in answers for line in found), key=lambda line: float(line.labels["le"]))
    cumulative = np.array([line.values for line in lines])
    counts = np.diff(cumulative, axis=0, prepend=0.0)
    counts[counts <= 1e-9] = np.nan
    used = [number for number, row in enumerate(counts) if not np.all(np.isnan(row))]
    low, high = min(used), max(used) + 1
    times = _times(lines[0], answers)
    edges = [*times, times[-1] + (times[-1] - times[0]) / max(len(times) - 1, 1)]
    axes.pcolormesh(edges, np.arange(low, high + 1), counts[low:high], cmap="YlGnBu", vmin=0)
    bounds = [0.0, *(float(line.labels["le"]) for line in lines)]
    axes.set_yticks(range(low, high + 1), ["" if b == float("inf") else written(b, panel.unit) for b in bounds[low : high + 1]])
    axes.margins(0)


_DRAWN: dict[Kind, Callable[[Axes, Panel, Answers], None]] = {
    Kind.LINES: _lines,
    Kind.STACKED: _stacked,
    Kind.HEATMAP: _heatmap,
}
SCALES = {
    Unit.SECONDS: ((60, " min"), (1, " s"), (1e-3, " ms"), (1e-6, " µs")),
    Unit.BYTES: ((2**30, " GiB"), (2**20, " MiB"), (2**10, " KiB"), (1, " B")),
}
SUFFIXES = {
    Unit.REQUESTS: " req/s",
    Unit.DOCUMENTS_A_SECOND: " doc/s",
    Unit.TOKENS_A_SECOND: " tok/s",
    Unit.BATCHES_A_SECOND: " b/s",
}


def written(value: float, unit: Unit) -> str:
    """A number with its unit, as short as Grafana writes it."""
    if not isfinite(value):
        return "no traffic"
    if unit is Unit.SHARE:
        return f"{100 * value:.3g}%"
    for scale, name in SCALES.get(unit, ()):
        if abs(value) >= scale:
            return f"{value / scale:.3g}{name}"
    suffix = SUFFIXES.get(unit, "") if value else ""
    return (f"{value / 1000:.3g}k" if abs(value) >= 1000 else f"{value:.3g}") + suffix
