"""Every setting of the service, declared once, as an environment variable KEYBLOCK_* and a flag of keyblock-serve."""

import os
from enum import StrEnum
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import BaseModel, BeforeValidator, Field, SecretStr, field_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from keyblock.runtime.cpus import default_threads
from keyblock.runtime.providers import Precision, Provider
from keyblock.wire import MOST_EXPIRES_IN

DEFAULT_BUNDLE = Path(__file__).parent.parent / "models" / "default"
MIB = 2**20
SHORTEST_STORE_KEY = 32  # characters


def _paths(value: object) -> object:
    """The paths in a value: a text may hold several, separated by a comma or the separator of PATH; a flag may be repeated."""
    parts = [value] if isinstance(value, str | Path) else value
    if not isinstance(parts, list | tuple):
        return value
    paths = [path for part in parts for path in ([part] if isinstance(part, Path) else _split(str(part), f",{os.pathsep}"))]
    return [_by_name(Path(path)) for path in paths]


def _by_name(path: Path) -> Path:
    """The bundle beside the embedded one of that name, if no such path is here."""
    named = DEFAULT_BUNDLE.with_name(path.name)
    return named if len(path.parts) == 1 and not path.exists() and named.is_dir() else path


def _split(text: str, separators: str) -> list[str]:
    """The parts of a text; an existing path is never split."""
    if not separators or os.path.exists(text):
        return [text]
    return [path for part in text.split(separators[0]) for path in _split(part, separators[1:])]


Paths = Annotated[tuple[Path, ...], NoDecode, BeforeValidator(_paths), Field(min_length=1)]


class LogFormat(StrEnum):
    """The format of log lines."""

    TEXT = "text"
    JSON = "json"


class LogLevel(StrEnum):
    """The lowest level that is logged."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class UpstreamKind(StrEnum):
    """The API of an upstream; auto finds it out with a request."""

    AUTO = "auto"
    COHERE = "cohere"
    JINA = "jina"
    TEI = "tei"


class UpstreamScores(StrEnum):
    """The scale of an upstream's scores; auto is that of its API."""

    AUTO = "auto"
    PROBABILITY = "probability"
    LOGIT = "logit"


class Limits(BaseModel):
    """Limits of a request, and of all requests in flight; what exceeds them is refused before any work is done."""

    max_documents: int = Field(2048, ge=1, description="most documents of a request")
    max_queries: int = Field(64, ge=1, description="most queries of a request")
    max_document_chars: int = Field(4_000_000, ge=1, description="most characters of a document's text or title")
    max_body_bytes: int = Field(64 * MIB, ge=1, description="most bytes of a request's body, also once it is unpacked")
    max_requests_in_flight: int = Field(
        1024, ge=1, description="most requests in flight, once their bodies are there; one more is refused with 429"
    )
    max_documents_in_flight: int = Field(
        100_000, ge=1, description="most documents of all requests in flight; a single request may have more"
    )
    max_bytes_in_flight: int = Field(
        1024 * MIB, ge=1, description="most bytes of the bodies of all requests in flight; a single request may have more"
    )
    max_wait_ms: int = Field(
        10_000,
        ge=1,
        description="milliseconds that a request may wait for others, at the measured pace; if it would wait longer, it gets 429",
    )
    max_backlog_ms: int = Field(
        60_000,
        ge=1,
        description="milliseconds of all waiting work, at the measured pace; if there is more, requests that would add more than a "
        "hundredth of that get 429",
    )
    max_query_chars: int = Field(
        8192, ge=1, description="characters of a query that are read; a longer query is cut with a warning"
    )


class Settings(Limits, BaseSettings):
    """All settings; flags override environment variables, which override the defaults."""

    model_config = SettingsConfigDict(env_prefix="KEYBLOCK_", extra="ignore", frozen=True)
    bundle: Paths = Field(
        (DEFAULT_BUNDLE,),
        description=f"directory of a bundle, or of bundles, or the name of one in models/, as keyb-bm25; for several, repeat the "
        f"flag or put {os.pathsep!r} between them; the first is the default model",
    )
    upstream: str = Field(
        "",
        repr=False,  # a URL may hold a password
        description="URL of a reranker that runs already, as in http://HOST:PORT/rerank; it scores the passages that KeyBlock "
        "selects; beside bundles if --bundle names some, else alone; empty for none",
    )
    upstream_kind: UpstreamKind = Field(
        UpstreamKind.AUTO,
        description="API of the upstream: cohere (v2), jina (also vLLM and infinity) or tei; auto sends a request to find out",
    )
    upstream_model: str = Field(
        "", description="name of the upstream's model, in requests to the upstream and in answers to clients"
    )
    upstream_key: SecretStr = Field(SecretStr(""), description="API key for the upstream, sent as a bearer token; empty for none")
    upstream_scores: UpstreamScores = Field(
        UpstreamScores.AUTO,
        description="scale of the upstream's scores; auto is logit for tei, which KeyBlock asks for logits, and probability for "
        "the others",
    )
    upstream_passages: int = Field(
        3, ge=1, le=64, description="passages of a document that the upstream scores; the best passage's score is the document's"
    )
    upstream_passage_tokens: int = Field(
        256, ge=64, le=2048, description="tokens of a passage, query and title included, counted by the bundle's tokenizer"
    )
    upstream_batch: int = Field(64, ge=1, le=2048, description="most passages in a request to the upstream")
    upstream_concurrency: int = Field(8, ge=1, le=256, description="most requests to the upstream at once")
    upstream_timeout_ms: int = Field(
        10_000,
        ge=1,
        description="milliseconds to wait for the upstream; then documents without its scores are ordered by their blocks alone",
    )
    upstream_retries: int = Field(
        3, ge=0, le=10, description="times that a request to the upstream is sent again after 429, 502, 503 or no answer"
    )
    strict_models: bool = Field(False, description="an unknown model is an error; otherwise the default model answers")
    host: str = Field("127.0.0.1", description="address to listen on; 0.0.0.0 for every interface")
    port: int = Field(8000, ge=0, le=65535, description="port to listen on; 0 takes a free one")
    provider: Provider = Field(
        Provider.AUTO,
        description="where the model runs: auto takes the fastest that loads the graph; a named one that is missing is an error",
    )
    precision: Precision = Field(
        Precision.AUTO,
        description="arithmetic of the model; auto is the fastest that provider, CPU and bundle allow: bf16 on most CPUs of today",
    )
    threads: int = Field(0, ge=0, description="threads for preparation and for the model; 0 follows the container's CPU quota")
    token_cap: int = Field(4096, ge=512, description="most tokens of a batch, padding included")
    batch_ms: int = Field(
        50, ge=1, description="milliseconds that a batch may take, measured at the start; a new request waits for the running batch"
    )
    hung_seconds: int = Field(60, ge=1, description="seconds after which a batch counts as hung, and health turns red")
    cache_bytes: int = Field(256 * MIB, ge=0, description="bytes of prepared documents that the cache may hold; 0 keeps none")
    score_cache_bytes: int = Field(
        64 * MIB,
        ge=0,
        description="bytes of scores that the cache may hold, so that the model does not score a sequence again; 0 keeps none",
    )
    store: str = Field(
        "",
        repr=False,  # a URL may hold a password
        description="where documents by id are kept: a directory (for one service), redis://HOST:PORT/N, or "
        "redis+cluster://HOST:PORT,HOST:PORT; empty for none",
    )
    store_bytes: int = Field(4096 * MIB, ge=1, description="most bytes of the documents in a directory")
    store_evict: bool = Field(
        False, description="a full directory deletes the documents that were used longest ago; otherwise it refuses new ones"
    )
    store_ttl_seconds: int = Field(
        0, ge=0, le=MOST_EXPIRES_IN, description="seconds until a stored document expires if it names no time itself; 0 for never"
    )
    store_replicas: int = Field(
        1,
        ge=0,
        description="replicas of a Redis Cluster's server that must have a document before it is acknowledged; with 0 a failover "
        "may lose acknowledged documents",
    )
    store_key: SecretStr = Field(
        SecretStr(""),
        description="key that seals stored values, so that nobody else who can reach the store can forge one; the same for all "
        "replicas, 32 characters or more; empty for none",
    )
    store_meaning: bool = Field(
        True,
        description="the bundle's sentence encoder, if it has one, reads stored documents in the background, in one thread of the "
        "lowest priority: queries then find in them what they say in other words",
    )
    default_deadline_ms: int = Field(0, ge=0, description="deadline_ms of requests that name none; 0 for none")
    second_look: bool = Field(
        True, description="false: no request's best documents are read on, and answers come sooner, as with second_look: false"
    )
    head_seconds: int = Field(
        10, ge=1, description="seconds for a request's head to arrive; then the service answers 408 and closes the connection"
    )
    body_seconds: int = Field(60, ge=1, description="seconds for a request's body to arrive or, for a PUT, its next 64 KiB")
    answer_seconds: int = Field(
        60, ge=1, description="seconds for a client to read an answer; then the service closes the connection"
    )
    keep_alive_seconds: int = Field(
        75,
        ge=1,
        description="seconds that an idle connection stays open. Keep it longer than the proxy in front does (nginx and most load "
        "balancers: 60): a proxy that sends a request as the service closes answers 502",
    )
    max_connections: int = Field(
        4096,
        ge=1,
        description="most open connections; one more closes the connection that has been idle longest. Needs twice as many open "
        "files (ulimit -n)",
    )
    shutdown_seconds: int = Field(30, ge=0, description="seconds for requests in flight to finish after SIGTERM")
    playground: bool = Field(True, description="serve a page at / to try the service: paste a query and documents, see the blocks")
    otlp_endpoint: str = Field(
        "", description="URL of an OpenTelemetry collector that receives traces, as in http://HOST:4318; empty for none"
    )
    api_keys: SecretStr = Field(
        SecretStr(""),
        description="accepted API keys, as keyblock-key prints them, one on each line; without any, clients need no key",
    )
    api_keys_file: Path | None = Field(None, description="a file with more API keys")
    cors_origins: str = Field(
        "",
        pattern=r"^(\*|\s*https?://[^\s/,*]+(\s*,\s*https?://[^\s/,*]+)*\s*)?$",
        description="origins whose pages may send requests, as in https://a.example,https://b.example; * for all; none by default",
    )
    cross_site_writes: bool = Field(
        False,
        description="without keys, take requests other than GET from pages of every origin, not only from cors_origins and the "
        "service's own",
    )
    allowed_hosts: str = Field(
        "",
        pattern=r"^(\*|\s*[^\s/,*:]+(\s*,\s*[^\s/,*:]+)*\s*)?$",
        description="without keys and on a loopback address, names in the header Host beside localhost, addresses and host, as in "
        "search.internal,pc.example; * for all",
    )
    admin_port: int | None = Field(
        None, ge=0, le=65535, description="another port, to which /admin and /metrics move; 0 takes a free one"
    )
    admin_host: str = Field("", description="address that the admin port listens on; by default that of host")
    access_log: bool = Field(False, description="log a line for each request, with its outcome but not its content")
    log_format: LogFormat = Field(LogFormat.TEXT, description="text for people, or json: one object on each line")
    log_texts: bool = Field(False, description="add the query and the beginnings of ten documents to the lines of access_log")
    log_level: LogLevel = Field(LogLevel.INFO, description="the lowest level that is logged")

    @field_validator("store_key")
    @classmethod
    def _check_store_key(cls, key: SecretStr) -> SecretStr:
        if 0 < (length := len(key.get_secret_value())) < SHORTEST_STORE_KEY:
            raise ValueError(f"has {length} characters and needs {SHORTEST_STORE_KEY}: make one with `openssl rand -hex 32`")
        return key

    @field_validator("otlp_endpoint")
    @classmethod
    def _check_otlp_endpoint(cls, endpoint: str) -> str:
        if endpoint and not endpoint.startswith(("http://", "https://")):
            raise ValueError("must be a URL that begins with http:// or https://")
        if endpoint and (problem := tracing_problem()):
            raise ValueError(problem)
        return endpoint

    @field_validator("upstream")
    @classmethod
    def _check_upstream(cls, url: str) -> str:
        url = url.strip()
        if not url:
            return url
        if not _is_http_url(url):
            raise ValueError("must be a URL like http://HOST:PORT/rerank")
        if find_spec("httpx") is None:
            raise ValueError("what asks an upstream is not installed: pip install httpx")
        return url

    @field_validator("upstream_key")
    @classmethod
    def _check_upstream_key(cls, key: SecretStr) -> SecretStr:
        """The key, without the line end of the file from which it was read."""
        value = key.get_secret_value().strip()
        if not value.isascii() or not value.isprintable():
            raise ValueError("must be ASCII on one line, as HTTP headers are: copy the key again")
        return SecretStr(value)

    @property
    def upstream_place(self) -> str:
        """The upstream's URL for messages, without a password."""
        parts = urlsplit(self.upstream)
        return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()

    @property
    def serves_bundles(self) -> bool:
        """Whether bundles are served: always, unless there is an upstream and no bundle is named."""
        return not self.upstream or "bundle" in self.model_fields_set

    @property
    def n_threads(self) -> int:
        """The number of threads to use: the setting, or the CPU quota."""
        return self.threads or default_threads()


def _is_http_url(url: str) -> bool:
    """Whether a request can be sent to this URL: it has a host, a valid port, and only printable characters."""
    parts = urlsplit(url)
    try:
        port_exists = parts.port is None or parts.port > 0
    except ValueError:
        return False
    return parts.scheme in ("http", "https") and bool(parts.hostname) and port_exists and url.isprintable() and " " not in url


def tracing_problem() -> str:
    """The reason why no traces can be sent; empty if they can."""
    try:
        found = find_spec("opentelemetry.exporter.otlp.proto.http") and find_spec("opentelemetry.sdk")
    except ModuleNotFoundError:
        found = None
    return "" if found else "what sends traces is not installed: pip install 'keyblock[otel]'"
