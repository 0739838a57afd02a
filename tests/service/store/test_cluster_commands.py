"""Commands over a cluster of servers that are scripted: who is asked what, in how many round trips, and what an error costs."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from redis.crc import key_slot
from redis.exceptions import AskError, ConnectionError, MovedError, OutOfMemoryError, ResponseError, TimeoutError

from service.store.cluster_commands import MOST_HOPS, Command, Commands, UnconfirmedError
from service.store.cluster_map import Address

Words = Sequence[bytes | str | int]
HALF = 8192
LOW, HIGH = b"b", b"a"  # slots 3300 and 15495


class Scripted:
    """A server that answers to each command as a function says, and counts round trips."""

    def __init__(self, port: int, answer: Callable[[Words], Any]) -> None:
        self.address, self.client, self.away = Address("s", port), self, False
        self.trips: list[list[Words]] = []
        self._answer = answer

    def pipeline(self, *, transaction: bool) -> "Scripted":
        assert not transaction
        self._words: list[Words] = []
        return self

    def __enter__(self) -> "Scripted":
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def execute_command(self, *words: bytes | str | int) -> None:
        self._words.append(words)

    def execute(self, *, raise_on_error: bool) -> list[Any]:
        assert not raise_on_error
        self.trips.append(self._words)
        return [self._answer(words) for words in self._words]


class Halves:
    """A map of two servers, each with half of the slots; what it was told."""

    def __init__(self, low: Scripted, high: Scripted) -> None:
        self.low, self.high = low, high
        self.told: list[tuple[int, Scripted]] = []

    def owner(self, key: bytes) -> Scripted:
        return self.low if key_slot(key) < HALF else self.high

    def redirected(self, error: AskError, _by: Scripted) -> Scripted:
        return self.low if error.port == self.low.address.port else self.high

    def moved(self, slot: int, server: Scripted) -> None:
        self.told.append((slot, server))

    def failed(self, server: Scripted, _error: Exception) -> None:
        server.away = True


Make = Callable[..., tuple[Commands, Halves]]


@pytest.fixture
def make() -> Iterator[Make]:
    made: list[Commands] = []

    def make(low: Callable[[Words], Any], high: Callable[[Words], Any]) -> tuple[Commands, Halves]:
        servers = Halves(Scripted(1, low), Scripted(2, high))
        made.append(Commands(servers))  # type: ignore[arg-type]
        return made[-1], servers

    yield make
    for one in made:
        one.close()


def get(*keys: bytes) -> list[Command]:
    return [Command(key, ("GET", key)) for key in keys]


def echo(words: Words) -> Any:
    return words[-1]


def raising(error: Exception) -> Callable[[Words], Any]:
    def answer(_words: Words) -> Any:
        raise error

    return answer


@given(keys=st.lists(st.binary(max_size=6), max_size=40))
def test_each_server_gets_one_call_and_answers_are_in_order(keys: list[bytes]) -> None:
    servers = Halves(Scripted(1, echo), Scripted(2, echo))
    commands = Commands(servers)  # type: ignore[arg-type]
    assert commands.send(get(*keys)) == keys
    commands.close()
    asked = Counter(key_slot(key) < HALF for key in keys)
    assert [list(map(len, one.trips)) for one in (servers.low, servers.high)] == [
        [asked[low]] if asked[low] else [] for low in (True, False)
    ]


@pytest.mark.parametrize("error", [ConnectionError("gone"), TimeoutError("late"), ValueError("nonsense")])
def test_a_failing_server_fails_only_its_own_keys(make: Make, error: Exception) -> None:
    commands, servers = make(raising(error), echo)
    assert commands.send(get(LOW, HIGH, LOW)) == [error, HIGH, error]
    assert servers.low.away is not isinstance(error, ValueError)
    if servers.low.away:
        again, other = commands.send(get(LOW, HIGH))
        assert isinstance(again, ConnectionError)
        assert other == HIGH
        assert len(servers.low.trips) == 1  # it was not asked again


def test_what_has_moved_is_sent_on_together(make: Make) -> None:
    slot = key_slot(LOW)
    commands, servers = make(lambda _: MovedError(f"{slot} s:2"), echo)
    assert commands.send(get(LOW, HIGH, LOW)) == [LOW, HIGH, LOW]
    assert servers.high.trips == [[("GET", HIGH)], [("GET", LOW), ("GET", LOW)]]
    assert servers.told == [(slot, servers.high)] * 2


def test_keys_on_the_move_are_read_with_asking(make: Make) -> None:
    commands, servers = make(lambda _: AskError(f"{key_slot(LOW)} s:2"), lambda words: "OK" if words == ("ASKING",) else words[-1])
    assert commands.send(get(LOW, LOW)) == [LOW, LOW]
    assert servers.high.trips == [[("ASKING",), ("GET", LOW), ("ASKING",), ("GET", LOW)]]
    assert servers.told == []  # the slot is not its own yet


def test_redirections_between_servers_that_contradict_each_other_end(make: Make) -> None:
    slot = key_slot(LOW)
    commands, servers = make(lambda _: MovedError(f"{slot} s:2"), lambda _: MovedError(f"{slot} s:1"))
    (answer,) = commands.send(get(LOW))
    assert isinstance(answer, MovedError)
    assert len(servers.low.trips) + len(servers.high.trips) == MOST_HOPS


def test_a_change_is_confirmed_by_as_many_replicas_of_each_server(make: Make) -> None:
    full = OutOfMemoryError("full")
    confirm = {("GET", LOW): LOW, ("GET", b"c"): full}
    commands, servers = make(
        lambda words: 1 if words[0] == "WAIT" else confirm.get(tuple(words), b"?"),
        lambda words: 2 if words[0] == "WAIT" else words[-1],
    )
    assert key_slot(b"c") < HALF
    low, high, wrong = commands.send(get(LOW, HIGH, b"c"), replicas=2)
    assert (high, wrong) == (HIGH, full)
    assert isinstance(low, UnconfirmedError)
    assert str(low).startswith("1 of 2 replicas")
    assert [one.trips[0][-1][:2] for one in (servers.low, servers.high)] == [("WAIT", 2)] * 2
    assert commands.send(get(LOW, HIGH), replicas=1) == [LOW, HIGH]


def test_what_cannot_be_confirmed_is_not(make: Make) -> None:
    """A user who may not WAIT, or a server that ended it."""
    commands, _ = make(lambda words: ResponseError("NOPERM") if words[0] == "WAIT" else words[-1], echo)
    (answer,) = commands.send(get(LOW), replicas=1)
    assert isinstance(answer, UnconfirmedError)
    assert "NOPERM of 1 replicas" in str(answer)


def test_a_command_without_a_key_goes_to_every_server(make: Make) -> None:
    commands, servers = make(echo, raising(ConnectionError("gone")))
    low, high = commands.ask_each([servers.low, servers.high], ("INFO", "memory"), ("DBSIZE",))  # type: ignore[list-item]
    assert low == ["memory", "DBSIZE"]
    assert [str(one) for one in high] == ["gone", "gone"]
