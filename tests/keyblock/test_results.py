"""Results: the wire's fields under the wire's names."""

from dataclasses import FrozenInstanceError, fields
from typing import Any

import pytest

from keyblock import wire
from keyblock.results import Block, Ranking, Result


def names(of: Any) -> set[str]:
    return {field.name for field in fields(of)}


def test_the_wires_names_are_ours() -> None:
    assert names(Result) == wire.Result.__annotations__.keys() - {"document"} | wire.DocumentAnswer.__annotations__.keys()
    assert names(Block) == wire.BlockAnswer.__annotations__.keys() | {"text"}
    parts = wire.RerankAnswer.__annotations__.keys() | wire.Meta.__annotations__.keys() | wire.Usage.__annotations__.keys()
    assert names(Ranking) - parts == {"request_id", "fallback"}


def test_a_ranking_is_a_sequence_that_stays_as_it_is() -> None:
    ranking = Ranking((Result(1, 0.5), Result(0, 0.25)))
    assert (len(ranking), ranking[0].index, [r.index for r in ranking], [r.index for r in ranking[1:]]) == (2, 1, [1, 0], [0])
    assert Result(0, 0.25) in ranking
    with pytest.raises(FrozenInstanceError):
        ranking[0].relevance_score = 1.0  # type: ignore[misc]
