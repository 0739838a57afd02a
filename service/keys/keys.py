"""API keys and their scopes. Only hashes of keys are configured, so nobody who reads the configuration can use the keys.

The hash is SHA-256. A slow hash (bcrypt, argon2) makes guessing expensive where people choose the secret. A key has 256 random
bits, which nobody can guess at any speed, and a slow hash would cost each request milliseconds.
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

PREFIX = "kb_"  # by which people, and scanners of repositories, recognise a leaked key
RANDOM_BYTES = 32
NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"  # a namespace has no colon
_SCHEME = "bearer"


class Scope(StrEnum):
    """The permissions of a key."""

    RANK = "rank"
    DOCUMENTS = "documents"
    ADMIN = "admin"
    METRICS = "metrics"


class KeysError(Exception):
    """The keys cannot be read; the message is one clear line, which does not quote them."""


class DeniedError(RequestError):
    """The caller may not make this request: 401 or 403.

    Attributes:
        why: a word for metrics and the access log.
    """

    def __init__(self, status: int, problem: str, why: str) -> None:
        super().__init__(status, problem)
        self.why = why


class Key(BaseModel):
    """A configured key.

    Attributes:
        name: its name in logs.
        sha256: of the key, in hexadecimal digits.
        scopes: its permissions.
        namespace: of its documents by id; by default the key's name.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str = Field(pattern=NAME)
    sha256: str = Field(pattern="^[0-9a-fA-F]{64}$", repr=False)
    scopes: frozenset[Scope] = Field(min_length=1)
    namespace: str = Field("", pattern=f"^$|{NAME}")

    @field_validator("sha256")
    @classmethod
    def _not_empty(cls, value: str) -> str:
        if value.lower() == hashlib.sha256().hexdigest():
            raise ValueError("is the hash of nothing: was the key empty?")
        return value

    @property
    def owns(self) -> str:
        """The namespace of its documents."""
        return self.namespace or self.name


class New(NamedTuple):
    """A new key: the secret for its holder, and the entry for the configuration."""

    secret: str
    entry: str


def make(name: str, scopes: Sequence[str], namespace: str = "") -> New:
    """Make a new key. Raises KeysError."""
    secret = PREFIX + secrets.token_urlsafe(RANDOM_BYTES)
    entry: dict[str, Any] = {"name": name, "sha256": _digest(secret.encode()).hex(), "scopes": sorted(set(scopes))}
    if namespace:
        entry["namespace"] = namespace
    _key(entry, "the key")
    return New(secret, json.dumps(entry))


class Keyring:
    """All configured keys, at least one.

    Args:
        keys: with different names and hashes; raises KeysError if two are equal, or there are none.
    """

    def __init__(self, keys: Sequence[Key]) -> None:
        if not keys:
            raise KeysError("holds no keys: make one with keyblock-key, or leave the setting out to let everybody ask")
        for field, values in (("name", [key.name for key in keys]), ("sha256", [key.sha256.lower() for key in keys])):
            if (most := Counter(values).most_common(1)[0])[1] > 1:
                named = repr(most[0]) if field == "name" else "of the same key"
                raise KeysError(f"two entries have the {field} {named}: each needs its own")
        self.keys = tuple(keys)
        self._digests = [(bytes.fromhex(key.sha256), key) for key in keys]

    def find(self, secret: bytes) -> Key | None:
        """The key of this secret, or None. Every hash is compared in constant time, and always all of them."""
        digest = _digest(secret)
        found = None
        for known, key in self._digests:
            if hmac.compare_digest(digest, known):
                found = key
        return found

    def admit(self, authorization: str | None) -> Key:
        """The key in the header `Authorization`. Raises DeniedError 401."""
        if not authorization or not (secret := _secret_of(authorization)):
            raise DeniedError(401, "an API key is needed: send it as `Authorization: Bearer KEY`", "no_key")
        if (key := self.find(secret)) is None:
            problem = "the API key is not known here: check it, or ask whoever runs this service for one"
            raise DeniedError(401, problem, "unknown_key")
        return key


def check_scope(key: Key, scope: Scope | None) -> None:
    """Raise DeniedError 403 for a key without this scope; None: any scope."""
    if scope is not None and scope not in key.scopes:
        scopes = ", ".join(sorted(key.scopes))
        problem = f"the API key {key.name!r} may not do this: it needs the scope {scope.value!r}, and has: {scopes}"
        raise DeniedError(403, problem, "scope")


def describe(keyring: Keyring | None) -> str:
    """The keys and their scopes, for the log."""
    if keyring is None:
        return "no API keys: whoever reaches this service may ask for everything"
    return "API keys: " + ", ".join(f"{key.name} ({', '.join(sorted(key.scopes))})" for key in keyring.keys)


def load_keys(settings: Settings) -> Keyring | None:
    """The keys in the settings; None if there are none, and everybody has access. Raises KeysError."""
    inline = settings.api_keys.get_secret_value()
    texts = [("api_keys", inline)] if inline else []
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
    """The keys in a text: one JSON object per line, as keyblock-key prints them, or a JSON list of them.

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
    except (ValueError, RecursionError):  # its message may quote a key
        raise KeysError(f"{where}: is not JSON; keyblock-key prints what belongs there") from None


def _key(entry: Any, where: str) -> Key:
    try:
        return Key.model_validate(entry)
    except ValidationError as error:  # its message may quote a key
        first = error.errors(include_input=False, include_url=False)[0]
        path = ".".join(map(str, first["loc"]))
        raise KeysError(f"{where}: {path}{': ' if path else ''}{first['msg']}") from None


def _content(path: Path) -> str:
    try:
        return path.read_text("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8"
        raise KeysError(f"{path}: cannot be read as a file of API keys ({reason})") from None


def _secret_of(authorization: str) -> bytes:
    """The secret in the header: after "Bearer", or bare, as one client sends it."""
    scheme, _, secret = authorization.strip().partition(" ")
    return (secret if scheme.lower() == _SCHEME else authorization).strip().encode("latin-1")  # the bytes as sent


def _digest(secret: bytes) -> bytes:
    return hashlib.sha256(secret).digest()
