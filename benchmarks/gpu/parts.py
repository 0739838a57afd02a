"""What is measured, a function a part: each yields rows, whose `table` names their table."""

import json
import platform
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice, product
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import torch
from numpy.typing import NDArray

from benchmarks.harness import BUNDLE, cpu_name, send_all, store
from keyblock.bundle import TOKENIZER_FILE, load_bundle
from keyblock.runtime.batching import score_all
from keyblock.runtime.cpus import default_threads
from keyblock.runtime.model import GraphModel
from keyblock.runtime.providers import Precision, Provider
from keyblock.runtime.session import Session
from service.telemetry.gpus import nvml
from tests.support.serving import Service, make_body
from tests.support.texts import invented
from training.data.collection import Collection
from training.data.examples import Preparation

LAYERS, HIDDEN, INTERMEDIATE, VOCABULARY = 6, 384, 1536, 30_522  # MiniLM-L6, the embedded model's encoder
PRECISIONS = {"fp32": torch.float32, "tf32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}
COMMAND = (sys.executable, "-m", "service.cli")  # works without an installed package
WARM_RUNS = 3
DEPTH = 50  # candidates of a query
Row = dict[str, Any]
Ints = NDArray[np.int64]
STATE: dict[str, Callable[[Any, Any], Any]] = {
    "name": lambda driver, gpu: driver.nvmlDeviceGetName(gpu),
    "driver": lambda driver, _: driver.nvmlSystemGetDriverVersion(),
    "memory MiB": lambda driver, gpu: driver.nvmlDeviceGetMemoryInfo(gpu).total >> 20,
    "used MiB": lambda driver, gpu: driver.nvmlDeviceGetMemoryInfo(gpu).used >> 20,
    "joules": lambda driver, gpu: driver.nvmlDeviceGetTotalEnergyConsumption(gpu) / 1000,
    "SM MHz": lambda driver, gpu: driver.nvmlDeviceGetClockInfo(gpu, driver.NVML_CLOCK_SM),
    "SM MHz at most": lambda driver, gpu: driver.nvmlDeviceGetMaxClockInfo(gpu, driver.NVML_CLOCK_SM),
}


def gpu_state() -> Row:
    """What NVIDIA's driver tells of the first GPU; empty without one."""
    driver, found = nvml(), Row()
    if driver is None or not driver.nvmlDeviceGetCount():
        return found
    gpu = driver.nvmlDeviceGetHandleByIndex(0)
    for name, ask in STATE.items():
        with suppress(driver.NVMLError):  # this GPU does not tell it
            found[name] = ask(driver, gpu)
    return found


@dataclass(frozen=True)
class Sizes:
    """How much is measured.

    Attributes:
        budgets: tokens of a sequence.
        batches: sequences of a batch.
        seconds: time for one figure.
        product: rows and columns of the timed matrix products.
        copied: bytes that are copied to measure the memory's bandwidth.
        sequences: most real sequences that are scored for parity.
        documents, words: documents of a request, and words of a document.
        requests: requests of each measurement of the service.
        clients: numbers of concurrent clients.
    """

    budgets: tuple[int, ...]
    batches: tuple[int, ...]
    seconds: float
    product: int
    copied: int
    sequences: int
    documents: int
    words: int
    requests: int
    clients: tuple[int, ...]


SIZES = {
    "full": Sizes((64, 128, 256, 512), (1, 8, 32, 128, 512), 0.4, 8192, 4 << 30, 2000, 100, 2000, 48, (1, 8)),
    "small": Sizes((64, 128), (1, 8), 0.05, 512, 16 << 20, 40, 8, 200, 4, (1, 2)),
}


@dataclass
class Bench:
    """One run.

    Attributes:
        provider: CUDA, or the CPU to try the script itself.
        sizes: how much is measured.
        bundle: the embedded bundle with an fp16 graph.
        data: collection of the queries for parity.
        home: directory for log and store.
    """

    provider: Provider
    sizes: Sizes
    bundle: Path
    data: Path
    home: Path

    @property
    def device(self) -> torch.device:
        """The PyTorch device."""
        return torch.device("cpu" if self.provider is Provider.CPU else "cuda")

    def served(self) -> Session:
        """The graph that the service runs on the device."""
        return GraphModel.open(load_bundle(self.bundle), self.provider).session

    def seconds(self, work: Callable[[], object]) -> list[float]:
        """Seconds of each run of some work, as many as fit into a figure's time, after a few that warm it up."""
        taken: list[float] = []
        until = time.perf_counter() + self.sizes.seconds
        while len(taken) < 2 * WARM_RUNS or time.perf_counter() < until:
            started = time.perf_counter()
            work()
            if self.device.type == "cuda":
                torch.cuda.synchronize()
            taken.append(time.perf_counter() - started)
        return taken[WARM_RUNS:]


def device(bench: Bench) -> Iterator[Row]:
    """The GPU and its software, then its rates of arithmetic and memory, which limit every program."""
    state, size, there = gpu_state(), bench.sizes.product, bench.device
    state.setdefault("name", cpu_name())
    software = {"cuda": torch.version.cuda, "torch": torch.__version__, "onnxruntime": onnxruntime.__version__}
    host = {"host": f"{cpu_name()}, {default_threads()} threads", "python": platform.python_version()}
    yield {"table": "Device", **state, **software, **host}
    for precision, dtype in PRECISIONS.items():
        torch.backends.cuda.matmul.allow_tf32 = precision == "tf32"
        left, right = (torch.randn(size, size, device=there).to(dtype) for _ in range(2))  # zeros would cost less power
        taken = min(bench.seconds(lambda left=left, right=right: torch.matmul(left, right)))
        yield {"table": "Roofline", "what": precision, "TFLOP/s": 2 * size**3 / taken / 1e12}
    torch.backends.cuda.matmul.allow_tf32 = False
    given = torch.ones(bench.sizes.copied // 2, dtype=torch.uint8, device=there)
    copy = torch.empty_like(given)
    yield {"table": "Roofline", "what": "memory", "GB/s": 2 * given.numel() / min(bench.seconds(lambda: copy.copy_(given))) / 1e9}


def speed(bench: Bench) -> Iterator[Row]:
    """Sequences a second and milliseconds of the served graph by budget and batch. What the library refuses ends the part."""
    session = bench.served()
    for tokens, rows in product(bench.sizes.budgets, bench.sizes.batches):
        batch = random_batch(rows, tokens)
        taken = sorted(bench.seconds(lambda batch=batch: session.score(*batch)))
        median, worst = statistics.median(taken), taken[-1 - len(taken) // 10]
        rate = rows / median
        row = {"table": "Speed", "tokens": tokens, "batch": rows, "sequences/s": rate, "TFLOP/s": rate * operations(tokens) / 1e12}
        yield row | {"ms": median * 1e3, "ms, p90": worst * 1e3}


def operations(length: int) -> int:
    """Multiplications and additions of the encoder's matrix products for one sequence of `length` tokens."""
    return LAYERS * length * (8 * HIDDEN**2 + 4 * length * HIDDEN + 4 * HIDDEN * INTERMEDIATE)


def random_batch(rows: int, length: int) -> tuple[Ints, Ints, Ints]:
    """Random sequences that fill the budget: a query of 16 tokens, then a document. Ids, types and mask, each (rows, length)."""
    ids = np.random.default_rng(rows * length).integers(1000, VOCABULARY, (rows, length))
    return ids, np.broadcast_to((np.arange(length) >= 16).astype(np.int64), ids.shape).copy(), np.ones_like(ids)


def parity(bench: Bench) -> Iterator[Row]:
    """How far logits and rankings of real sequences move from the bundle's own graph in fp32 on the CPU."""
    bundle = load_bundle(bench.bundle)
    preparation, pad, packed, numbers = Preparation(Collection(bench.data), bundle.pipeline), bundle.tokenizer.pad_id, [], []
    for number, (query_id, candidates) in enumerate(sorted(preparation.collection.run("dev").items())):
        for doc_id in islice(candidates, DEPTH):
            sequences = preparation.pipeline.select(preparation.query(query_id), preparation.document(doc_id)).sequences
            packed += sequences
            numbers += [number] * len(sequences)
        if len(packed) >= bench.sizes.sequences:
            break
    reference, found = (
        score_all(scorer, packed, pad, bundle.tokenizer.template.document_type)
        for scorer in (GraphModel.open(bundle, Provider.CPU, precision=Precision.FP32).session, bench.served())
    )
    yield {"table": "Parity", "sequences": len(packed), **compared(reference, found, np.asarray(numbers))}


def compared(reference: NDArray[np.float32], found: NDArray[np.float32], queries: NDArray[np.int64]) -> Row:
    """The differences of logits, and the share of queries whose best sequence stays the best."""
    apart = np.abs(found - reference)
    groups = [np.flatnonzero(queries == query) for query in np.unique(queries)]
    firsts = [bool(reference[group].argmax() == found[group].argmax()) for group in groups]
    moved = {"largest difference": float(apart.max()), "mean": float(apart.mean())}
    return moved | {"first kept": sum(firsts) / len(firsts)}


def service(bench: Bench) -> Iterator[Row]:
    """The service over HTTP: start, stages of a request, documents a second as texts and by id, energy, memory."""
    sizes, source, used = bench.sizes, invented(BUNDLE / TOKENIZER_FILE), gpu_state().get("used MiB", 0)
    settings = {"bundle": bench.bundle, "provider": bench.provider, "store": bench.home / "store"}
    with Service(default_threads(), bench.home / "service.log", COMMAND, **settings) as running:
        provider = running.info["provider"]
        chosen = {"provider": provider["chosen"], "arithmetic": provider["arithmetic"]}
        yield {"table": "Start", "seconds": running.start_seconds, **chosen}
        answer = [running.rank(source.request(sizes.documents, sizes.words)) for _ in range(2)][-1]
        yield {"table": "Stages, ms", "whole": answer.seconds * 1e3} | {name: s * 1e3 for name, s in answer.stages.items()}
        texts = source.request(sizes.documents, sizes.words).documents
        stored = store(running.url, {f"document-{number}": text for number, text in enumerate(texts)})
        for clients in sizes.clients:
            requests = [source.request(sizes.documents, sizes.words) for _ in range(sizes.requests)]
            by_id = [json.dumps({"query": one.query, "documents": stored, "top_n": len(stored)}).encode() for one in requests]
            for seen, bodies in (("new", [make_body(one) for one in requests]), ("by id", by_id)):
                joules, began = gpu_state().get("joules", 0.0), time.perf_counter()
                send_all(running.url, bodies, clients)
                seconds, documents = time.perf_counter() - began, len(bodies) * sizes.documents
                energy = (gpu_state().get("joules", 0.0) - joules) / documents * 1000
                row = {"table": "Service", "documents": seen, "clients": clients, "documents/s": documents / seconds}
                yield row | {"joules for 1,000": energy or None}
        yield {"table": "Memory, MiB", "GPU": gpu_state().get("used MiB", 0) - used, "host": running.resident() >> 20}


PARTS: dict[str, Callable[[Bench], Iterator[Row]]] = {part.__name__: part for part in (device, parity, service, speed)}
"""The parts, most important first."""
