"""A private redis-server or valkey-server for a benchmark or test, with TLS if it gets certificates."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

BRANDS = {"redis": "redis-server redis-tools", "valkey": "valkey-server valkey-tools"}
"""Brands whose programs can be used, in order of preference, with their Debian packages."""
CHOICE = "KEYBLOCK_TEST_REDIS"
"""An environment variable that chooses a brand."""


class MissingRedisError(RuntimeError):
    """A needed program is not installed; the message is one line."""


class Certificates(NamedTuple):
    """The certificate of a server on 127.0.0.1, and that of its authority.

    Attributes:
        authority: the authority's certificate, which clients trust.
        certificate: the server's certificate, signed by the authority.
        key: the key of the server's certificate.
    """

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
    """Make certificates that are valid for a day. Raises MissingRedisError if openssl is not installed."""
    openssl = shutil.which("openssl")
    if openssl is None:
        raise MissingRedisError("openssl is not installed (Debian: apt install openssl)")
    authority, certificate = folder / "authority.pem", folder / "server.pem"
    new = (openssl, "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "1")
    signs = ("-subj", "/CN=authority", "-keyout", str(folder / "authority.key"), "-out", str(authority))
    signed = ("-CA", str(authority), "-CAkey", str(folder / "authority.key"), "-addext", "basicConstraints=critical,CA:FALSE")
    shown = ("-subj", "/CN=server", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(folder / "server.key"))
    for words in ((*new, *signs), (*new, *signed, *shown, "-out", str(certificate))):
        subprocess.run(words, check=True, capture_output=True)
    return Certificates(authority, certificate, folder / "server.key")


def program(role: str) -> str:
    """The path of the program of a role, `server` or `cli`. Raises MissingRedisError if none is installed."""
    brands = [chosen] if (chosen := os.environ.get(CHOICE)) else list(BRANDS)
    for brand in brands:
        if path := shutil.which(f"{brand}-{role}"):
            return path
    raise MissingRedisError(f"{brands[0]}-{role} is not installed (Debian: apt install {BRANDS[brands[0]]})")


def knows_tls() -> bool:
    """Whether the server was built with TLS: without TLS it rejects the first option. Raises MissingRedisError."""
    command = [program("server"), "--tls-port", "0", "--no-such-option", "1"]
    return b"no-such-option" in subprocess.run(command, check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT).stdout


@contextmanager
def redis_server(folder: Path, port: int, *options: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run a server on a port of 127.0.0.1, with its data in `folder`, and kill it when the block ends. Raises MissingRedisError."""
    place = ("--port", str(port), "--bind", "127.0.0.1", "--dir", str(folder))
    process = subprocess.Popen([program("server"), *place, *options], stdout=subprocess.DEVNULL)
    try:
        yield process
    finally:
        process.kill()
        process.wait()
