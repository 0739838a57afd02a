"""Faults of web pages: what they make a browser send to a service without keys."""

from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from benchmarks.faults.connections import metric
from benchmarks.faults.drill import Drill, drill, must, request

ACTS = (("POST", "/rerank"), ("POST", "/admin/reload"), ("PUT", "/documents"), ("DELETE", "/documents/a"))
FOREIGN_PAGE = {"origin": "https://evil.example", "content-type": "text/plain", "sec-fetch-site": "cross-site"}
OLD_BROWSER = {"origin": "https://evil.example", "content-type": "text/plain"}
REBOUND = {"host": "evil.example", "origin": "http://evil.example", "sec-fetch-site": "same-origin"}


def foreign_pages(folder: Path) -> str:
    """A page of another origin, and a page at a foreign name that points to this machine, send requests that need no preflight."""
    with drill(folder, store=folder / "store") as it:
        pages = _sent(it, FOREIGN_PAGE) + _sent(it, OLD_BROWSER)
        rebound = _sent(it, REBOUND)
        counted = sum(metric(it, f'keyblock_denied_total{{why="{why}"}}') for why in ("origin", "host"))
        must(set(pages) == set(rebound) == {403} and counted == sum((pages + rebound).values()), f"{pages}, {rebound}, {counted}")
        must(set(_sent(it, {})) <= {200, 404}, "a client that is no browser is refused")
        return f"foreign pages: {pages[403]} x 403; the foreign name: {rebound[403]} x 403; a client that is no browser acts"


def _sent(it: Drill, headers: Mapping[str, str]) -> Counter[int]:
    """The statuses of each request that acts."""
    body = {"/rerank": request("otter"), "/documents": {"id": "a", "text": "a river"}}
    answers = (it.client.request(method, path, json=body.get(path), headers=dict(headers)) for method, path in ACTS)
    return Counter(answer.status_code for answer in answers)
