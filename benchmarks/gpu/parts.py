"""What is measured, a function a part: each yields rows, whose `table` names their table."""

import gc
import json
import platform
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import onnxruntime
import torch
from numpy.typing import NDArray

from benchmarks.gpu.driver import Driver
from benchmarks.gpu.prepare import SEQUENCES, VARIANT, load, served_bundle
from benchmarks.performance.report import cpu_name
from keyblock.bundle import GRAPH_FILE, TOKENIZER_FILE, Variant, load_bundle
from keyblock.runtime.batching import Scorer, score_all
from keyblock.runtime.cpus import default_threads
from keyblock.runtime.providers import Precision, Provider, resolve
from keyblock.runtime.session import INPUTS, Session, one_line, open_graph
from tests.support.serving import REQUEST_SECONDS, Service, ServiceError, make_body
from tests.support.texts import invented

BUNDLE = Path(__file__).resolve().parents[2] / "models" / "default"
LAYERS, HIDDEN, HEADS, INTERMEDIATE, VOCABULARY = 6, 384, 12, 1536, 30_522  # MiniLM-L6, the embedded model's encoder
PRECISIONS = {"fp32": torch.float32, "tf32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}
COMMAND = (sys.executable, "-m", "service.cli")  # works without an installed package
WARM_RUNS, MOST_RUNS = 3, 200
Row = dict[str, Any]
Batch = tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]
"""Ids, types and mask, each of shape (rows, length)."""


@dataclass(frozen=True)
class Sizes:
    """How much is measured.

    Attributes:
        name: name of the set; figures are comparable only within one set.
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

    name: str
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
    "full": Sizes("full", (64, 128, 256, 512), (1, 8, 32, 128, 512), 0.4, 8192, 4 << 30, 2000, 100, 2000, 48, (1, 8)),
    "small": Sizes("small", (64, 128), (1, 8), 0.05, 512, 16 << 20, 40, 8, 200, 4, (1, 2)),
}


@dataclass
class Bench:
    """One run.

    Attributes:
        provider: CUDA, or the CPU to try the script itself.
        sizes: how much is measured.
        prepared: what `benchmarks.gpu.prepare` wrote.
        home: directory for logs and bundles.
    """

    provider: Provider
    sizes: Sizes
    prepared: Path
    home: Path
    driver: Driver = field(default_factory=Driver)

    @property
    def on_gpu(self) -> bool:
        """Whether the device is a GPU."""
        return self.provider is not Provider.CPU

    @cached_property
    def device(self) -> torch.device:
        """The PyTorch device. One stream other than the default does all work, so that libraries can share it."""
        if not self.on_gpu:
            torch.set_num_threads(default_threads())
            return torch.device("cpu")
        torch.cuda.set_stream(torch.cuda.Stream())
        return torch.device("cuda", 0)

    def finish(self) -> None:
        """Wait for all started work."""
        if self.on_gpu:
            torch.cuda.current_stream().synchronize()

    def host(self, values: NDArray[Any]) -> torch.Tensor:
        """A copy in pinned memory, which the GPU can fetch."""
        copied = torch.from_numpy(np.array(values))
        return copied.pin_memory() if self.on_gpu else copied

    def seconds(self, work: Callable[[], object]) -> float:
        """Seconds of one run of work that is not waited for: the mean of as many runs as fit into a figure's time."""
        for _ in range(WARM_RUNS):
            work()
        self.finish()
        runs, took = 1, 0.0
        while took < self.sizes.seconds:
            runs = max(2 * runs, 4)
            started = time.perf_counter()
            for _ in range(runs):
                work()
            self.finish()
            took = time.perf_counter() - started
        return took / runs


def device(bench: Bench) -> Iterator[Row]:
    """The GPU and its software, then its rates of arithmetic and memory, which limit every program."""
    driver, size, there = bench.driver, bench.sizes.product, bench.device
    named = {"name": driver.name or cpu_name(), "driver": driver.version, "memory MiB": (driver.memory or 0) >> 20}
    software = {"cuda": torch.version.cuda, "torch": torch.__version__, "onnxruntime": onnxruntime.__version__}
    yield {
        "table": "device",
        **named,
        **software,
        "host": f"{cpu_name()}, {default_threads()} threads",
        "python": platform.python_version(),
    }
    for precision, dtype in PRECISIONS.items():
        if precision == "tf32" and not bench.on_gpu:
            continue
        torch.backends.cuda.matmul.allow_tf32 = precision == "tf32"
        left, right = (torch.randn(size, size, device=there).to(dtype) for _ in range(2))  # zeros would cost less power
        result = torch.empty_like(left)
        taken = bench.seconds(lambda left=left, right=right, result=result: torch.matmul(left, right, out=result))
        yield {"table": "roofline", "what": precision, "TFLOP/s": 2 * size**3 / taken / 1e12}
    torch.backends.cuda.matmul.allow_tf32 = False
    given = torch.ones(bench.sizes.copied // 2, dtype=torch.uint8, device=there)
    copy = torch.empty_like(given)
    yield {"table": "roofline", "what": "memory", "GB/s": 2 * given.numel() / bench.seconds(lambda: copy.copy_(given)) / 1e9}
    yield {"table": "clocks", **driver.clocks}


@dataclass(frozen=True)
class Way:
    """A way to compute: ONNX Runtime on a graph, as in the service or with inputs bound on the device; or PyTorch (no graph)."""

    title: str
    precision: str
    graph: str = ""  # "fp16": the prepared variant; "fp32": the bundle's own
    bound: bool = False


GPU_WAYS = (
    Way("ONNX Runtime, as served", "fp16", "fp16"),
    Way("ONNX Runtime, bound", "fp16", "fp16", bound=True),
    Way("ONNX Runtime, bound", "fp32", "fp32", bound=True),
    Way("PyTorch, SDPA", "fp16"),
    Way("PyTorch, SDPA", "bf16"),
)
CPU_WAYS = (
    Way("ONNX Runtime, as served", "fp32", "fp32"),
    Way("ONNX Runtime, bound", "fp32", "fp32", bound=True),
    Way("PyTorch, SDPA", "fp32"),
)


class Work:
    """A batch on its way: `start` begins it, `answer` waits for its logits."""

    def __init__(self, bench: Bench, way: Way) -> None:
        self._bench = bench
        self._model: Any = None
        if not way.graph:
            self._model = peer_model(PRECISIONS[way.precision], bench.device)
            return
        prepared = bench.prepared / Variant.model_validate_json((bench.prepared / VARIANT).read_text()).graph.file
        path = prepared if way.graph == "fp16" else BUNDLE / GRAPH_FILE
        choice = resolve(bench.provider, precision=Precision.AUTO, variants=())
        self._session = open_graph(path, choice, default_threads()) if way.bound else Session(path, choice)
        self._bound = way.bound

    def load(self, batch: Batch) -> None:
        """Take a batch; bound inputs go to the device, from pinned memory, with each start."""
        self._batch, bench = batch, self._bench
        self._back = bench.host(np.zeros(len(batch[0]), np.float32))
        self._from = {name: bench.host(values) for name, values in zip(INPUTS, batch, strict=True)}
        if self._model is not None or not self._bound:
            return
        self._binding = self._session.io_binding()
        names = [given.name for given in self._session.get_inputs()]
        self._there = {name: self._from[name].to(bench.device) for name in names}
        self._logits = torch.empty(len(batch[0]), dtype=torch.float32, device=bench.device)
        for name, values in self._there.items():
            self._binding.bind_input(name, bench.device.type, 0, np.int64, tuple(values.shape), values.data_ptr())
        output = self._session.get_outputs()[0].name
        self._binding.bind_output(output, bench.device.type, 0, np.float32, tuple(self._logits.shape), self._logits.data_ptr())

    @torch.inference_mode()
    def start(self) -> None:
        """Begin. On a GPU this may return before the end."""
        if self._model is not None:
            given = {name: values.to(self._bench.device, non_blocking=True) for name, values in self._from.items()}
            self._back.copy_(self._model(**given).logits.squeeze(-1), non_blocking=True)
        elif self._bound:
            for name, there in self._there.items():
                there.copy_(self._from[name], non_blocking=True)
            self._bench.finish()
            self._session.run_with_iobinding(self._binding)
            self._back.copy_(self._logits, non_blocking=True)
        else:
            self._back = torch.from_numpy(self._session.score(*self._batch))

    def answer(self) -> NDArray[np.float32]:
        """Wait for the last start's logits, of shape (rows,)."""
        self._bench.finish()
        return np.asarray(self._back.numpy())

    def score(self, *batch: NDArray[np.int64]) -> NDArray[np.float32]:
        """See `keyblock.runtime.batching.Scorer`."""
        ids, types, mask = batch
        self.load((ids, types, mask))
        self.start()
        return self.answer().copy()


def peer_model(dtype: torch.dtype, there: torch.device) -> torch.nn.Module:
    """A sequence classifier of the embedded model's sizes as users of transformers run it, with random weights."""
    from transformers import AutoModelForSequenceClassification, BertConfig

    sizes = {"num_hidden_layers": LAYERS, "hidden_size": HIDDEN, "num_attention_heads": HEADS, "intermediate_size": INTERMEDIATE}
    with there:
        model = AutoModelForSequenceClassification.from_config(
            BertConfig(**sizes, num_labels=1), attn_implementation="sdpa", dtype=dtype
        )
    return model.to(there).eval()


def operations(length: int) -> int:
    """Multiplications and additions of the encoder's matrix products for one sequence of `length` tokens."""
    return LAYERS * length * (8 * HIDDEN**2 + 4 * length * HIDDEN + 4 * HIDDEN * INTERMEDIATE)


def speed(bench: Bench) -> Iterator[Row]:
    """Sequences a second and milliseconds by way, budget and batch. What a library refuses is a row with its message."""
    for way in GPU_WAYS if bench.on_gpu else CPU_WAYS:
        common = {"table": "speed", "way": way.title, "arithmetic": way.precision}
        try:
            work = Work(bench, way)
        except Exception as error:  # each library has its own exceptions
            yield common | {"refused": one_line(error)}
            continue
        for budget, batch in product(bench.sizes.budgets, bench.sizes.batches):
            try:
                work.load(random_batch(batch, budget))
                found = timed(work, bench.sizes.seconds)
            except Exception as error:  # mostly out of memory
                yield common | {"tokens": budget, "batch": batch, "refused": one_line(error)}
                continue
            rate = found.pop("rate") * batch
            yield common | {
                "tokens": budget,
                "batch": batch,
                "sequences/s": rate,
                "TFLOP/s": rate * operations(budget) / 1e12,
                **found,
            }
        del work
        gc.collect()


def random_batch(rows: int, length: int) -> Batch:
    """Random sequences that fill the budget: a query of 16 tokens, then a document."""
    ids = np.random.default_rng(rows * length).integers(1000, VOCABULARY, (rows, length))
    return ids, np.broadcast_to((np.arange(length) >= 16).astype(np.int64), ids.shape).copy(), np.ones_like(ids)


def timed(work: Work, seconds: float, clock: Callable[[], float] = time.perf_counter) -> dict[str, float]:
    """Milliseconds from start to answer (median and 90th percentile), and batches a second when none waits for the one before."""
    for _ in range(WARM_RUNS):
        work.start()
        work.answer()
    latencies: list[float] = []
    until = clock() + seconds / 2
    while len(latencies) < WARM_RUNS or (clock() < until and len(latencies) < MOST_RUNS):
        started = clock()
        work.start()
        work.answer()
        latencies.append(clock() - started)
    median = statistics.median(latencies)
    runs = min(MOST_RUNS, max(WARM_RUNS, round(seconds / 2 / max(median, 1e-9))))
    started = clock()
    for _ in range(runs):
        work.start()
    work.answer()
    worst = sorted(latencies)[-1 - len(latencies) // 10]
    return {"ms": median * 1e3, "ms, p90": worst * 1e3, "rate": runs / (clock() - started)}


def parity(bench: Bench) -> Iterator[Row]:
    """How far logits and rankings of real sequences move from the bundle's own graph in fp32 on the CPU."""
    packed, queries = load(bench.prepared / SEQUENCES, bench.sizes.sequences)
    tokenizer = load_bundle(BUNDLE).tokenizer

    def logits(scorer: Scorer) -> NDArray[np.float32]:
        return score_all(scorer, packed, tokenizer.pad_id, tokenizer.template.document_type)

    reference = logits(Session(BUNDLE / GRAPH_FILE, Provider.CPU))
    for way in [way for way in (GPU_WAYS if bench.on_gpu else CPU_WAYS) if way.graph]:
        row = {"table": "parity", "way": f"{way.title}, {way.precision}", "sequences": len(packed)}
        try:
            yield row | compared(reference, logits(Work(bench, way)), queries)
        except Exception as error:  # each library has its own exceptions
            yield row | {"refused": one_line(error)}


def compared(reference: NDArray[np.float32], found: NDArray[np.float32], queries: NDArray[np.int64]) -> Row:
    """The differences of logits, and the shares of queries and pairs of documents whose order changes."""
    apart = np.abs(found - reference)
    groups = [np.flatnonzero(queries == query) for query in np.unique(queries)]
    firsts = [bool(reference[group].argmax() == found[group].argmax()) for group in groups]
    counts = np.asarray([swapped(reference[group], found[group]) for group in groups]).sum(0)
    moved = {"largest difference": float(apart.max()), "mean": float(apart.mean())}
    return moved | {"first kept": sum(firsts) / len(firsts), "pairs swapped": float(counts[0] / max(counts[1], 1))}


def swapped(reference: NDArray[np.float32], found: NDArray[np.float32]) -> tuple[int, int]:
    """The number of pairs of documents in reversed order, and of all pairs without a tie in the reference."""
    upper = np.triu_indices(len(reference), 1)
    before, after = (np.sign(values[:, None] - values[None, :])[upper] for values in (reference, found))
    return int((before * after < 0).sum()), int((before != 0).sum())


def service(bench: Bench) -> Iterator[Row]:
    """The service over HTTP: start, stages of a request, documents a second as texts and by id, energy, memory."""
    from benchmarks.performance.parts import send_all

    sizes, source, used = bench.sizes, invented(BUNDLE / TOKENIZER_FILE), bench.driver.used
    bundle = served_bundle(BUNDLE, bench.prepared, bench.home / "served")
    settings = {"bundle": bundle, "provider": bench.provider, "store": bench.home / "store"}
    with Service(default_threads(), bench.home / "service.log", COMMAND, **settings) as running:
        provider = running.info["provider"]
        yield {
            "table": "start",
            "seconds": running.start_seconds,
            "provider": provider["chosen"],
            "arithmetic": provider["arithmetic"],
        }
        answer = [running.rank(source.request(sizes.documents, sizes.words)) for _ in range(2)][-1]
        yield {"table": "stages, ms", "whole": answer.seconds * 1e3} | {name: s * 1e3 for name, s in answer.stages.items()}
        stored = store(running, source.request(sizes.documents, sizes.words).documents)
        for clients in sizes.clients:
            requests = [source.request(sizes.documents, sizes.words) for _ in range(sizes.requests)]
            by_id = [json.dumps({"query": one.query, "documents": stored, "top_n": len(stored)}).encode() for one in requests]
            for seen, bodies in (("new", [make_body(one) for one in requests]), ("by id", by_id)):
                joules, began = bench.driver.joules, time.perf_counter()
                send_all(running.url, bodies, clients)
                seconds, after = time.perf_counter() - began, bench.driver.joules
                documents = len(bodies) * sizes.documents
                energy = None if joules is None or after is None else (after - joules) / documents * 1000
                row = {"table": "service", "documents": seen, "clients": clients, "documents/s": documents / seconds}
                yield row | {"joules for 1,000": energy}
        grown = None if used is None or bench.driver.used is None else (bench.driver.used - used) >> 20
        yield {"table": "memory, MiB", "GPU": grown, "host": running.resident() >> 20}


def store(running: Service, texts: Sequence[str]) -> list[dict[str, str]]:
    """Store the documents. Returns the `documents` of a request that asks for them by id. Raises ServiceError."""
    ids = [f"document-{number}" for number in range(len(texts))]
    lines = [json.dumps({"id": one, "text": text}) for one, text in zip(ids, texts, strict=True)]
    answer = httpx.put(f"{running.url}/documents", content="\n".join(lines), timeout=REQUEST_SECONDS)
    if answer.status_code != 200 or answer.json()["stored"] != len(ids):
        raise ServiceError(f"keyblock-serve stored not all documents: {answer.text[:300]}")
    return [{"id": one} for one in ids]


PARTS: dict[str, Callable[[Bench], Iterator[Row]]] = {part.__name__: part for part in (device, parity, service, speed)}
