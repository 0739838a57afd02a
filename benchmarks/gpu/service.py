"""Measures the service on the GPU over HTTP: start, documents a second as texts and by id, memory, energy."""

import json
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import httpx

from benchmarks.gpu.bench import Bench
from benchmarks.gpu.graphs import EMBEDDED, graph_file
from benchmarks.gpu.record import Row
from benchmarks.performance.clients import send_all
from benchmarks.performance.rounds import spread
from keyblock.bundle import TOKENIZER_FILE, Variant, load_bundle, write_bundle
from keyblock.runtime.cpus import default_threads
from tests.support.serving import REQUEST_SECONDS, Service, ServiceError, make_body
from tests.support.texts import Request, invented

COMMAND = (sys.executable, "-m", "service.cli")  # works without an installed package
VARIANT_FILE = "variant.json"
KILO = 1000


def measure(bench: Bench) -> Iterator[Row]:
    """Rows of the start, then of documents as texts and by id, for each number of clients."""
    bundle, source = served_bundle(bench), invented(bench.bundle / TOKENIZER_FILE)
    before, starts = bench.driver.used, []
    for _ in range(bench.sizes.starts - 1):
        with _service(bench, bundle) as service:
            starts.append(service.start_seconds)
    with _service(bench, bundle) as service:
        starts.append(service.start_seconds)
        provider = service.info["provider"]
        yield {"table": "start", "seconds": spread(starts), "provider": provider["chosen"], "arithmetic": provider["arithmetic"]}
        yield [alone(service, source.request(bench.sizes.documents, bench.sizes.words)) for _ in range(2)][-1]
        stored = store(service, source.request(bench.sizes.documents, bench.sizes.words))
        for clients in bench.sizes.clients:
            requests = [source.request(bench.sizes.documents, bench.sizes.words) for _ in range(bench.sizes.requests)]
            texts = [make_body(request) for request in requests]
            by_id = [
                json.dumps({"query": request.query, "documents": stored, "top_n": len(stored)}).encode() for request in requests
            ]
            for seen, bodies in (("new", texts), ("by id", by_id)):
                row = {"table": "service", "seen": seen, "clients": clients}
                yield row | measure_requests(bench, service, bodies, clients)
        used = bench.driver.used
        grown = used - before if used is not None and before is not None else None
        yield {"table": "memory", "resident": service.resident(), "device": grown}


def served_bundle(bench: Bench) -> Path:
    """The bundle with its prepared fp16 variant, whose weights are filled in here."""
    opened = load_bundle(bench.bundle)
    variant = Variant.model_validate_json((bench.prepared / VARIANT_FILE).read_text(encoding="utf-8"))
    files = {name: opened.path / name for name in opened.manifest.files}
    files[variant.graph.file] = graph_file(bench, EMBEDDED, "unpadded")
    manifest = opened.manifest.model_copy(update={"variants": {variant.graph.precision: variant}})
    return write_bundle(bench.home / "served", manifest, files, overwrite=True).path


def _service(bench: Bench, bundle: Path) -> Service:
    settings = {"bundle": bundle, "provider": bench.provider, "store": bench.home / "store"}
    return Service(default_threads(), bench.home / "service.log", COMMAND, **settings)


def alone(service: Service, request: Request) -> Row:
    """Seconds of a single request without other load, by stage. Raises ServiceError."""
    body, started = make_body(request), time.perf_counter()
    response = httpx.post(f"{service.url}/rerank", content=body, timeout=REQUEST_SECONDS)
    seconds = time.perf_counter() - started
    if response.status_code != 200:
        raise ServiceError(f"keyblock-serve answered {response.status_code}: {response.text[:300]}")
    stages = {stage: milliseconds / KILO for stage, milliseconds in response.json()["meta"]["timings_ms"].items()}
    return {"table": "stages", "seconds": seconds, "stages": stages}


def store(service: Service, request: Request) -> list[dict[str, str]]:
    """Store the documents. Returns the `documents` of a request that asks for them by id. Raises ServiceError."""
    ids = [f"document-{number}" for number in range(len(request.documents))]
    lines = [json.dumps({"id": one, "text": text}) for one, text in zip(ids, request.documents, strict=True)]
    answer = httpx.put(f"{service.url}/documents", content="\n".join(lines), timeout=REQUEST_SECONDS)
    if answer.status_code != 200 or answer.json()["stored"] != len(ids):
        raise ServiceError(f"keyblock-serve stored not all documents: {answer.text[:300]}")
    return [{"id": one} for one in ids]


def measure_requests(bench: Bench, service: Service, bodies: Sequence[bytes], clients: int) -> Row:
    """Documents a second, and joules if the driver reports them. Raises ServiceError if an answer is not good."""
    before, started = bench.driver.joules, time.perf_counter()
    answered = send_all(service.url, bodies, clients)
    seconds, after = time.perf_counter() - started, bench.driver.joules
    if not all(answer.good for answer in answered):
        raise ServiceError("a request had an error or a degraded answer")
    documents = len(bodies) * bench.sizes.documents
    joules = None if before is None or after is None else (after - before) / documents * KILO
    return {"documents_a_second": documents / seconds, "documents": documents, "seconds": seconds, "joules": joules}
