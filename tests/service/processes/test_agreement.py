"""What the supervisor makes of its processes' answers; with real ones in test_supervisor."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from service.engine.errors import EngineError
from service.keys.keys import Key, Scope
from service.processes.child import Serving
from service.processes.peer import UnexpectedError
from service.processes.watched import AwayError
from service.ranking.reload import Reloaded, ReloadError
from service.remote.replicas import GoneError
from service.remote.wire import Named
from tests.service.processes.faked import Fake, supervisor, unstarted

OLD, NEW, VECTORS = Named("/bundle", "old"), Named("/bundle", "new"), Named("/vectors", "without a graph")
RELOADED = Reloaded(["tiny"], ["tiny"], [], [], 0.1)
AWAY, GONE = AwayError("front process 1 is not running"), GoneError("the process that was asked has gone")
KEY = Key(name="alice", sha256="0" * 64, scopes=frozenset({Scope.RANK}))


def serving(graph: Named, *more: Named, keys: tuple[Key, ...] = ()) -> Serving:
    return Serving((graph, *more), frozenset({graph}), keys)


def front(number: int, **answers: Any) -> Fake:
    return Fake(f"front process {number}", **{"reload": RELOADED, "serving": serving(NEW), **answers})


def model(**answers: Any) -> Fake:
    return Fake("the model's process", **{"serve": None, "names": frozenset({NEW}), **answers})


def test_a_reload_reaches_all_fronts_and_then_the_model(tmp_path: Path) -> None:
    fronts, asked = (front(1), front(2)), model()
    assert asyncio.run(supervisor(tmp_path, asked, *fronts).reload()) == RELOADED
    assert [("reload",) in one.asked for one in fronts] == [True, True]
    assert asked.asked == [("serve", [NEW])]


def test_a_front_that_is_just_started_again_holds_no_reload_up(tmp_path: Path) -> None:
    asked = model()
    assert asyncio.run(supervisor(tmp_path, asked, front(1, reload=AWAY), front(2)).reload()) == RELOADED
    assert asked.asked == [("serve", [NEW])]
    (tmp_path / "model").unlink()
    with pytest.raises(ReloadError, match="no front process is running: try again"):
        asyncio.run(supervisor(tmp_path, model(), front(1, reload=AWAY)).reload())


@pytest.mark.parametrize("error", [GoneError("gone"), EngineError("no room"), UnexpectedError("serve failed")])
def test_a_model_that_keeps_what_it_has_open_fails_no_reload(
    tmp_path: Path, error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    """It has opened the new bundles for the fronts already."""
    assert asyncio.run(supervisor(tmp_path, model(serve=error), front(1)).reload()) == RELOADED
    assert f"the model's process keeps what it had open: {error}" in caplog.text


@pytest.mark.parametrize(
    ("first", "second", "partly", "said"),
    [
        (ReloadError("no bundle"), RELOADED, False, "^no bundle$"),
        (RELOADED, ReloadError("no bundle"), True, "^no bundle; 1 of 2 processes serve it$"),
        (AWAY, UnexpectedError("reload failed"), False, "^reload failed$"),
        (GONE, RELOADED, True, "^front process 1 ended meanwhile, and is started again; 0 of 2 processes serve it$"),
        (RELOADED, GONE, True, "^front process 2 ended meanwhile, and is started again; 1 of 2 processes serve it$"),
    ],
)
def test_an_error_says_what_has_changed(tmp_path: Path, first: Any, second: Any, partly: bool, said: str) -> None:
    with pytest.raises(ReloadError, match=said) as refused:
        asyncio.run(supervisor(tmp_path, model(), front(1, reload=first), front(2, reload=second)).reload())
    assert refused.value.partly is partly


def test_a_request_that_ends_one_front_is_not_sent_to_the_next(tmp_path: Path) -> None:
    """A bundle that ends, or holds up, whoever reads it costs one front and not all of them, however often somebody asks."""
    other = front(2)
    with pytest.raises(ReloadError, match="front process 1 ended meanwhile"):
        asyncio.run(supervisor(tmp_path, model(), front(1, reload=GONE), other).reload())
    (tmp_path / "model").unlink()
    with pytest.raises(ReloadError, match="front process 3 ended while it read them, and has not started again yet"):
        asyncio.run(supervisor(tmp_path, model(), other, front(3, reload=AWAY, in_doubt=True)).reload())
    assert other.asked == []


@pytest.mark.parametrize(
    ("names", "servings", "differ"),
    [
        ({NEW}, [serving(NEW), serving(NEW)], False),
        ({NEW}, [serving(NEW, VECTORS), serving(NEW, VECTORS)], False),
        ({OLD}, [serving(NEW), serving(NEW)], True),
        ({NEW}, [serving(NEW), serving(OLD)], True),
        ({NEW}, [serving(NEW), serving(NEW, VECTORS)], True),
        ({NEW}, [serving(NEW), serving(NEW, keys=(KEY,))], True),
    ],
)
def test_processes_that_have_read_other_bundles_or_keys(
    tmp_path: Path, names: set[Named], servings: list[Serving], differ: bool
) -> None:
    fronts = [front(number, serving=one) for number, one in enumerate(servings, 1)]
    assert asyncio.run(supervisor(tmp_path, model(names=frozenset(names)), *fronts).differ()) is differ


def test_what_an_ended_front_held_is_given_back_and_its_end_is_counted(tmp_path: Path) -> None:
    made = unstarted(tmp_path, 2)
    first, second = made._loads
    first.requests, second.requests, second.bytes = 1, 3, 500
    made._fronts[1]._on_end("silent")
    made._model._on_end("killed")
    assert (first.requests, second.requests, second.bytes) == (1, 0, 0)
    counted = made._metrics.registry.get_sample_value
    for labels in ({"process": "front", "why": "silent"}, {"process": "model", "why": "killed"}):
        assert counted("keyblock_process_restarts_total", labels) == 1
    assert [front._waits_for for front in made._fronts] == [made._model] * 2


def test_processes_are_reloaded_until_all_have_read_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The model's process has read the new bundle; the front cannot at first, half of whose files are not there yet."""
    monkeypatch.setattr("service.processes.supervisor.LONGEST_PAUSE", 0.0)
    one = front(1, reload=[ReloadError("half of it"), RELOADED], serving=[serving(OLD), serving(OLD), serving(NEW)])
    made = supervisor(tmp_path, model(), one)

    async def run() -> None:
        agreeing = asyncio.create_task(made._keep_agreed())
        made._changed.set()
        while len(one.asked) < 6:
            await asyncio.sleep(0)
        agreeing.cancel()

    asyncio.run(run())
    assert [method for method, *_ in one.asked] == ["serving", "reload", "serving", "reload", "serving", "serving"]


def test_a_process_that_is_being_started_is_waited_for(tmp_path: Path) -> None:
    """Which is compared with the others once it has."""
    one = front(1, serving=[AWAY, serving(OLD), serving(NEW)])
    made = supervisor(tmp_path, model(), one)

    async def run() -> None:
        agreeing = asyncio.create_task(made._keep_agreed())
        for asked in (1, 4):
            made._changed.set()
            while len(one.asked) < asked:
                await asyncio.sleep(0)
        agreeing.cancel()

    asyncio.run(run())
    assert [method for method, *_ in one.asked][:3] == ["serving", "serving", "reload"]
