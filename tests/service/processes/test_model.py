"""When the model's process ends by itself."""

import asyncio
from collections.abc import AsyncIterator
from concurrent.futures import Future
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any, cast

import pytest

from service.engine.errors import EngineError
from service.processes.child import Control
from service.processes.model import report_warm_up, wait_for_end
from service.remote.holder import Holder
from service.start import NOT_STARTED


def holder(*, alive: bool, hung: bool = False) -> Holder:
    stands_in: Any = SimpleNamespace(engine=SimpleNamespace(alive=alive, hung=hung))
    return cast(Holder, stands_in)


@pytest.mark.parametrize(("hung", "said"), [(True, "the model's thread hangs"), (False, "the model's thread is dead")])
def test_the_model_process_ends_when_its_thread_hangs_or_dies(hung: bool, said: str, caplog: pytest.LogCaptureFixture) -> None:
    """It ends, so that the supervisor starts another one."""
    assert asyncio.run(wait_for_end(holder(alive=False, hung=hung), lambda: False)) == NOT_STARTED
    assert said in caplog.text


def test_the_model_process_reports_loading_until_its_bundles_are_warm() -> None:
    """Or cannot be: then its thread ends, and it with it."""
    warm, cold = Future[None](), Future[None]()
    stands_in: Any = SimpleNamespace(own={"a": SimpleNamespace(warmed=warm), "b": SimpleNamespace(warmed=cold)})
    said: list[str] = []

    @asynccontextmanager
    async def loading() -> AsyncIterator[None]:
        said.append("begins")
        yield
        said.append("ends")

    async def run() -> None:
        warming = asyncio.create_task(report_warm_up(stands_in, cast(Control, SimpleNamespace(loading=loading))))
        warm.set_result(None)
        await asyncio.wait([warming], timeout=0.01)
        assert said == ["begins"]
        cold.set_exception(EngineError("the first run failed"))
        await warming

    asyncio.run(run())
    assert said == ["begins", "ends"]


def test_the_model_process_ends_when_no_client_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("service.processes.model.CHECK_SECONDS", 0.0)
    there = iter([False, False, True])
    assert asyncio.run(wait_for_end(holder(alive=True), lambda: next(there))) == 0
