"""It is always 50 s."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keyblock.packing import PackingConfig
from service.ranking.drive import MOST_ANSWERING_SHARE, MOST_CHOOSING_SHARE, RESPOND_SECONDS, SLACK, Plan, Work, make_plan

PACKING = PackingConfig(budget=128, budget_range=(64, 256))
LONG = [10_000] * 100  # characters: each fills its sequence
NOW = 50.0


def plan(
    seconds: float,
    chars: list[int] = LONG,
    prepare: float = 0.0,
    model: float = 1e-5,
    backlog: float = 0.0,
    parsing: float = 0.0,
    **work: float,
) -> Plan:
    """By default 128 tokens of 100 documents take 0.128 s, parsed in no time."""
    made = Work(chars, 51, prepare, model, lambda share: min(backlog, share), **work)
    return make_plan(128, PACKING, NOW - parsing, seconds, made, NOW)


def test_enough_time_changes_nothing() -> None:
    made = plan(10.0)
    assert made.budget == 128
    assert made.scored_by == pytest.approx(60.0 - RESPOND_SECONDS)
    assert made.prepared_by == pytest.approx(60.0 - RESPOND_SECONDS - SLACK * 0.128)


@pytest.mark.parametrize(
    ("seconds", "changes", "budget"),
    [
        (0.16, {}, 128),
        (0.13, {}, 96),
        (0.09, {}, 64),
        (0.01, {}, 64),  # never fewer than were measured
        (0.30, {"prepare": 1e-7}, 128),  # a million characters: 0.1 s
        (0.24, {"prepare": 1e-7}, 96),
        (0.30, {"backlog": 0.05}, 128),
        (0.30, {"backlog": 0.128}, 96),
        (0.30, {"backlog": 1e4}, 96),  # turns are taken: nobody waits for all of a larger call
        (0.09, {"chars": [30] * 100}, 128),  # 51 + 10 tokens at most
        (0.01, {"model": 0.0}, 128),  # nothing measured yet is no reason to hurry
        (0.16, {"fed": 5.0}, 64),  # what calls were fed before
    ],
)
def test_less_time_is_fewer_tokens(seconds: float, changes: dict[str, Any], budget: int) -> None:
    assert plan(seconds, **changes).budget == budget


def test_the_model_keeps_half_of_the_time_if_it_needs_it() -> None:
    made = plan(0.1, prepare=1.0)
    assert made.prepared_by == pytest.approx(50 + (0.1 - RESPOND_SECONDS) / 2)


def test_a_budget_below_the_range_is_not_raised() -> None:
    assert make_plan(64, PACKING, 50.0, 0.001, Work(LONG, 51, 0, 1e-5, lambda _: 0), NOW).budget == 64


@given(
    st.floats(0, 1e5),
    st.lists(st.integers(0, 10**7), max_size=5),
    st.floats(0, 1),
    st.floats(0, 1),
    st.floats(0, 1e4),
    st.floats(0, 100),
)
def test_whatever_comes_a_plan_is_in_range_and_ends_in_time(
    seconds: float, chars: list[int], prepare: float, model: float, backlog: float, parsing: float
) -> None:
    made = plan(seconds, chars, prepare, model, backlog, parsing)
    assert 64 <= made.budget <= 128
    assert made.prepared_by is not None
    assert made.scored_by is not None
    assert made.prepared_by <= made.scored_by <= 50.0 - parsing + seconds


def test_a_learned_selectors_round_gets_its_share() -> None:
    assert Plan(128).chosen_by(10, 10, NOW) is None
    assert Plan(128, 50.0, 54.0).chosen_by(1000, 1000, NOW) == pytest.approx(52.0)
    assert Plan(128, 50.0, 54.0).chosen_by(30_000, 1000, NOW) == pytest.approx(50 + 4 * MOST_CHOOSING_SHARE)
    assert Plan(128, 49.0, 49.0).chosen_by(3000, 1000, NOW) == pytest.approx(50.0), "time is up"
    assert Plan(128, 50.0, 54.0).chosen_by(0, 0, NOW) == pytest.approx(50.0)


def test_spans_keep_a_share_of_the_time() -> None:
    made = plan(10.0, model=1e-6, answering=0.1)
    assert made.answered_by == pytest.approx(60.0 - RESPOND_SECONDS)
    assert made.scored_by == pytest.approx(60.0 - RESPOND_SECONDS - SLACK * 0.1)
    hurried = plan(0.1, model=1e-6, answering=0.1)
    assert hurried.answered_by is not None
    assert hurried.scored_by == pytest.approx(NOW + (hurried.answered_by - NOW) * (1 - MOST_ANSWERING_SHARE))
