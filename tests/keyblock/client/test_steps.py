"""Steps: what is large is worked on beside an event loop."""

from keyblock.client.calls import Calls
from keyblock.client.options import Configuration
from keyblock.client.steps import LARGE, Send, Work

QUERY, TEXTS = "Which river flows through Vienna?", ["The Thames flows through London.", "The Danube flows through Vienna."]


def test_only_work_on_large_documents_is_given_away() -> None:
    calls = Calls(Configuration(url="http://x", compression="gzip"))
    assert isinstance(next(calls.rerank(QUERY, TEXTS, {})), Send)
    steps = calls.rerank(QUERY, ["x" * LARGE], {})
    body = next(steps)
    assert isinstance(body, Work)
    packed = steps.send(body.do())
    assert isinstance(packed, Work)
    assert isinstance(steps.send(packed.do()), Send)
