"""A real redis-server for tests, which they may stop and start."""

import subprocess
from pathlib import Path

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from tests.service.faults import wait_for
from tests.support.ports import free_port
from tests.support.programs import missing
from tests.support.redis_server import Certificates, MissingRedisError, certified, knows_tls, program


def need_redis() -> str:
    """The path of a server; its client is here, too."""
    try:
        program("cli")
        return program("server")
    except MissingRedisError as error:
        missing(str(error))


def need_tls(folder: Path) -> Certificates:
    """The certificates of a server with TLS."""
    need_redis()
    if not knows_tls():
        missing("the Redis that is installed was built without TLS")
    try:
        return certified(folder)
    except MissingRedisError as error:
        missing(str(error))


class RedisServer:
    """Keeps what it is told in a file, so that it is there again after a restart."""

    def __init__(self, directory: Path, certificates: Certificates | None = None) -> None:
        self._program = need_redis()
        self.port = free_port()
        self.url = f"redis://127.0.0.1:{self.port}/0"
        self._listens: tuple[str, ...] = ("--port", str(self.port))
        if certificates is not None:
            self.url = f"rediss://127.0.0.1:{self.port}/0?ssl_ca_certs={certificates.authority}"
            self._listens = certificates.of_server(self.port)
        self._directory = directory
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, *options: str) -> None:
        durable = ["--appendonly", "yes", "--appendfsync", "always", "--save", ""]
        place = [*self._listens, "--bind", "127.0.0.1", "--dir", str(self._directory)]
        self._process = subprocess.Popen([self._program, *place, *durable, *options], stdout=subprocess.DEVNULL)
        wait_for(self._answers)

    def _answers(self) -> bool:
        with redis.Redis.from_url(self.url, retry=Retry(NoBackoff(), 0)) as client:
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
