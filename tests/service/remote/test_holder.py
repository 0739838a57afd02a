"""A replica of the model, without Ray, and what goes to it and comes back."""

import asyncio
import shutil
import time
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from keyblock.bundle import load_bundle
from keyblock.packing import Packed
from keyblock.runtime.session import Session
from service.queue.job import Job, Scored
from service.remote.holder import Holder
from service.remote.wire import NO_BLOCKS, Named, ScoreRequest, named, read, written
from service.settings import Settings

SEQUENCES = [Packed(np.array([101, *range(1000, 1000 + length), 102], np.int32), 4, NO_BLOCKS) for length in (5, 20, 9)]
ASKED = ScoreRequest(written([SEQUENCES[:1], SEQUENCES[1:2], SEQUENCES[2:]]))


@pytest.fixture(scope="module")
def holder(settings: Settings) -> Iterator[Holder]:
    made = Holder(settings)
    made.warm()
    yield made
    made.close()


@pytest.fixture(scope="module")
def own(bundle_path: Path) -> Named:
    return named(load_bundle(bundle_path))


def other(bundle_path: Path, path: Path) -> Named:
    """The same bundle in another place: of another version."""
    shutil.copytree(bundle_path, path)
    return named(load_bundle(path))


def check(scored: Scored | None, session: Session) -> None:
    """They are the graph's logits of each sequence alone."""
    assert scored is not None
    for packed, logit in zip(SEQUENCES, scored.logits, strict=True):
        types = (np.arange(len(packed.ids)) >= packed.split).astype(np.int64)[None]
        alone = session.score(packed.ids[None].astype(np.int64), types, np.ones_like(types))
        assert logit == pytest.approx(float(alone[0]), abs=1e-4)


def test_sequences_are_scored_as_the_graph_scores_each_alone(holder: Holder, own: Named, session: Session) -> None:
    for asked in (ASKED, ASKED._replace(blocks=True)):
        check(asyncio.run(holder.score(own, asked)).scored, session)


def test_calls_are_scored_in_the_order_and_the_time_that_they_name(
    holder: Holder, own: Named, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[int, list[int], float]] = []
    submit = holder.worker.submit

    def watched(job: Job) -> Future[Scored]:
        seen.append((job.priority, job._last_first()[::-1], job.until - time.perf_counter()))
        return submit(job)

    monkeypatch.setattr(holder.worker, "submit", watched)
    asyncio.run(holder.score(own, ASKED._replace(seconds=60.0, order=[2, 0, 1], level=3)))
    ((priority, order, seconds),) = seen
    assert (priority, order) == (3, [2, 0, 1])
    assert 30 < seconds <= 60


def test_the_holder_reports_its_backlog_paces_and_labels(holder: Holder, own: Named) -> None:
    report = asyncio.run(holder.report())
    assert report.waiting.tolist() == []
    assert report.paces[own] > 0
    described = asyncio.run(holder.describe(own))
    assert described.labels == {"precision": "fp32", "provider": "cpu"}
    assert described.about["provider"]["chosen"] == "cpu"


def test_nothing_is_scored_once_time_is_up(holder: Holder, own: Named) -> None:
    reply = asyncio.run(holder.score(own, ASKED._replace(seconds=-1.0, order=[0, 1, 2])))
    assert reply.scored is not None
    assert np.isneginf(reply.scored.logits).all()


def test_the_bundle_of_another_version_is_opened_when_a_call_names_it(
    holder: Holder, own: Named, bundle_path: Path, tmp_path: Path, session: Session
) -> None:
    """The one opened before is closed for the next; the holder's own bundle stays."""
    first, second = other(bundle_path, tmp_path / "first"), other(bundle_path, tmp_path / "second")
    for name in (first, second):
        check(asyncio.run(holder.score(name, ASKED)).scored, session)
    assert set(asyncio.run(holder.report()).paces) == {own, second}


def test_a_cancelled_call_does_not_stop_the_opening_of_a_bundle(holder: Holder, bundle_path: Path, tmp_path: Path) -> None:
    """Else calls with short deadlines would keep each other from it."""
    name = other(bundle_path, tmp_path / "other")

    async def run() -> None:
        leaving = asyncio.create_task(holder.score(name, ASKED))
        await asyncio.sleep(0)
        leaving.cancel()
        while name not in (await holder.report()).paces:
            await asyncio.sleep(0.01)

    asyncio.run(run())
    assert name in asyncio.run(holder.report()).paces


def test_another_bundle_in_the_same_place_is_not_taken_for_it(holder: Holder, own: Named) -> None:
    reply = asyncio.run(holder.score(own._replace(digest="0" * 64), ASKED))
    assert (reply.scored, reply.elsewhere) == (None, True)
    assert "holds another bundle by now: give each version a directory of its own" in reply.problem


def test_a_bundle_that_is_not_there_is_one_line(holder: Holder, own: Named) -> None:
    reply = asyncio.run(holder.score(own._replace(path="/nowhere"), ASKED))
    assert reply.problem.startswith("the model cannot be opened: /nowhere")
    assert "\n" not in reply.problem


def test_a_replica_that_is_ending_says_that_another_may_do_better(settings: Settings, own: Named) -> None:
    ending = Holder(settings)
    ending.close()
    reply = asyncio.run(ending.score(own, ASKED))
    assert (reply.scored, reply.elsewhere) == (None, True)


WIRE_SEQUENCES = st.builds(
    lambda ids, split, weight: Packed(np.asarray(ids, np.int32), min(split, len(ids)), NO_BLOCKS, weight=weight),
    st.lists(st.integers(0, 30_000), min_size=1, max_size=6),
    st.integers(0, 6),
    st.floats(0.25, 8, width=32),
)


def fields(documents: list[list[Packed]]) -> list[list[tuple[list[int], int, float]]]:
    return [[(one.ids.tolist(), one.split, one.weight) for one in document] for document in documents]


@given(st.lists(st.lists(WIRE_SEQUENCES, max_size=4), max_size=5))
def test_what_is_written_is_read(documents: list[list[Packed]]) -> None:
    assert fields(read(written(documents))) == fields(documents)
