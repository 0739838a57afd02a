"""A service with API keys, for tests of who may ask what."""

from pydantic import SecretStr

from service.keys.keys import Scope, make
from service.settings import Settings

ALL = {
    "alice": make("alice", [Scope.RANK, Scope.DOCUMENTS]),
    "bob": make("bob", [Scope.RANK, Scope.DOCUMENTS]),
    "carol": make("carol", [Scope.RANK, Scope.DOCUMENTS], namespace="alice"),
    "reader": make("reader", [Scope.RANK], namespace="alice"),
    "ops": make("ops", [Scope.ADMIN, Scope.METRICS]),
}


def keyed(settings: Settings, **more: object) -> Settings:
    """The settings with all these keys."""
    keys = SecretStr("\n".join(new.entry for new in ALL.values()))
    return settings.model_copy(update={"api_keys": keys, **more})


def bearing(name: str) -> dict[str, str]:
    """The header that a key's holder sends."""
    return {"authorization": f"Bearer {ALL[name].secret}"}
