"""Whose documents a request means: ids live in a namespace, and this is the one place that says which."""

from starlette.requests import Request

from service.call import DEFAULT_NAMESPACE
from service.telemetry.account import account_of


def namespace_of(request: Request) -> str:
    """That of the key which the request came with, or the one there is where everybody may ask; without a colon."""
    key = account_of(request).key
    return DEFAULT_NAMESPACE if key is None else key.owns
