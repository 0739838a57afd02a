"""The event loop stays free while large documents are prepared."""

import json
import random
import statistics
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

from tests.support.ports import get
from tests.support.serving import Service

ENOUGH_LOOKS = 5  # a loop that is not free is looked at once: that look takes as long as the preparation
POLL_SECONDS = 0.02
VOCABULARY = 20_000


def upload(port: int, body: bytes) -> tuple[float, Any]:
    """When the request was sent, and its answer."""
    with closing(HTTPConnection("127.0.0.1", port)) as connection:
        connection.request("POST", "/rerank", body)
        return time.perf_counter(), json.loads(connection.getresponse().read())


def make_body(n_documents: int, n_words: int) -> bytes:
    """A request of random words with punctuation; every document different."""
    rng = random.Random(7)
    words = ["".join(rng.choices("abcdefghijklmnopqrstuvwxyz", k=rng.randint(2, 9))) for _ in range(VOCABULARY)]
    words += [word + mark for word in words[: VOCABULARY // 10] for mark in ".,"]
    documents = [" ".join(rng.choices(words, k=n_words)) for _ in range(n_documents)]
    return json.dumps({"query": " ".join(words[:6]), "documents": documents}).encode()


def test_health_is_answered_while_large_documents_are_prepared(bundle_path: Path, tmp_path: Path) -> None:
    body, looks = make_body(60, 20_000), []
    with (
        Service(0, tmp_path / "log", bundle=bundle_path, provider="cpu", cache_bytes=0) as service,
        ThreadPoolExecutor(1) as pool,
    ):
        asked = pool.submit(upload, service.port, body)
        while not asked.done():
            looks.append((time.perf_counter(), get(service.port, "/health/live")))
            time.sleep(POLL_SECONDS)
    sent, answer = asked.result()
    seconds = (answer["meta"]["timings_ms"]["parse"] + answer["meta"]["timings_ms"]["prepare"]) / 1e3
    took = [look for when, look in looks if sent < when < sent + seconds]
    assert len(took) >= ENOUGH_LOOKS
    assert statistics.median(took) < seconds / ENOUGH_LOOKS
