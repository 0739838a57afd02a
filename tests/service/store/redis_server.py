"""A real redis-server or valkey-server for tests, which they may stop and start, with TLS if it gets certificates."""

import os
import shutil
import subprocess
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from tests.service.faults import wait_for
from tests.support.ports import free_port
from tests.support.programs import missing, need

BRANDS = {"redis": "redis-server redis-tools", "valkey": "valkey-server valkey-tools"}
"""Brands whose programs can be used, in order of preference, with their Debian packages."""
CHOICE = "KEYBLOCK_TEST_REDIS"
"""An environment variable that chooses a brand."""

until = partial(wait_for, seconds=60.0, pause=0.05)  # a failover takes three seconds


class Certificates(NamedTuple):
    """The certificate of a server on 127.0.0.1, its key, and the certificate of its authority, which clients trust."""

    authority: Path
    certificate: Path
    key: Path

    def of_server(self, port: int) -> tuple[str, ...]:
        """Options of a server that accepts only TLS, and does not ask clients for certificates."""
        files = (
            "--tls-cert-file",
            str(self.certificate),
            "--tls-key-file",
            str(self.key),
            "--tls-ca-cert-file",
            str(self.authority),
        )
        return ("--port", "0", "--tls-port", str(port), *files, "--tls-auth-clients", "no", "--tls-replication", "yes")


def certified(folder: Path) -> Certificates:
    """Certificates that are valid for a day."""
    openssl = need("openssl", "openssl")
    authority, certificate = folder / "authority.pem", folder / "server.pem"
    new = (openssl, "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "1")
    signs = ("-subj", "/CN=authority", "-keyout", str(folder / "authority.key"), "-out", str(authority))
    signed = ("-CA", str(authority), "-CAkey", str(folder / "authority.key"), "-addext", "basicConstraints=critical,CA:FALSE")
    shown = ("-subj", "/CN=server", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(folder / "server.key"))
    for words in ((*new, *signs), (*new, *signed, *shown, "-out", str(certificate))):
        subprocess.run(words, check=True, capture_output=True)
    return Certificates(authority, certificate, folder / "server.key")


def need_redis(role: str = "server") -> str:
    """The path of the program of a role, `server` or `cli`."""
    brands = [chosen] if (chosen := os.environ.get(CHOICE)) else list(BRANDS)
    paths = [path for brand in brands if (path := shutil.which(f"{brand}-{role}"))]
    return paths[0] if paths else missing(f"{brands[0]}-{role} is not installed (Debian: apt install {BRANDS[brands[0]]})")


def need_tls() -> None:
    """A server that was built without TLS rejects the first of these options."""
    command = [need_redis(), "--tls-port", "0", "--no-such-option", "1"]
    said = subprocess.run(command, check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT).stdout
    if b"no-such-option" not in said:
        missing("the Redis that is installed was built without TLS")


class RedisServer:
    """A server on a port of 127.0.0.1, which is not started yet; it has its data again after a restart."""

    def __init__(self, folder: Path, *options: str, password: str = "", certificates: Certificates | None = None) -> None:
        self.port = free_port()
        self.url = f"redis://127.0.0.1:{self.port}/0"
        listens: tuple[str, ...] = ("--port", str(self.port))
        again = Retry(NoBackoff(), 0)
        self._reached: dict[str, Any] = {"port": self.port, "password": password, "socket_timeout": 1.0, "retry": again}
        if certificates is not None:
            self.url = f"rediss://127.0.0.1:{self.port}/0?ssl_ca_certs={certificates.authority}"
            listens = certificates.of_server(self.port)
            self._reached |= {"ssl": True, "ssl_ca_certs": str(certificates.authority)}
        place = (*listens, "--bind", "127.0.0.1", "--dir", str(folder))
        durable = ("--appendonly", "yes", "--appendfsync", "always", "--save", "")
        passwords = ("--requirepass", password, "--masterauth", password)
        self._command = [need_redis(), *place, *durable, *passwords, *options]
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, *options: str) -> None:
        """Start a server that is not running."""
        self._process = subprocess.Popen([*self._command, *options], stdout=subprocess.DEVNULL)
        until(lambda: self.ask("PING") is not None)

    @property
    def running(self) -> bool:
        return self._process is not None

    def stop(self) -> None:
        """Kill it, if it is running."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def ask(self, *words: str | bytes | int) -> object:
        """Its answer to a command; None if it does not answer."""
        with redis.Redis(host="127.0.0.1", **self._reached) as client:
            try:
                return client.execute_command(*words)
            except (redis.ConnectionError, redis.TimeoutError):
                return None
