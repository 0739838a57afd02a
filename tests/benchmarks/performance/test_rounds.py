"""Turns."""

from benchmarks.performance.rounds import in_turns, spread


def test_every_turn_starts_with_another_way() -> None:
    order: list[tuple[str, int]] = []

    def way(name: str, turn: int) -> int:
        order.append((name, turn))
        return turn

    found = in_turns({name: lambda turn, name=name: way(name, turn) for name in "abc"}, 3)
    assert "".join(name for name, _ in order) == "abcbcacab"
    assert found == {name: [0, 1, 2] for name in "abc"}


def test_a_spread() -> None:
    assert spread([3.0, 1.0, 2.0]) == {"median": 2.0, "low": 1.0, "high": 3.0, "turns": 3}
