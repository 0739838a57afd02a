"""Pictures: the data that is drawn, read back from the axes."""

import io
from typing import Any

import numpy as np
import pytest
from matplotlib.collections import PathCollection
from matplotlib.figure import Figure

from lab.pictures import (
    Measured,
    draw_block_places,
    draw_gold_places,
    draw_learning_curves,
    draw_quality_latency,
    frontier,
    lowered,
)
from lab.positions import BlockPlace, GoldPlace

PLACES = [
    *(BlockPlace(1, 1, 0, True), BlockPlace(1, 10, 900, True), BlockPlace(2, 3, 250, True)),
    *(BlockPlace(1, 2, 100, False), BlockPlace(1, 2, 100, False)),
]
SYSTEMS = [Measured("slow", 20.0, 0.9), Measured("fast", 1.0, 0.5), Measured("beaten", 5.0, 0.4), Measured("middle", 4.0, 0.7)]


def drawn_anew(figure: Figure) -> Figure:
    """Rendered once: an error or a warning of the layout is an error here."""
    figure.savefig(io.BytesIO(), format="png")
    return figure


def test_the_maps_of_block_places_by_hand() -> None:
    relevant, others, *_ = drawn_anew(draw_block_places(PLACES)).axes
    expected = np.zeros((2, 10))
    expected[0, [0, 9]], expected[1, 2] = 0.5, 1.0
    assert np.asarray(relevant.images[0].get_array()).tolist() == expected.tolist()
    expected = np.zeros((2, 10))
    expected[0, 1] = 1.0
    assert np.asarray(others.images[0].get_array()).tolist() == expected.tolist()
    assert (relevant.get_title(), others.get_title()) == ("relevant documents: 3 blocks", "other documents: 2 blocks")
    assert relevant.images[0].get_clim() == others.images[0].get_clim() == (0, 1)  # colours mean the same in both


def test_each_rank_and_position_stands_at_its_number() -> None:
    """The image's extent puts the centre of the cell of rank r and position p at (p, r)."""
    axes = draw_block_places(PLACES).axes[0]
    left, right, bottom, top = axes.images[0].get_extent()
    assert ((right - left) / 10, left + 0.5, top + 0.5, (bottom - top) / 2) == (1, 1, 1, 1)


def test_starts_of_blocks_by_hand() -> None:
    last = draw_block_places(PLACES).axes[2]
    relevant, others = (patch.get_data() for patch in last.patches)
    assert (relevant.edges[0], relevant.edges[-1]) == (0, 901)
    assert relevant.values.sum() == pytest.approx(1)
    assert relevant.values[[0, -1]] == pytest.approx([1 / 3, 1 / 3])
    assert others.values.max() == 1.0
    assert [text.get_text() for text in last.get_legend().get_texts()] == ["relevant documents", "other documents"]


def test_nothing_selected_is_a_picture_too() -> None:
    assert np.asarray(drawn_anew(draw_block_places([])).axes[0].images[0].get_array()).sum() == 0


def test_gold_places_by_hand() -> None:
    starts = {"near": [0, 5, 12, 99], "far": [12]}
    places = {name: [GoldPlace("q", "d", start, start + 1, 100) for start in of] for name, of in starts.items()}
    (axes,) = drawn_anew(draw_gold_places(places, 10, 2)).axes
    near, far = ([bar.get_height() for bar in bars] for bars in axes.containers)
    assert (near, far) == ([0.5, 0.25, 0.25], [0, 1, 0])
    assert [label.get_text() for label in axes.get_xticklabels()] == ["1", "2", "2+"]
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["near: 4", "far: 1"]


def test_the_frontier_by_hand() -> None:
    assert [system.name for system in frontier(SYSTEMS)] == ["fast", "middle", "slow"]
    assert frontier([Measured("a", 1.0, 0.5), Measured("b", 1.0, 0.6), Measured("c", 2.0, 0.6)]) == [Measured("b", 1.0, 0.6)]
    assert frontier([]) == []


def test_quality_and_latency_of_every_system_are_drawn() -> None:
    (axes,) = drawn_anew(draw_quality_latency(SYSTEMS, "nDCG@10")).axes
    (points,) = (c for c in axes.collections if isinstance(c, PathCollection))
    assert np.asarray(points.get_offsets()).tolist() == [[s.milliseconds, s.quality] for s in SYSTEMS]
    assert {text.get_text(): text.xy for text in axes.texts} == {s.name: (s.milliseconds, s.quality) for s in SYSTEMS}
    assert np.asarray(axes.lines[0].get_xydata()).tolist() == [[1.0, 0.5], [4.0, 0.7], [20.0, 0.9]]
    assert (axes.get_xscale(), axes.get_ylabel()) == ("log", "nDCG@10")


def test_names_do_not_stand_upon_each_other() -> None:
    apart = [Measured("slow", 100.0, 0.5), Measured("fast", 1.0, 0.9), Measured("middle", 10.0, 0.5)]
    assert lowered(apart) == [0, 0, 0]
    # a few points apart: the best one stays, the others go below it, a line each
    near = [Measured("a" * 45, 10.0, 0.5), Measured("best", 11.0, 0.501), Measured("c", 12.0, 0.4999)]
    far = [Measured("far", 1000.0, 0.0), Measured("top", 1.0, 1.0)]
    assert lowered([*near, *far]) == [9, 0, 18, 0, 0]
    assert lowered([]) == []
    assert lowered([Measured("alone", 5.0, 0.5)]) == [0]


def log(losses: list[float], **dev: list[float]) -> list[dict[str, Any]]:
    records: list[dict[str, Any]] = [{"step": step, "loss": loss} for step, loss in enumerate(losses, 1)]
    measured = range(max(map(len, dev.values()), default=0))
    return records + [{"step": 10 * n, "dev": {name: {"RR@10": values[n]} for name, values in dev.items()}} for n in measured]


def test_learning_curves_of_several_runs() -> None:
    logs = {"one": log([4.0, 2.0], toy=[0.1, 0.2], sea=[0.3, 0.4]), "two": log([3.0], sea=[0.5]), "three": log([])}
    loss, toy, sea = drawn_anew(draw_learning_curves(logs)).axes
    assert [np.asarray(line.get_xydata()).tolist() for line in loss.lines] == [[[2, 3.0]], [[1, 3.0]], []]
    assert [np.asarray(line.get_xydata()).tolist() for line in toy.lines] == [[[0, 0.1], [10, 0.2]]]
    assert [np.asarray(line.get_xydata()).tolist() for line in sea.lines] == [[[0, 0.3], [10, 0.4]], [[0, 0.5]]]
    assert [line.get_color() for line in sea.lines] == [line.get_color() for line in loss.lines[:2]]  # a run has one colour
    assert (toy.get_title(), sea.get_title()) == ("toy", "sea")


def test_a_measure_that_is_not_logged_draws_the_losses_alone() -> None:
    figure = draw_learning_curves({"one": log([1.0], toy=[0.5])}, "AP")
    assert len(figure.axes) == 1
