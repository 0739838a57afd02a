"""A real redis-server for tests, which they may stop and start."""

import subprocess
from pathlib import Path

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from benchmarks.event_loop import free_port
from tests.programs import need
from tests.service.faults import wait_for


class RedisServer:
    """Keeps what it is told in a file, so that it is there again after a restart."""

    def __init__(self, directory: Path) -> None:
        self._program = need("redis-server", "redis-server")
        self.port = free_port()
        self.url = f"redis://127.0.0.1:{self.port}/0"
        self._directory = directory
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, *options: str) -> None:
        durable = ["--appendonly", "yes", "--appendfsync", "always", "--save", ""]
        place = ["--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self._directory)]
        self._process = subprocess.Popen([self._program, *place, *durable, *options], stdout=subprocess.DEVNULL)
        wait_for(self._answers)

    def _answers(self) -> bool:
        with redis.Redis(port=self.port, retry=Retry(NoBackoff(), 0)) as client:
            try:
                return bool(client.ping())
            except redis.AuthenticationError:
                return True
            except redis.ConnectionError:
                return False

    def stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None
