"""The picture of docs/performance.md: the pace of each system beside the arithmetic limit, and the cost of longer documents."""

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benchmarks.performance.record import Record
from benchmarks.performance.targets import Part, best_peak, pace

OURS, THEIRS = "tab:blue", "0.65"


def draw(record: Record) -> Figure:
    """Bars of documents a second. If the grid was measured, a second panel shows milliseconds a document by words."""
    parts = record["parts"]
    figure = Figure(figsize=(14, 4.5) if "grid" in parts else (7, 4.5), layout="constrained")
    panels = figure.subplots(1, 2 if "grid" in parts else 1, squeeze=False)[0]
    draw_bars(panels[0], parts["throughput"])
    if "grid" in parts:
        draw_lengths(panels[1], parts["grid"])
    return figure


def draw_bars(axes: Axes, part: Part) -> None:
    """A bar per system, with a mark at its arithmetic limit."""
    rows = sorted(part["rows"], key=pace)
    names, places = [row["name"] for row in rows], range(len(rows))
    bars = axes.barh(names, [pace(row) for row in rows], color=[OURS if row["ours"] else THEIRS for row in rows])
    axes.bar_label(bars, fmt="%.1f", padding=3, fontsize=8)
    if peak := best_peak(part):
        limits = [row["documents"] * peak / row["operations"] for row in rows]
        axes.scatter(limits, places, marker="|", s=150, color="black", label="arithmetic limit", zorder=3)
        axes.legend(loc="lower right")
    axes.set(xlabel="documents a second", title=f"{part['documents']} documents x {part['words']:,} words")
    axes.margins(x=0.1)


def draw_lengths(axes: Axes, part: Part) -> None:
    """A line per system: milliseconds a document by words, for the smallest requests of the grid."""
    documents = min(row["documents"] for row in part["rows"])
    rows = [row for row in part["rows"] if row["documents"] == documents]
    for number, name in enumerate(dict.fromkeys(row["name"] for row in rows)):
        points = sorted((row["words"], 1000 / pace(row)) for row in rows if row["name"] == name)
        ours = any(row["ours"] for row in rows if row["name"] == name)
        axes.plot(*zip(*points, strict=True), marker="o", label=name, linestyle="-" if ours else "--", color=f"C{number}")
    words = sorted({row["words"] for row in rows})
    axes.set(xscale="log", xlabel="words a document", ylabel="milliseconds a document")
    axes.set(title=f"requests of {documents} documents", ylim=(0, None))
    axes.set_xticks(words, labels=[f"{n:,}" for n in words])
    axes.minorticks_off()
    axes.legend(fontsize=8, loc="center left", bbox_to_anchor=(1, 0.5))
