"""The event loop stays free while large documents are prepared; benchmarks/event_loop.py measures the same at full size."""

import os
import socket
import statistics
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.event_loop import Upload, free_port, make_body, wait_ready, watch

ENOUGH_LOOKS = 5  # a loop that is not free is looked at once: that look takes as long as the preparation


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a port is not kept")
def test_a_free_port_stays_reserved_for_a_server_socket() -> None:
    port = free_port()
    with socket.socket() as other, pytest.raises(OSError, match="in use"):
        other.bind(("127.0.0.1", port))
    for _ in range(2):
        with socket.create_server(("127.0.0.1", port)), socket.create_connection(("127.0.0.1", port)):
            pass
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port))


def test_health_is_answered_while_large_documents_are_prepared(bundle_path: Path) -> None:
    port = free_port()
    command = [sys.executable, "-m", "service.cli", "--port", str(port), "--provider", "cpu", "--bundle", str(bundle_path)]
    server = subprocess.Popen(
        command, env=os.environ | {"KEYBLOCK_CACHE_BYTES": "0", "KEYBLOCK_SCORE_CACHE_BYTES": "0"}, stderr=subprocess.DEVNULL
    )
    try:
        wait_ready(port)
        upload = Upload(port, make_body(60, 20_000))
        upload.start()
        looks = watch(upload)
    finally:
        server.terminate()
        server.wait(60)
    seconds = (upload.timings["parse"] + upload.timings["prepare"]) / 1e3
    took = [look for when, look in looks if upload.sent < when < upload.sent + seconds]
    assert len(took) >= ENOUGH_LOOKS
    assert statistics.median(took) < seconds / ENOUGH_LOOKS
