"""An HTTP proxy that answers 429 as often as it is told."""

import httpx

from benchmarks.busy_proxy import BusyProxy
from benchmarks.event_loop import free_port


def test_the_proxy_is_busy_as_often_as_configured_and_then_passes_requests_on() -> None:
    nobody = f"http://127.0.0.1:{free_port()}/rerank"
    with BusyProxy(nobody) as behind, BusyProxy(behind.url) as proxy:
        proxy.busy = 2
        busy = [httpx.post(proxy.url, content=b"{}") for _ in range(2)]
        assert [(one.status_code, one.headers["retry-after"]) for one in busy] == [(429, "1")] * 2
        behind.busy = 1
        assert [httpx.post(proxy.url, content=b"{}").status_code for _ in range(2)] == [429, 502], "of the second one, behind it"
    assert (proxy.busy, behind.busy) == (0, 0)
