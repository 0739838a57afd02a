"""keyblock-serve in a process of its own, with room for one request, which a test may take."""

import os
import re
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread

ROOT = Path(__file__).resolve().parents[2]
COMMAND = Path(os.environ.get("KEYBLOCK_SERVE", ROOT / ".venv" / "bin" / "keyblock-serve"))
HOST = "127.0.0.1"
PATIENCE = 100.0  # seconds until a test gives up
LONG = b"a b. " + b"x" * 3_500_000  # one word that is no language: read at once, and more than a connection's buffers hold
BODY = b'{"query": "a", "return_documents": true, "documents": ["%b", "%b"]}' % (LONG, LONG)
UNREAD = b"POST /rerank HTTP/1.1\r\nhost: localhost\r\ncontent-length: %d\r\n\r\n%b" % (
    len(BODY),
    BODY,
)  # its answer is not read


class Service:
    """A running service, ready or only just alive; `stop` it.

    Args:
        log: the file of what it prints.
        until: what it answers before it is used.
        more: settings.
    """

    def __init__(self, log: Path, until: str = "/health/ready", **more: object) -> None:
        with socket.create_server((HOST, 0)) as server:
            self.port = server.getsockname()[1]
        self.url = f"http://{HOST}:{self.port}"
        self._log = log
        settings = {
            "HOST": HOST,
            "PORT": self.port,
            "PROVIDER": "cpu",
            "THREADS": 1,
            "MAX_REQUESTS_IN_FLIGHT": 1,
            "BODY_SECONDS": 600,
            **more,
        }
        kept = {name: value for name, value in os.environ.items() if not name.startswith("KEYBLOCK_")}
        given = {f"KEYBLOCK_{name}": str(value) for name, value in settings.items()}
        with log.open("wb") as output:
            self._process = subprocess.Popen([str(COMMAND)], env=kept | given, stdout=output, stderr=subprocess.STDOUT)
        wait_for(lambda: self._answers(until))

    def _answers(self, path: str) -> bool:
        assert self._process.poll() is None, self._log.read_text(errors="replace")
        try:
            with urllib.request.urlopen(self.url + path) as answer:
                return bool(answer.status == 200)
        except urllib.error.URLError:
            return False

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait(PATIENCE)

    def metric(self, name: str) -> float:
        """The value of a metric, written as /metrics writes it."""
        with urllib.request.urlopen(f"{self.url}/metrics") as answer:
            found = re.search(rf"^{re.escape(name)} (\S+)$", answer.read().decode(), re.MULTILINE)
        return float(found[1]) if found else 0.0

    @property
    def refused(self) -> float:
        """Requests refused because another had the only place."""
        return self.metric('keyblock_refused_total{why="requests"}')

    @contextmanager
    def full(self) -> Iterator[socket.socket]:
        """While it lasts, or until what it gives is closed, every request is refused with 429 and Retry-After."""
        with socket.socket() as connection:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            connection.connect((HOST, self.port))
            connection.sendall(UNREAD)
            wait_for(lambda: self._in_flight == 1)
            yield connection
        wait_for(lambda: self._in_flight == 0)

    @contextmanager
    def full_once(self) -> Iterator[None]:
        """The next request is refused, and the one after it finds room: of a client that asks again when it is told to."""
        before = self.refused
        with self.full() as place:
            leaving = Thread(target=self._leave, args=(place, before))
            leaving.start()
            yield
            leaving.join()
        assert self.refused == before + 1

    def _leave(self, place: socket.socket, refused: float) -> None:
        """Give the place back as soon as somebody was refused."""
        wait_for(lambda: self.refused > refused)
        place.close()

    @property
    def _in_flight(self) -> float:
        return self.metric("keyblock_in_flight_requests")


def wait_for(condition: Callable[[], bool]) -> None:
    """Until it holds."""
    until = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.02)
