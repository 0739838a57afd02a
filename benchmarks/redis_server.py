"""A redis-server of a benchmark's or test's own, or Valkey's; with TLS where certificates are given."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

BRANDS = {"redis": "redis-server redis-tools", "valkey": "valkey-server valkey-tools"}
"""Whose programs may be taken, the first that are here, and the packages of Debian that have them."""
CHOICE = "KEYBLOCK_TEST_REDIS"
"""An environment variable that names one of them."""


class MissingRedisError(RuntimeError):
    """There is no redis-server here, or none that knows TLS; one line."""


class Certificates(NamedTuple):
    """What a server on 127.0.0.1 shows, and who vouches for it.

    Attributes:
        authority: a certificate that clients trust.
        certificate: the server's, signed by the authority.
        key: of that certificate.
    """

    authority: Path
    certificate: Path
    key: Path

    def of_server(self, port: int) -> tuple[str, ...]:
        """Options of a server that speaks TLS alone, to clients that need no certificate."""
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
    """New ones, valid for a day. Raises MissingRedisError where openssl is not here."""
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
    """The path of a `server` or a `cli`. Raises MissingRedisError, one line."""
    brands = [chosen] if (chosen := os.environ.get(CHOICE)) else list(BRANDS)
    for brand in brands:
        if path := shutil.which(f"{brand}-{role}"):
            return path
    raise MissingRedisError(f"{brands[0]}-{role} is not installed (Debian: apt install {BRANDS[brands[0]]})")


def knows_tls() -> bool:
    """Whether the server was built with TLS: one that was not stumbles over its first option. Raises MissingRedisError."""
    asked = [program("server"), "--tls-port", "0", "--no-such-option", "1"]
    return b"no-such-option" in subprocess.run(asked, check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT).stdout


@contextmanager
def redis_server(folder: Path, port: int, *options: str) -> Iterator[subprocess.Popen[bytes]]:
    """Started on a port of 127.0.0.1, with a folder for what it keeps; killed when the block ends. Raises MissingRedisError."""
    place = ("--port", str(port), "--bind", "127.0.0.1", "--dir", str(folder))
    process = subprocess.Popen([program("server"), *place, *options], stdout=subprocess.DEVNULL)
    try:
        yield process
    finally:
        process.kill()
        process.wait()
