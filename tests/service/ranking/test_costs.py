import pytest

from service.ranking.costs import BYTES, PIECE, WIDE, cost, footprint, utf8_bytes


@pytest.mark.parametrize("text", ["", "a bridge", "naïve", "東京", "\U0001f600\u200d" * PIECE, "\ud800 alone"])
def test_bytes_are_those_of_utf8(text: str) -> None:
    assert utf8_bytes(text) == len(text.encode("utf-8", "surrogatepass"))


def test_texts_outside_ascii_cost_more() -> None:
    assert cost(1000, 1000) == 1000
    assert cost(1000, 3000) == 1000 + WIDE * 2000, "Chinese"
    assert cost(1000, 0) == 1000, "a stored document, whose bytes nobody counted"
    assert footprint(3000) == 3000 * BYTES
