"""GET /info, /metrics and the health endpoints."""

import time
from typing import Any

import orjson
from prometheus_client.exposition import choose_encoder
from starlette.requests import Request
from starlette.responses import Response

from keyblock import __version__
from service.http.auth import ranker_of
from service.http.dialects import JSON
from service.ranking.model import Model
from service.ranking.ranker import Health, Ranker
from service.settings import Limits, Settings

CHARS_PER_TOKEN = 4  # in a client that cuts texts to max_input_length tokens, and so hardly ever cuts one
STARTED = int(time.time())  # seconds since 1970


def describe(ranker: Ranker, settings: Settings) -> dict[str, Any]:
    """The default model, all models, and the limits; first in the fields that clients of text-embeddings-inference look for."""
    return {
        "version": __version__,
        "model_id": ranker.models.default.name,
        "model_type": {"reranker": {"id2label": {"0": "LABEL_0"}, "label2id": {"LABEL_0": 0}}},
        "max_input_length": settings.max_document_chars // CHARS_PER_TOKEN,
        "max_client_batch_size": settings.max_documents,
        "max_concurrent_requests": settings.max_requests_in_flight,
        **describe_model(ranker.models.default, settings),
        "models": [describe_model(model, settings) for model in ranker.models],
        "threads": settings.n_threads,
        "limits": {name: getattr(settings, name) for name in Limits.model_fields},
    }


def describe_model(model: Model, settings: Settings) -> dict[str, Any]:
    """One model: its bundle and pipeline, its device and arithmetic with the reasons, and its measured quality."""
    manifest = model.bundle.manifest
    low, high = manifest.pipeline.packing.budget_range
    return {
        "model": model.name,
        "format_version": manifest.format_version,
        **model.scorer.describe(settings),
        "selector": manifest.pipeline.selector,
        "encoder": _encoder(model),
        "aggregator": manifest.pipeline.aggregator,
        "pipeline": manifest.pipeline.model_dump(mode="json"),
        "tokens_per_document": {"default": manifest.pipeline.packing.budget, "least": low, "most": high},
        "answers": _answers(model),
        "preparation": model.fingerprint.hex(),
        "quality": manifest.quality,
        "provenance": manifest.provenance,
    }


def _answers(model: Model) -> dict[str, Any]:
    """How its scores compare across queries: whether it marks spans, its threshold, and the measurements of both."""
    manifest = model.bundle.manifest
    measured = manifest.quality.get("calibration", {})
    return {
        "marks_spans": model.scorer.marks and manifest.pipeline.spans is not None,
        "min_score": manifest.pipeline.min_score,
        **{name: measured.get(name) for name in ("threshold", "answers", "reliability", "spans")},
    }


def _encoder(model: Model) -> dict[str, Any] | None:
    """The encoder of the vectors that the selector compares; None if it compares none."""
    encoder = model.bundle.pipeline.encoder
    if encoder is None:
        return None
    return {**(model.bundle.manifest.pipeline.encoder or {}), "dimensions": encoder.dimensions}


async def info(request: Request) -> Response:
    """The served models and the limits of the service."""
    ranker = ranker_of(request)
    store = None if ranker.library is None else await ranker.library.about()
    return Response(orjson.dumps(describe(ranker, request.app.state.settings) | {"store": store}), media_type=JSON)


async def models(request: Request) -> Response:
    """The served models as OpenAI lists them, the default one first."""
    ranker = ranker_of(request)
    listed = [{"id": model.name, "object": "model", "created": STARTED, "owned_by": "keyblock"} for model in ranker.models]
    return Response(orjson.dumps({"object": "list", "data": listed}), media_type=JSON)


async def live(request: Request) -> Response:
    """200 while the model's thread lives and makes progress; 503 when it is dead or hangs: restart this replica."""
    health = ranker_of(request).health
    return _health(health.alive, "live" if health.alive else _trouble(health))


async def ready(request: Request) -> Response:
    """200 once the model is warmed up and while its thread lives; otherwise 503: send requests elsewhere."""
    health = ranker_of(request).health
    return _health(health.ready, "ready" if health.ready else "warming up" if health.alive else _trouble(health))


def _trouble(health: Health) -> str:
    return "the model's thread hangs" if health.hung else "the model's thread is dead"


def _health(good: bool, status: str) -> Response:
    return Response(orjson.dumps({"status": status}), 200 if good else 503, media_type=JSON)


async def metrics(request: Request) -> Response:
    """Prometheus metrics, or OpenMetrics if the scraper accepts it."""
    ranker = ranker_of(request)
    await ranker.measure()
    encode, content_type = choose_encoder(request.headers.get("accept", ""))
    return Response(encode(ranker.metrics.registry), headers={"content-type": content_type})
