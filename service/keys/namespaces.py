"""The namespace of a request: ids of documents belong to a namespace, and only this module decides which."""

from starlette.requests import Request

from service.call import DEFAULT_NAMESPACE
from service.telemetry.account import account_of


def namespace_of(request: Request) -> str:
    """The namespace of the request's key, or the default one if there are no keys. It has no colon."""
    key = account_of(request).key
    return DEFAULT_NAMESPACE if key is None else key.owns
