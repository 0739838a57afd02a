"""API keys: what a client may ask is its key's, and a fallback hides no wrong key."""

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from keyblock.client import AccessError, Client
from service.command.inputs import Input
from service.command.rankers import Asked, RemoteRanker
from service.command.report import Report
from tests.support.serving import Service

KEY = "kb-0123456789abcdef0123456789abcdef0123456789ab"


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A service that knows one key, which may rank and no more."""
    work: Path = tmp_path_factory.mktemp("guarded")
    entry = {"name": "search", "sha256": hashlib.sha256(KEY.encode()).hexdigest(), "scopes": ["rank"]}
    with Service(1, work / "log", store=work / "store", provider="cpu", api_keys=json.dumps(entry)) as service:
        yield service


def test_a_key_may_do_what_its_scopes_allow(guarded: Service) -> None:
    with Client(guarded.url, api_key=KEY) as client:
        assert [result.index for result in client.rerank("river", ["a city", "a river"])] == [1, 0]
        with pytest.raises(AccessError, match=r"status 403") as caught:
            client.put_documents([{"id": 1, "text": "a"}])
        assert caught.value.answer.kind
        ranker = RemoteRanker(client, Asked("river"), Report("keyblock"))
        assert len(ranker.rank([Input("a", "a river")])) == 1


@pytest.mark.parametrize("key", [None, "wrong"])
def test_a_wrong_key_is_an_error_with_any_fallback(guarded: Service, key: str | None) -> None:
    with Client(guarded.url, api_key=key) as client:
        assert client.ready()
        with pytest.raises(AccessError, match=r"status 401") as caught:
            client.rerank("river", ["a"], fallback=True)
        assert caught.value.request_id
        assert KEY not in str(caught.value)
