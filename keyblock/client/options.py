"""The options of a client and of a ranking."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Required, TypedDict
from urllib.parse import urlsplit

import httpx

from keyblock.client.bodies import Compression

DEFAULT_URL = "http://127.0.0.1:8000"


class ClientOptions(TypedDict, total=False):
    """How a client behaves; each option has a default.

    Attributes:
        api_key: sent as ``Authorization: Bearer``.
        timeout: seconds that a call may take, including retries (60).
        margin: seconds that a call with `deadline_ms` may take beyond it, for the network (1).
        retries: how often a call is sent again after a lost connection, 429, 502 or 503, if there is time (3).
        headers: sent with every request.
        compression: compression of bodies, "gzip", for slow networks (None).
        compress_from: the least bytes of a body that is compressed (32 KiB).
        max_connections: the most open connections; they are kept and used again (100).
    """

    api_key: str | None
    timeout: float
    margin: float
    retries: int
    headers: Mapping[str, str]
    compression: Compression | None
    compress_from: int
    max_connections: int


class RelevantSpansOption(TypedDict, total=False):
    """The options of spans; see `keyblock.wire.RelevantSpans`."""

    mode: Required[Literal["enabled", "disabled"]]
    threshold: float | None
    max_spans: int | None


class RerankOptions(TypedDict, total=False):
    """The options of a ranking: those of POST /rerank by their names (docs/use/http-api.md), and two of the client.

    Attributes:
        return_blocks: whether results have blocks (True).
        timeout: seconds for this call, in place of the client's.
        fallback: if there is no answer in time, return the order given, marked as such, instead of raising (False).
    """

    model: str | None
    top_n: int | None
    return_documents: bool | None
    return_blocks: bool | None
    raw_scores: bool | None
    max_tokens_per_doc: float | None
    deadline_ms: float | None
    priority: int | None
    strict: bool | None
    instruction: str | None
    first_stage_scores: Sequence[float] | None
    fusion: str | Mapping[str, Any] | None
    relevant_spans: RelevantSpansOption | None
    min_score: float | Literal["auto"] | None
    diversity: float | None
    prune: bool | None
    max_context_tokens: int | None
    read_all: bool | None
    second_look: bool | None
    timeout: float | None
    fallback: bool


OWN = {"timeout", "fallback"}  # options of a ranking that are not sent


@dataclass(frozen=True, kw_only=True)
class Configuration:
    """The URL and the ClientOptions of one client, checked. Raises ValueError for a value that cannot be used."""

    url: str
    api_key: str | None = field(default=None, repr=False)
    timeout: float = 60.0
    margin: float = 1.0
    retries: int = 3
    headers: Mapping[str, str] | None = None
    compression: Compression | None = None
    compress_from: int = 32 * 2**10
    max_connections: int = 100

    def __post_init__(self) -> None:
        if not _is_base(self.url):
            raise ValueError(f"url must be like {DEFAULT_URL}, not {self.url!r}")
        if self.compression not in ("gzip", None):
            raise ValueError(f"compression must be 'gzip' or None, not {self.compression!r}")
        for name, least in {"timeout": 0.0, "margin": 0.0, "retries": 0, "max_connections": 1}.items():
            if not getattr(self, name) >= least:  # also refuses NaN
                raise ValueError(f"{name} must be at least {least}, not {getattr(self, name)}")
        for name, value in {"api_key": self.api_key or "", **(self.headers or {})}.items():  # httpx would quote the value
            if not (value.isascii() and value.replace("\t", " ").isprintable()):
                raise ValueError(f"{name} has a character that no header can carry, such as the end of a line")

    @property
    def where(self) -> str:
        """The URL for messages, without a password."""
        parts = urlsplit(self.url)
        return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()


def _is_base(url: str) -> bool:
    """Whether paths of the service can be appended to it, and requests sent there."""
    try:
        httpx.URL(url)
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except (ValueError, httpx.InvalidURL):
        return False
    return bool(usable) and not (parts.query or parts.fragment)
