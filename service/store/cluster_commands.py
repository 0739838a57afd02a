"""Sends commands of one key each over a Redis Cluster: a pipeline for each server, all at once; moved keys are sent on together.

redis-py's own pipeline for clusters fails as a whole if one server is away, and sends moved keys on one by one.
"""

from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import groupby
from typing import Any, NamedTuple

from redis.exceptions import AskError, ClusterDownError, ConnectionError, MovedError, RedisError

from service.store.cluster_map import ClusterMap, Server
from service.store.redis_client import ANSWER_SECONDS, ERRORS, NO_ANSWER

MOST_HOPS = (
    5  # of a command that is sent on: a slot moves seldom, and a cluster whose servers contradict each other is not waited for
)
THREADS = 64  # pipelines under way; each thread of the service has at most one to each server
WAIT_MILLISECONDS = int(ANSWER_SECONDS * 500)  # that replicas get to confirm

UNREACHABLE = "no server of the cluster could be reached"

Answer = Any
"""The server's answer to a command, or the error in its place."""


class UnconfirmedError(RedisError):
    """A change is on its server, but not on as many replicas as required."""


class Command(NamedTuple):
    """A command of one key; its words include the key."""

    key: bytes
    words: tuple[bytes | str | int, ...]


class _InFlight(NamedTuple):
    """A command on its way: the number of its answer, its server, and whether the server is only about to get the key's slot."""

    number: int
    server: Server
    asking: bool = False


class Commands:
    """Sends commands over a cluster.

    Args:
        servers: gives the server of each key.
    """

    def __init__(self, servers: ClusterMap) -> None:
        self._map = servers
        self._threads = ThreadPoolExecutor(THREADS, "store-server")

    def send(self, commands: Sequence[Command], *, replicas: int = 0) -> list[Answer]:
        """The answers, in order; errors are answers too. Commands of one key are carried out in their order.

        Args:
            commands: of one key each.
            replicas: number of replicas of each server that must have its changes; otherwise the answers are UnconfirmedErrors.
        """
        answers: list[Answer] = [ConnectionError(UNREACHABLE)] * len(commands)
        owners = enumerate(self._map.owner(command.key) for command in commands)
        left = [_InFlight(number, owner) for number, owner in owners if owner is not None]
        for _ in range(MOST_HOPS):
            parts = _by_server(left)
            work = self._threads.map(lambda part: self._ask(part, commands, replicas), parts)
            for part, got in zip(parts, work, strict=True):
                for sent, answer in zip(part, got, strict=True):
                    answers[sent.number] = answer
            left = [self._redirect(sent, answers[sent.number]) for sent in left if isinstance(answers[sent.number], AskError)]
            if not left:
                break
        return answers

    def ask_each(self, servers: Iterable[Server], *commands: Sequence[str]) -> list[list[Answer]]:
        """The answers of each server to commands without a key."""
        return list(self._threads.map(lambda server: self._pipelined(server, commands), servers))

    def close(self) -> None:
        """End the threads."""
        self._threads.shutdown(wait=True)

    def _ask(self, part: Sequence[_InFlight], commands: Sequence[Command], replicas: int) -> list[Answer]:
        """The answers of one server to its part of the commands."""
        words: list[Sequence[bytes | str | int]] = []
        for sent in part:
            words += [("ASKING",)] * sent.asking + [commands[sent.number].words]
        places = [number for number, one in enumerate(words) if one != ("ASKING",)]
        if replicas:
            words.append(("WAIT", replicas, WAIT_MILLISECONDS))
        got = self._pipelined(part[0].server, words)
        answers = [got[place] for place in places]
        if replicas and not (isinstance(got[-1], int) and got[-1] >= replicas):
            problem = UnconfirmedError(f"{got[-1]} of {replicas} replicas have what was stored (KEYBLOCK_STORE_REPLICAS)")
            return [one if isinstance(one, Exception) else problem for one in answers]
        return answers

    def _pipelined(self, server: Server, words: Sequence[Sequence[bytes | str | int]]) -> list[Answer]:
        if server.away:
            return [ConnectionError(f"{server.address} could not be reached a moment ago")] * len(words)
        try:
            with server.client.pipeline(transaction=False) as pipe:
                for one in words:
                    pipe.execute_command(*one)  # type: ignore[no-untyped-call]
                got: list[Answer] = pipe.execute(raise_on_error=False)
        except ERRORS as error:
            got = [error] * len(words)
        # ClusterDownError: it is cut off from the others, and has lost its slots
        if all(isinstance(one, (*NO_ANSWER, ClusterDownError)) for one in got):
            self._map.failed(server, got[0])
        return got

    def _redirect(self, sent: _InFlight, error: AskError) -> _InFlight:
        """The command, for the server that a redirection names."""
        server = self._map.redirected(error, sent.server)
        if isinstance(error, MovedError):
            self._map.moved(error.slot_id, server)
        return _InFlight(sent.number, server, asking=not isinstance(error, MovedError))


def _by_server(sent: Sequence[_InFlight]) -> list[list[_InFlight]]:
    """The commands by server, each part in the order of their numbers."""
    ordered = sorted(sent, key=lambda one: (id(one.server), one.number))
    return [list(part) for _, part in groupby(ordered, key=lambda one: id(one.server))]
