import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.admission import Admission, Load, Place
from service.errors import RequestError
from service.metrics import Metrics
from service.settings import Limits


def admission(seconds_a_token: float = 0.0, **limits: int) -> Admission:
    return Admission(Limits(**limits), lambda tokens: tokens * seconds_a_token, Metrics())


def refused(work: Admission, why: str) -> float:
    return work._metrics.registry.get_sample_value("keyblock_refused_total", {"why": why}) or 0.0


def test_what_is_in_flight_is_counted_until_it_is_left() -> None:
    work = admission()
    with work.enter(100) as first:
        first.holds(250)
        first.reads(7, 900.0)
        with work.enter(10) as second:
            second.reads(1, 5.0)
            assert work.load == Load(2, 8, 260, 905.0)
            first.queued()
            assert work.load.tokens == 5.0
    assert work.load == Load()


@given(st.lists(st.tuples(st.integers(0, 10**6), st.integers(1, 2000), st.booleans()), max_size=20), st.randoms())
def test_nothing_is_left_of_what_has_gone(requests: list[tuple[int, int, bool]], random: object) -> None:
    work = admission()
    places: list[Place] = []
    for n_bytes, n_documents, queued in requests:
        place = work.enter(n_bytes)
        place.reads(n_documents, 3.0 * n_documents)
        if queued:
            place.queued()
        places.append(place)
    random.shuffle(places)  # type: ignore[attr-defined]
    for place in places:
        place.__exit__(None, None, None)
    assert work.load == Load()


@pytest.mark.parametrize(
    ("limits", "why", "told"),
    [
        ({"max_requests_in_flight": 1}, "requests", "1 requests are in flight, which is the limit"),
        ({"max_bytes_in_flight": 150}, "bytes", "requests in flight hold 100 bytes, and the limit is 150"),
        ({"max_wait_ms": 1000}, "wait", "3.0 s of work are waiting, and the limit is 1 s"),
    ],
)
def test_one_too_many_is_refused_and_let_in_later(limits: dict[str, int], why: str, told: str) -> None:
    work = admission(seconds_a_token=0.001, **limits)
    with work.enter(100) as place:
        place.reads(10, 3000.0)
        with pytest.raises(RequestError, match=told) as caught:
            work.enter(51)
        assert (caught.value.status, caught.value.retry_after) == (429, 2)  # 3 s less 1 s, or half of 3 s rounded up
        assert refused(work, why) == 1
        assert work.load.requests == 1
    with work.enter(51):
        assert work.load.requests == 1


def test_documents_are_counted_once_they_are_known() -> None:
    work = admission(max_documents_in_flight=10)
    with work.enter(1) as first:
        first.reads(8, 0.0)
        with pytest.raises(RequestError, match="hold 8 documents, and the limit is 10") as caught, work.enter(1) as second:
            second.reads(3, 0.0)
        assert caught.value.retry_after == 1
        assert work.load == Load(1, 8, 1, 0.0)
        with work.enter(1) as third:
            third.reads(2, 0.0)


def test_a_request_alone_may_be_larger_than_what_may_be_in_flight() -> None:
    work = admission(max_documents_in_flight=10, max_bytes_in_flight=10)
    with work.enter(1000) as place:
        place.reads(1000, 1.0)
        assert work.load == Load(1, 1000, 1000, 1.0)
