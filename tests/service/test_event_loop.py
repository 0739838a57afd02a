"""The event loop stays free while large documents are prepared; benchmarks/event_loop.py measures the same at full size."""

import os
import statistics
import subprocess
import sys
from pathlib import Path

from benchmarks.event_loop import Upload, free_port, make_body, wait_ready, watch

ENOUGH_LOOKS = 20
# for nine looks of ten, on a machine with other work; a loop that is not free is away for seconds, and looks are few
GENEROUS_MS = 1500


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
    prepared = upload.sent + (upload.timings["parse"] + upload.timings["prepare"]) / 1e3
    took = [seconds * 1e3 for when, seconds in looks if upload.sent < when < prepared]
    assert len(took) >= ENOUGH_LOOKS
    assert statistics.quantiles(took, n=10)[-1] < GENEROUS_MS
