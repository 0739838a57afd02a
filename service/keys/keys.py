"""API keys: who may ask for what. Only their hashes are configured, so that nobody who reads the configuration can use them.

The hash is SHA-256. A slow one (bcrypt, argon2) makes guessing dear where people choose what is hashed; a key has 256 random bits,
which nobody guesses at any speed, and a slow hash would cost each request its milliseconds.
"""

import hashlib
import hmac
import json
import secrets
from collections import Counter
from collections.abc import Iterator, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from service.errors import RequestError
from service.settings import Settings

PREFIX = "kb_"  # by which people, and scanners of repositories, know one that has leaked
RANDOM_BYTES = 32
NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"  # a namespace has no colon
_SCHEME = "bearer "


class Scope(StrEnum):
    """What a key may ask for."""

    RANK = "rank"
    DOCUMENTS = "documents"
    ADMIN = "admin"
    METRICS = "metrics"


class KeysError(Exception):
    """Keys that cannot be read; one clear line, without what was read."""


class Key(BaseModel):
    """A key as it is configured.

    Attributes:
        name: what logs call it.
        sha256: of the key, in hexadecimal digits.
        scopes: what it may ask for.
        namespace: of its documents by id; its name by default.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str = Field(pattern=NAME)
    sha256: str = Field(pattern="^[0-9a-fA-F]{64}$", repr=False)
    scopes: frozenset[Scope] = Field(min_length=1)
    namespace: str = Field("", pattern=f"^$|{NAME}")

    @field_validator("sha256")
    @classmethod
    def _of_something(cls, value: str) -> str:
        if value.lower() == hashlib.sha256().hexdigest():
            raise ValueError("is the hash of nothing: was the key empty?")
        return value

    @property
    def owns(self) -> str:
        """The namespace of its documents."""
        return self.namespace or self.name


class New(NamedTuple):
    """A key just made: what its holder sends, and the entry for the configuration."""

    secret: str
    entry: str


def make(name: str, scopes: Sequence[str], namespace: str = "") -> New:
    """A new key. Raises KeysError."""
    secret = PREFIX + secrets.token_urlsafe(RANDOM_BYTES)
    entry: dict[str, Any] = {"name": name, "sha256": _digest(secret.encode()).hex(), "scopes": sorted(set(scopes))}
    if namespace:
        entry["namespace"] = namespace
    _key(entry, "the key")
    return New(secret, json.dumps(entry))


class Keyring:
    """All keys there are: at least one.

    Args:
        keys: whose names and hashes are all different; raises KeysError where they are not, or where there are none.
    """

    def __init__(self, keys: Sequence[Key]) -> None:
        if not keys:
            raise KeysError("holds no keys: make one with keyblock-key, or leave the setting out to let everybody ask")
        for what, values in (("name", [key.name for key in keys]), ("sha256", [key.sha256.lower() for key in keys])):
            if (most := Counter(values).most_common(1)[0])[1] > 1:
                named = repr(most[0]) if what == "name" else "of the same key"
                raise KeysError(f"two entries have the {what} {named}: each needs its own")
        self.keys = tuple(keys)
        self._digests = [(bytes.fromhex(key.sha256), key) for key in keys]

    def find(self, secret: bytes) -> Key | None:
        """The key, if it is one. Every hash is compared in constant time, and always all of them."""
        digest = _digest(secret)
        found = None
        for known, key in self._digests:
            if hmac.compare_digest(digest, known):
                found = key
        return found

    def admit(self, authorization: str | None, scope: Scope | None) -> Key:
        """The key in the header `Authorization`, which has the scope, or any where it is None. Raises RequestError 401 or 403."""
        if not authorization:
            raise RequestError(401, "an API key is needed: send it as `Authorization: Bearer KEY`")
        key = self.find(_secret_of(authorization))
        if key is None:
            raise RequestError(401, "the API key is not known here: check it, or ask whoever runs this service for one")
        if scope is not None and scope not in key.scopes:
            held = ", ".join(sorted(key.scopes))
            raise RequestError(
                403, f"the API key {key.name!r} may not do this: it needs the scope {scope.value!r}, and has: {held}"
            )
        return key


def describe(keyring: Keyring | None) -> str:
    """Who may ask, for the log."""
    if keyring is None:
        return "no API keys: whoever reaches this service may ask for everything"
    return "API keys: " + ", ".join(f"{key.name} ({', '.join(sorted(key.scopes))})" for key in keyring.keys)


def load_keys(settings: Settings) -> Keyring | None:
    """The keys that the settings name; None where they name none, and everybody may ask. Raises KeysError."""
    given = settings.api_keys.get_secret_value()
    texts = [("api_keys", given)] if given else []
    if settings.api_keys_file is not None:
        texts.append((str(settings.api_keys_file), _content(settings.api_keys_file)))
    if not texts:
        return None
    keys = [key for where, text in texts for key in read_keys(text, where)]
    try:
        return Keyring(keys)
    except KeysError as error:
        raise KeysError(f"{' and '.join(where for where, _ in texts)}: {error}") from None


def read_keys(text: str, where: str) -> Iterator[Key]:
    """The keys in a text: a JSON object a line, as keyblock-key prints them, or a JSON list of them.

    A line may be blank, or a comment that begins with #.
    """
    if text.lstrip().startswith("["):
        for number, entry in enumerate(_json(text, where), 1):
            yield _key(entry, f"{where}, entry {number}")
        return
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip() and not line.lstrip().startswith("#"):
            yield _key(_json(line, f"{where}, line {number}"), f"{where}, line {number}")


def _json(text: str, where: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):  # whose words may quote a key
        raise KeysError(f"{where}: is not JSON; keyblock-key prints what belongs there") from None


def _key(entry: Any, where: str) -> Key:
    try:
        return Key.model_validate(entry)
    except ValidationError as error:  # whose words may quote a key
        first = error.errors(include_input=False, include_url=False)[0]
        path = ".".join(map(str, first["loc"]))
        raise KeysError(f"{where}: {path}{': ' if path else ''}{first['msg']}") from None


def _content(path: Path) -> str:
    try:
        return path.read_text("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "not UTF-8"
        raise KeysError(f"{path}: cannot be read as a file of API keys ({why})") from None


def _secret_of(authorization: str) -> bytes:
    """What is sent: after "Bearer", or bare, as one client does."""
    bearer = authorization[: len(_SCHEME)].lower() == _SCHEME
    return (authorization[len(_SCHEME) :] if bearer else authorization).strip().encode("latin-1")  # the bytes as sent


def _digest(secret: bytes) -> bytes:
    return hashlib.sha256(secret).digest()
