"""A redis-server of a benchmark's own."""

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class MissingRedisError(RuntimeError):
    """There is no redis-server here; one line."""


@contextmanager
def redis_server(folder: Path, port: int, *options: str) -> Iterator[subprocess.Popen[bytes]]:
    """Started on a port of 127.0.0.1, with a folder for what it keeps; killed when the block ends. Raises MissingRedisError."""
    program = shutil.which("redis-server")
    if program is None:
        raise MissingRedisError("redis-server is not installed (Debian: apt install redis-server)")
    place = ("--port", str(port), "--bind", "127.0.0.1", "--dir", str(folder))
    process = subprocess.Popen([program, *place, *options], stdout=subprocess.DEVNULL)
    try:
        yield process
    finally:
        process.kill()
        process.wait()
