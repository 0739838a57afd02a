"""A simulated Redis server behind the real client: it reads commands from a socket, runs them, and answers as Redis does."""

from collections.abc import Callable
from typing import Any

import redis

from benchmarks.simulation.store import Key, Shelf

FULL, UNKNOWN = b"-OOM command not allowed when used memory > 'maxmemory'.\r\n", b"-ERR unknown command\r\n"
OK, QUEUED, NONE = b"+OK\r\n", b"+QUEUED\r\n", b"_\r\n"  # of version 3 of the protocol, which the client requests
CHANGES, GREETINGS = (b"SET", b"EVALSHA"), (b"HELLO", b"CLIENT", b"PING")
SHA = b"0" * 40


class SimulatedConnection(redis.Connection):
    """A client's connection to the shelf of its class; see `connection`."""

    shelf: Shelf

    def _connect(self) -> Any:
        if self.shelf.away:
            raise ConnectionRefusedError(111, "Connection refused")
        return Socket(self.shelf)

    def _host_error(self) -> str:
        return "simulated"


def connection(of: Shelf) -> type:
    """A class of connections to a server with this shelf."""
    return type("ToShelf", (SimulatedConnection,), {"shelf": of})


class Socket:
    """The methods of a socket that the client uses.

    Args:
        shelf: the server's documents.
    """

    def __init__(self, shelf: Shelf) -> None:
        self._shelf, self._timeout = shelf, 2.0
        self._answer, self._ready_at = b"", 0.0
        self._queue: list[list[bytes]] | None = None
        self._closed = self._refused = False

    def settimeout(self, seconds: float | None) -> None:
        """Set the seconds to wait for an answer; 0 does not wait."""
        self._timeout = 1e6 if seconds is None else seconds

    def sendall(self, data: bytes, *_flags: int) -> None:
        """Send commands to the server, which runs them and begins to answer."""
        if self._closed or self._shelf.away:
            self._closed = True
            raise BrokenPipeError(32, "Broken pipe")
        self._shelf.machine.spend(self._shelf.seconds / 2)
        if self._shelf.away:
            self._closed = True
            return
        commands = _commands(bytes(data))
        answer = b"".join(self._do(command) for command in commands)
        if (self._shelf.mute or self._shelf.cut) and commands[0][0] not in GREETINGS:
            self._closed = True
            answer = answer[: len(answer) // 2] if self._shelf.cut else b""
        self._answer += answer
        self._ready_at = self._shelf.machine.now() + self._shelf.seconds / 2

    def recv(self, size: int, *_flags: int) -> bytes:
        """Part of the answer; empty if the server has closed the connection."""
        machine = self._shelf.machine
        wait = max(self._ready_at - machine.now(), 0.0) if self._answer else 0.0 if self._closed else 1e6
        if not self._timeout and wait:
            raise BlockingIOError(11, "Resource temporarily unavailable")
        if wait:
            machine.spend(min(wait, self._timeout))
        if wait > self._timeout:
            raise TimeoutError("timed out")
        given, self._answer = self._answer[:size], self._answer[size:]
        return given

    def shutdown(self, _how: int) -> None:
        """Close the connection."""
        self._closed = True

    def close(self) -> None:
        """Close the connection, as `shutdown`."""
        self._closed = True

    def getsockname(self) -> tuple[str, int]:
        """An address; any will do."""
        return "simulated", 0

    def _do(self, command: list[bytes]) -> bytes:
        """The answer to a command, or QUEUED inside a transaction."""
        name = command[0].upper()
        if name == b"MULTI":
            self._queue, self._refused = [], False
            return OK
        if name == b"EXEC":
            queue, self._queue = self._queue or [], None
            if self._refused:
                return b"-EXECABORT Transaction discarded because of previous errors.\r\n"
            return b"*%d\r\n" % len(queue) + b"".join(self._done(one) for one in queue)
        if self._shelf.full and name in CHANGES:
            self._refused = True
            return FULL
        if self._queue is not None:
            self._queue.append(command)
            return QUEUED
        return self._done(command)

    def _done(self, command: list[bytes]) -> bytes:
        commands: dict[bytes, Callable[..., bytes]] = {
            b"STRLEN": lambda key: b":%d\r\n" % len(self._shelf.get(_key(key)) or b""),
            b"MGET": lambda *keys: b"*%d\r\n" % len(keys) + b"".join(_bulk(self._shelf.get(_key(key))) for key in keys),
            b"SET": self._set,
            b"DEL": lambda key: b":%d\r\n" % self._shelf.delete(_key(key)),
            b"EVALSHA": self._renew,
            b"SCRIPT": lambda what, *ids: _bulk(SHA) if what == b"LOAD" else b"*%d\r\n" % len(ids) + b":1\r\n" * len(ids),
            b"HELLO": lambda *_: b"%1\r\n$5\r\nproto\r\n:3\r\n",
            b"CLIENT": lambda *_: OK,
            b"PING": lambda: b"+PONG\r\n",
        }
        done = commands.get(command[0].upper())
        return UNKNOWN if done is None else done(*command[1:])

    def _set(self, key: bytes, content: bytes, *expires: bytes) -> bytes:
        self._shelf.put(_key(key), content, int(expires[1]) if expires else 0)
        return OK

    def _renew(self, _sha: bytes, _keys: bytes, key: bytes, head: bytes, content: bytes) -> bytes:
        self._shelf.renew(_key(key), head, content)
        return NONE


def _key(key: bytes) -> Key:
    namespace, identity = key.split(b":", 2)[1:]
    return namespace.decode(), identity.decode()


def _bulk(content: bytes | None) -> bytes:
    return NONE if content is None else b"$%d\r\n%s\r\n" % (len(content), content)


def _commands(data: bytes) -> list[list[bytes]]:
    """The commands sent, as lists of arguments; the client sends whole commands at once."""
    found, at = [], 0

    def number() -> int:
        nonlocal at
        end = data.index(b"\r\n", at)
        value, at = int(data[at + 1 : end]), end + 2
        return value

    while at < len(data):
        arguments = []
        for _ in range(number()):
            length = number()
            arguments.append(data[at : at + length])
            at += length + 2
        found.append(arguments)
    return found
