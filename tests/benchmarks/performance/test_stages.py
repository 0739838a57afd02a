"""Where a request's time went."""

import pytest

from benchmarks.performance.stages import share_before, split
from tests.support.serving import Answer

ANSWER = Answer(2.0, [], {"parse": 0.1, "prepare": 0.2, "queue": 0.05, "model": 1.4, "total": 1.8}, 0)


def test_the_stages_add_up_to_what_the_client_waited() -> None:
    stages = split(ANSWER)
    assert stages.pop("whole") == 2.0
    assert sum(stages.values()) == pytest.approx(2.0)
    assert stages["transfer"] == pytest.approx(0.2)
    assert stages["after"] == pytest.approx(0.05)


def test_all_but_the_model_and_what_follows_is_before_it() -> None:
    assert share_before(split(ANSWER)) == pytest.approx((0.1 + 0.2 + 0.05 + 0.2) / 2.0)
