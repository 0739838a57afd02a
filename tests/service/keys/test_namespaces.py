from starlette.requests import Request

from service.call import DEFAULT_NAMESPACE
from service.keys.keys import read_keys
from service.keys.namespaces import namespace_of
from service.telemetry.account import account_of
from tests.service.keyed import ALL


def test_without_keys_there_is_one_and_it_has_no_colon() -> None:
    request = Request({"type": "http", "method": "PUT", "headers": [(b"authorization", b"Bearer somebody")]})
    assert namespace_of(request) == DEFAULT_NAMESPACE
    assert ":" not in DEFAULT_NAMESPACE


def test_the_namespace_is_the_keys_own_or_the_one_it_names() -> None:
    found = {}
    for name in ("alice", "bob", "reader"):
        request = Request({"type": "http", "method": "PUT", "headers": []})
        (account_of(request).key,) = read_keys(ALL[name].entry, "here")
        found[name] = namespace_of(request)
    assert found == {"alice": "alice", "bob": "bob", "reader": "alice"}
