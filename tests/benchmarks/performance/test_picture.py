"""The picture has what it should; what it looks like, a person says."""

from typing import Any

from benchmarks.performance.picture import draw


def test_a_bar_for_each_system_and_a_line_for_each_of_the_grid(record: dict[str, Any]) -> None:
    bars, lengths = draw(record).axes
    assert bars.get_yticklabels()[0].get_text() == "slow"  # the slowest stands lowest
    assert len(bars.patches) == len(record["parts"]["throughput"]["rows"])
    assert [line.get_label() for line in lengths.get_lines()] == ["KeyBlock, 512"]


def test_without_a_grid_there_is_one_panel(record: dict[str, Any]) -> None:
    del record["parts"]["grid"]
    assert len(draw(record).axes) == 1
