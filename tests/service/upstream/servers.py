"""Rerankers that score, and that misbehave as upstreams do."""

import json
import threading
from typing import Any
from uuid import uuid4

from tests.keyblock.client.proxy import Fault, Proxy, reply


def overlap(query: str, passage: str) -> float:
    """The share of the query's words that a passage has: what a model of these servers says."""
    words = set(query.lower().split())
    return len(words & set(passage.lower().replace(".", "").split())) / len(words)


def scores(handler: Any) -> None:
    """An answer like Jina's."""
    asked = json.loads(handler.body)
    found = [{"index": n, "relevance_score": overlap(asked["query"], text)} for n, text in enumerate(asked["documents"])]
    reply(handler, 200, json.dumps({"results": sorted(found, key=lambda one: -one["relevance_score"])}).encode(), {})


def tei(handler: Any) -> None:
    """An answer like text-embeddings-inference's, with logits; it knows no documents."""
    asked = json.loads(handler.body)
    if "texts" not in asked:
        reply(handler, 422, b'{"error": "missing field `texts`"}', {})
        return
    found = [{"index": n, "score": 10 * overlap(asked["query"], text) - 5} for n, text in enumerate(asked["texts"])]
    reply(handler, 200, json.dumps(found).encode(), {})


def babbles(handler: Any) -> None:
    """Fails, with other words each time."""
    reply(handler, 500, uuid4().hex.encode(), {})


def floods(handler: Any) -> None:
    """Without end, and fast."""
    handler.send_response_only(200)
    handler.send_header("transfer-encoding", "chunked")
    handler.end_headers()
    try:
        while not handler.over.is_set():
            handler.wfile.write(b"10000\r\n" + b" " * 65536 + b"\r\n")
    except OSError:
        handler.close_connection = True


class Server(Proxy):
    """Behaves as told, request by request; the last behaviour is that of all further requests.

    Attributes:
        most_at_once: requests that were in hand together.
    """

    def __init__(self, *behaviours: Fault) -> None:
        super().__init__(0)
        self.faults = list(behaviours)
        self.url += "/rerank"
        self.most_at_once = self._at_once = 0
        self._counting = threading.Lock()

    @property
    def asked(self) -> list[dict[str, Any]]:
        """The bodies of all requests."""
        return [json.loads(request.body) for request in self.seen]

    def act(self, handler: Any) -> None:
        with self._counting:
            self._at_once += 1
            self.most_at_once = max(self.most_at_once, self._at_once)
            behaviour = self.faults.pop(0) if len(self.faults) > 1 else self.faults[0]
        try:
            behaviour(handler)
        finally:
            with self._counting:
                self._at_once -= 1
