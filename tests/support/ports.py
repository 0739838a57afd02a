"""Ports of 127.0.0.1, and waiting for a server on one."""

import socket
import sys
import time
import urllib.error
import urllib.request

START_SECONDS = 120


def free_port() -> int:
    """A port that no server listens on.

    On Linux no other process gets it while this process lives: the port stays bound to a socket that never listens. A server that
    binds it with SO_REUSEADDR, as servers do, shares it with that socket.
    """
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
        if sys.platform == "linux":  # elsewhere a second one could not bind it
            probe.detach()
        return port


def get(port: int, path: str) -> float:
    """Seconds until the answer; raises OSError when there is none."""
    began = time.perf_counter()
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=60) as response:
        response.read()
    return time.perf_counter() - began


def wait_ready(port: int) -> None:
    """Wait until /health/ready answers. Raises OSError after START_SECONDS."""
    until = time.perf_counter() + START_SECONDS
    while True:
        try:
            get(port, "/health/ready")
        except (OSError, urllib.error.URLError):
            if time.perf_counter() > until:
                raise
            time.sleep(0.1)
        else:
            return
