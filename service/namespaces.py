"""Whose documents a request means: ids live in a namespace, and this is the one place that says which."""

from starlette.requests import Request

from service.store.base import DEFAULT_NAMESPACE


def namespace_of(_request: Request) -> str:
    """The one namespace there is, as long as there are no API keys to tell callers apart; without a colon."""
    return DEFAULT_NAMESPACE
