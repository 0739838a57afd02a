from starlette.requests import Request

from service.namespaces import namespace_of
from service.store.base import DEFAULT_NAMESPACE


def test_there_is_one_and_it_has_no_colon() -> None:
    request = Request({"type": "http", "method": "PUT", "headers": [(b"authorization", b"Bearer somebody")]})
    assert namespace_of(request) == DEFAULT_NAMESPACE
    assert ":" not in DEFAULT_NAMESPACE
