"""When the model's process ends by itself."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from service.processes.model import watched
from service.remote.holder import Holder
from service.start import NOT_STARTED


def holder(*, alive: bool, hung: bool = False) -> Holder:
    stands_in: Any = SimpleNamespace(engine=SimpleNamespace(alive=alive, hung=hung))
    return cast(Holder, stands_in)


@pytest.mark.parametrize(("hung", "said"), [(True, "the model's thread hangs"), (False, "the model's thread is dead")])
def test_it_ends_where_its_thread_does_not_get_on(hung: bool, said: str, caplog: pytest.LogCaptureFixture) -> None:
    """So that the supervisor starts another one."""
    assert asyncio.run(watched(holder(alive=False, hung=hung), lambda: False)) == NOT_STARTED
    assert said in caplog.text


def test_it_ends_once_nobody_is_left_who_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("service.processes.model.LOOK_SECONDS", 0.0)
    there = iter([False, False, True])
    assert asyncio.run(watched(holder(alive=True), lambda: next(there))) == 0
