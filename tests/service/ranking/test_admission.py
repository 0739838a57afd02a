from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.errors import RequestError
from service.pace import nothing_ahead
from service.ranking.admission import ANSWERING, PREPARING, Admission, Place
from service.settings import Limits
from service.telemetry.metrics import Metrics


def admission(queued: float = 0.0, **limits: int) -> Admission:
    """With so many seconds of work that the model has of one other request."""
    return Admission(Limits(**limits), lambda: lambda own: min(queued, own), Metrics())


def refused(work: Admission, why: str) -> float:
    return work._metrics.registry.get_sample_value("keyblock_refused_total", {"why": why}) or 0.0


@contextmanager
def begun(work: Admission, n_bytes: int, caller: str = "") -> Iterator[Place]:
    """The place of a request whose body has arrived."""
    with work.enter(n_bytes, caller) as place:
        place.set_bytes(n_bytes)
        place.begin()
        yield place


def counts(work: Admission) -> tuple[int, int, int]:
    return work.load.requests, work.load.documents, work.load.bytes


def test_what_is_in_flight_is_counted_until_it_is_left() -> None:
    work = admission()
    with begun(work, 100) as first:
        first.set_bytes(250)
        first.set_documents(7, 9.0, has_deadline=False)
        with begun(work, 10) as second:
            second.set_documents(1, 0.05, has_deadline=True)
            assert counts(work) == (2, 8, 260)
            assert work.wait_seconds() == pytest.approx(9.05)
            for share, left in ((0.25, 6.8), (0.5, 2.3), (0.0, 2.3), (0.25, 0.05)):  # the calls of one request leave one by one
                first.queued(share)
                assert work.wait_seconds() == pytest.approx(left)
    assert counts(work) == (0, 0, 0)
    assert work.wait_seconds() == 0


@given(st.lists(st.tuples(st.integers(0, 10**6), st.integers(1, 2000), st.booleans()), max_size=20), st.randoms())
def test_nothing_is_left_of_what_has_gone(requests: list[tuple[int, int, bool]], random: object) -> None:
    work = admission(max_wait_ms=10**9, max_backlog_ms=10**9)
    places: list[Place] = []
    for n_bytes, n_documents, queued in requests:
        places.append(work.enter(n_bytes))
        places[-1].set_bytes(n_bytes)
        places[-1].begin()
        places[-1].set_documents(n_documents, 3.0 * n_documents, has_deadline=False)
        if queued:
            places[-1].queued()
    random.shuffle(places)  # type: ignore[attr-defined]
    for place in places:
        place.__exit__(None, None, None)
    assert counts(work) == (0, 0, 0)
    assert work.wait_seconds() == 0


@pytest.mark.parametrize(
    ("limits", "why", "problem", "seconds"),
    [
        ({"max_requests_in_flight": 1}, "requests", "1 requests are in flight, which is the limit", 2),
        ({"max_bytes_in_flight": 150}, "bytes", "requests in flight hold 100 bytes, and the limit is 150", 2),
        ({"max_wait_ms": 1000}, "wait", "it would wait 1.5 s for others, and the limit is 1 s", 1),
        ({"max_backlog_ms": 2500}, "wait", "3.0 s of work are waiting, and the limit is 2.5 s", 1),
    ],
)
def test_a_request_beyond_the_limit_is_refused_and_admitted_later(
    limits: dict[str, int], why: str, problem: str, seconds: int
) -> None:
    """The first is of 100 bytes and 3 s; the next is half of it, and takes turns with it."""
    work = admission(**limits)
    with begun(work, 100) as place:
        place.set_documents(10, 3.0, has_deadline=False)
        with pytest.raises(RequestError, match=problem) as caught, begun(work, 51 if why == "bytes" else 50):
            pass
        assert (caught.value.status, caught.value.retry_after) == (429, seconds)
        assert refused(work, why) == 1
        assert work.load.requests == 1
    with begun(work, 51):
        assert work.load.requests == 1


def test_a_small_request_is_let_in_beside_a_huge_one() -> None:
    work = admission(queued=1e3, max_wait_ms=10_000, max_backlog_ms=10**9)
    with begun(work, 400_000) as huge, pytest.raises(RequestError, match=r"it would wait 100\.0 s for others"):
        huge.set_documents(1000, 100.0, has_deadline=False)
    with begun(work, 4_000) as small:
        small.set_documents(10, 1.0, has_deadline=False)
        assert work.wait_seconds(1) == pytest.approx(1 + 1)  # of the model's, and of its own that is not there yet
    with begun(work, 0) as urgent:  # a length that was not declared
        urgent.set_documents(1000, 100.0, has_deadline=True)
        assert work.load.documents == 1000


def test_a_backlog_refuses_what_adds_to_it_and_no_small_request() -> None:
    """Two requests with deadlines bring 200 s of work, past the limit of 60 s: a hundredth of that is small."""
    work = admission(max_wait_ms=10_000, max_backlog_ms=60_000)
    with begun(work, 4_000) as first, begun(work, 0) as second:
        for place in (first, second):
            place.set_documents(1000, 100.0, has_deadline=True)
        with begun(work, 0) as small:
            small.set_documents(10, 0.6, has_deadline=False)
        with begun(work, 0) as larger, pytest.raises(RequestError, match=r"200\.\d s of work are waiting, and the limit is 60 s"):
            larger.set_documents(10, 0.7, has_deadline=False)


def test_the_requests_of_a_slow_model_do_not_refuse_those_of_a_fast_one() -> None:
    """All have 100 bytes and 50 tokens; the slow model takes 1 s for a token, the fast one 1 ms; much waits for the slow one."""
    work = Admission(Limits(max_backlog_ms=10**6), lambda: lambda own: min(40.0, own), Metrics(), lambda: 0.001)
    with begun(work, 100) as slow:
        slow.set_documents(10, 50.0, has_deadline=True, pace=1.0)
        with begun(work, 100) as fast:
            fast.set_documents(10, 0.05, has_deadline=False, pace=0.001)
        with begun(work, 100) as another, pytest.raises(RequestError, match="it would wait 90"):
            another.set_documents(10, 50.0, has_deadline=False, pace=1.0)


def test_documents_are_counted_once_they_are_known() -> None:
    work = admission(max_documents_in_flight=10)
    with begun(work, 1) as first:
        first.set_documents(8, 0.0, has_deadline=False)
        with pytest.raises(RequestError, match="hold 8 documents, and the limit is 10") as caught, begun(work, 1) as second:
            second.set_documents(3, 0.0, has_deadline=True)
        assert caught.value.retry_after == 1
        assert counts(work) == (1, 8, 1)
        with begun(work, 1) as third:
            third.set_documents(2, 0.0, has_deadline=False)
            assert work.load.documents == 10


def test_a_request_that_needs_more_than_all_may_hold_is_never_tried_again() -> None:
    """Of 200 bytes another request holds 60: there are 140 for this one, 190 once that is given back, and 250 never."""
    work = admission(max_bytes_in_flight=200)
    with begun(work, 10) as large:
        with begun(work, 60):
            with pytest.raises(RequestError, match="requests in flight hold 70 bytes, and the limit is 200") as busy:
                large.add_bytes(131)
            assert busy.value.status == 429
            large.add_bytes(130)
        large.add_bytes(50)
        assert counts(work) == (1, 0, 190)
        with pytest.raises(RequestError, match="take 250 bytes once read, and the limit is 200") as refused:
            large.add_bytes(60)
        assert refused.value.status == 422


def test_declared_bytes_need_room_and_those_that_arrive_take_it() -> None:
    work, held = admission(max_bytes_in_flight=100), "requests in flight hold 90 bytes, and the limit is 100"
    with work.enter(90) as slow, work.enter(90) as quick:
        assert counts(work) == (0, 0, 0)
        quick.set_bytes(90)
        assert work.load.bytes == 90
        for refused_one in (lambda: slow.set_bytes(11), lambda: work.enter(11)):
            with pytest.raises(RequestError, match=held):
                refused_one()
        slow.set_bytes(10)
    assert counts(work) == (0, 0, 0)


def test_a_request_is_in_flight_once_its_body_is_there() -> None:
    """Heads without bodies, however many, leave the room to those who send theirs."""
    work = admission(max_requests_in_flight=2, max_bytes_in_flight=100)
    with ExitStack() as left:
        heads = [left.enter_context(work.enter(90)) for _ in range(1000)]
        with begun(work, 90), begun(work, 10) as second:
            second.begin()
            assert counts(work) == (2, 0, 100)
            for refused_one in (heads[0].begin, lambda: work.enter(0)):
                with pytest.raises(RequestError, match="2 requests are in flight"):
                    refused_one()
        heads[0].begin()
    assert counts(work) == (0, 0, 0)


def test_a_caller_has_a_share_and_leaves_the_rest_to_others() -> None:
    limits = Limits(max_requests_in_flight=4, max_bytes_in_flight=100)
    work = Admission(limits, lambda: nothing_ahead, Metrics(), shares=2)
    with begun(work, 30, "alice") as first, begun(work, 20, "alice"):
        with pytest.raises(RequestError, match="2 requests are in flight, which is the limit"):
            work.enter(0, "alice")
        with pytest.raises(RequestError, match="hold 50 bytes, and the limit is 50"):
            first.grow(1)
        with begun(work, 50, "bob") as other:
            other.set_bytes(10)
            with begun(work, 40, "bob"), pytest.raises(RequestError, match="4 requests are in flight"):
                work.enter(0, "carol")
    with begun(work, 1000, "alice") as alone:
        assert counts(work) == (1, 0, 1000)
        alone.set_bytes(2000)
    assert counts(work) == (0, 0, 0)


def test_without_keys_there_is_no_other_caller_to_leave_a_share_to() -> None:
    work = Admission(Limits(max_requests_in_flight=2, max_bytes_in_flight=100), lambda: nothing_ahead, Metrics(), shares=2)
    with begun(work, 50), begun(work, 50), pytest.raises(RequestError, match="2 requests are in flight"):
        work.enter(0)


def test_requests_by_id_do_not_say_how_long_a_text_takes() -> None:
    work = admission(queued=1e7, max_wait_ms=1000, max_backlog_ms=10**12)
    with begun(work, 1_000_000) as by_text:
        by_text.set_documents(10, 0.5, has_deadline=True)
    for _ in range(50):
        with begun(work, 100) as by_id:
            by_id.set_documents(1000, 1000.0, has_deadline=True, by_text=False)
    with begun(work, 1_000_000):
        assert refused(work, "wait") == 0


def test_large_ones_wait_for_what_others_have_to_prepare_at_the_pace_of_the_moment() -> None:
    work, pace = admission(max_wait_ms=1000), 0.1
    with begun(work, 0) as first, begun(work, 0) as second, begun(work, 0) as third:
        for place in (first, second):
            place.set_turn(PREPARING, lambda: 4 * pace, has_deadline=False)
        pace = 0.2  # they are slower than was known
        with pytest.raises(RequestError, match=r"preparing others takes 1\.6 s, and the limit is 1 s") as raised:
            third.set_turn(PREPARING, lambda: 4 * pace, has_deadline=False)
        assert (raised.value.status, raised.value.retry_after) == (429, 1)
        assert refused(work, "wait") == 1
        third.set_turn(PREPARING, lambda: 4 * pace, has_deadline=True)
        for place in (third, second):
            place.queued()  # prepared
        third.set_turn(PREPARING, lambda: 4 * pace, has_deadline=False)
    with begun(work, 0) as fourth:
        fourth.set_turn(PREPARING, lambda: 99.0, has_deadline=False)


def test_answers_are_completed_in_turns_so_that_a_small_one_is_admitted_beside_a_large_one() -> None:
    work = admission(max_wait_ms=1000)
    with work.enter(0) as large, work.enter(0) as small, work.enter(0) as late:
        large.set_turn(ANSWERING, lambda: 60.0, has_deadline=False)
        small.set_turn(ANSWERING, lambda: 0.5, has_deadline=False)
        with pytest.raises(RequestError, match=r"completing the answers of others takes 2\.5 s, and the limit is 1 s"):
            late.set_turn(ANSWERING, lambda: 2.0, has_deadline=False)
        large.queued()  # the model has scored it, and its answer is still to be completed
        with pytest.raises(RequestError):
            late.set_turn(ANSWERING, lambda: 2.0, has_deadline=False)
        large.set_answer(1)
        late.set_turn(ANSWERING, lambda: 2.0, has_deadline=False)
