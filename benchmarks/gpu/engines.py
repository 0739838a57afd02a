"""Ways to compute a batch: ONNX Runtime as in the service, with bound inputs, or as a captured CUDA graph; and PyTorch."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
import onnxruntime
import torch
from numpy.typing import NDArray

from benchmarks.gpu.bench import Bench
from benchmarks.gpu.graphs import graph_file
from benchmarks.gpu.shapes import Shape
from keyblock.runtime.cpus import default_threads
from keyblock.runtime.providers import Choice, Precision, Provider, resolve
from keyblock.runtime.session import INPUTS, Session, open_graph

Batch = tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]
"""Ids, types and mask, each of shape (rows, length)."""
DTYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}
CUDA_OPTIONS = {"arena_extend_strategy": "kSameAsRequested"}
TENSORRT_OPTIONS = {"trt_fp16_enable": "1"} | {  # one engine for all shapes: each unknown shape would cost a minute
    f"trt_profile_{end}_shapes": ",".join(f"{name}:{sizes}" for name in INPUTS)
    for end, sizes in (("min", "1x16"), ("opt", "32x128"), ("max", "512x512"))
}


@dataclass(frozen=True)
class Way:
    """A way to compute.

    Attributes:
        title: title in the tables.
        precision: precision of the matrix products.
        provider: ONNX Runtime's provider; None: PyTorch computes.
        kind: kind of graph; see `benchmarks.gpu.prepare.KINDS`.
        bound: whether inputs and outputs are on the device, copied from pinned memory; else they are numpy arrays, as in service/.
        captured: whether a shape's second run is recorded as a CUDA graph, which later runs replay.
        compiled: whether PyTorch compiles the model for each shape.
    """

    title: str
    precision: str
    provider: Provider | None = None
    kind: str = ""
    bound: bool = False
    captured: bool = False
    compiled: bool = False


GPU_WAYS = (
    Way("ONNX Runtime, without padding", "fp16", Provider.CUDA, "unpadded"),
    Way("ONNX Runtime, without padding, bound", "fp16", Provider.CUDA, "unpadded", bound=True),
    Way("ONNX Runtime, padded, bound", "fp16", Provider.CUDA, "fp16", bound=True),
    Way("ONNX Runtime, padded, CUDA graph", "fp16", Provider.CUDA, "fp16", bound=True, captured=True),
    Way("ONNX Runtime, padded, bound", "fp32", Provider.CUDA, "fp32", bound=True),
    Way("PyTorch, SDPA", "fp16"),
    Way("PyTorch, SDPA", "bf16"),
)
CPU_WAYS = (
    Way("ONNX Runtime", "fp32", Provider.CPU, "fp32"),
    Way("ONNX Runtime, bound", "fp32", Provider.CPU, "fp32", bound=True),
    Way("PyTorch, SDPA", "fp32"),
    Way("PyTorch, SDPA", "bf16"),
)
COMPILED_WAYS = (Way("PyTorch, compiled", "fp16", compiled=True),)
TENSORRT_WAYS = (Way("TensorRT", "fp16", Provider.TENSORRT, "plain", bound=True),)


class Work(Protocol):
    """A batch that can be computed any number of times."""

    def start(self) -> None:
        """Start the computation. On a GPU this may return before the end."""

    def answer(self) -> NDArray[np.float32]:
        """Wait for the last start's logits, of shape (rows,)."""


Engine = Callable[[Batch], Work]
"""Prepares a batch for computation."""


def open_engine(bench: Bench, shape: Shape, way: Way) -> Engine:
    """Load a model of that shape. Raises the library's exception if it cannot; the caller reports it in a row."""
    if way.provider is None:
        model = shape.peer(DTYPES[way.precision], bench.device)
        run = torch.compile(model, dynamic=False) if way.compiled else model
        return lambda batch: TorchWork(bench, run, batch, typed=not shape.roberta)
    return open_session(bench, shape.name, way)


def open_session(bench: Bench, name: str, way: Way) -> Engine:
    """Open a session on a prepared graph. Raises as `open_engine` does."""
    assert way.provider is not None  # noqa: S101
    path = graph_file(bench, name, way.kind)
    if not way.bound:
        opened = Session(path, choice_of(bench, way))
        return lambda batch: HostWork(opened, batch)
    session = open_graph(path, choice_of(bench, way), default_threads())
    return lambda batch: BoundWork(bench, session, batch, captured=way.captured)


def choice_of(bench: Bench, way: Way) -> Choice:
    """The provider with a way's options. Raises ProviderError if it is not available."""
    assert way.provider is not None  # noqa: S101
    choice = resolve(way.provider, precision=Precision.AUTO, variants=())
    if way.provider is Provider.CPU:
        return choice
    _ = bench.device  # creates the stream
    shared = {"user_compute_stream": str(torch.cuda.current_stream().cuda_stream)} if way.bound else {}
    cuda = CUDA_OPTIONS | shared | ({"enable_cuda_graph": "1"} if way.captured else {})
    options: dict[str, dict[str, Any]] = {"CUDAExecutionProvider": cuda, "TensorrtExecutionProvider": TENSORRT_OPTIONS | shared}
    first, *rest = (name for name, _ in choice.ort_providers)
    names = dict.fromkeys([first, "CUDAExecutionProvider", *rest])  # operators that TensorRT does not know stay on the GPU
    return replace(choice, ort_providers=[(name, options.get(name, {})) for name in names])


class HostWork:
    """Computes as the service does, with numpy arrays in and out. `start` returns at the end."""

    def __init__(self, session: Session, batch: Batch) -> None:
        self._session, self._batch = session, batch

    def start(self) -> None:
        """See Work."""
        self._logits = self._session.score(*self._batch)

    def answer(self) -> NDArray[np.float32]:
        """See Work."""
        return self._logits


class BoundWork:
    """Copies inputs from pinned memory to buffers on the device that the session reads, and logits back the same way."""

    _shapes = 0  # captured so far: each has a number

    def __init__(self, bench: Bench, session: Any, batch: Batch, *, captured: bool = False) -> None:
        self._bench, self._session = bench, session
        names = [given.name for given in session.get_inputs()]
        self._from = [bench.host(values) for name, values in zip(INPUTS, batch, strict=True) if name in names]
        self._there = [bench.there(values) for values in self._from]
        self._logits = torch.empty(len(batch[0]), dtype=torch.float32, device=bench.device)
        self._back = bench.host(np.zeros(len(batch[0]), np.float32))
        self._binding = session.io_binding()
        for name, values in zip((name for name in INPUTS if name in names), self._there, strict=True):
            self._bind(self._binding.bind_input, name, values, np.int64)
        self._bind(self._binding.bind_output, session.get_outputs()[0].name, self._logits, np.float32)
        self._run_options = onnxruntime.RunOptions()
        self._run_options.add_run_config_entry("disable_synchronize_execution_providers", "1")
        if captured:
            BoundWork._shapes += 1
            self._run_options.add_run_config_entry("gpu_graph_id", str(BoundWork._shapes))

    def _bind(self, bind: Callable[..., None], name: str, values: torch.Tensor, kind: type) -> None:
        bind(name, self._bench.device.type, 0, kind, tuple(values.shape), values.data_ptr())

    def start(self) -> None:
        """See Work."""
        for there, values in zip(self._there, self._from, strict=True):
            there.copy_(values, non_blocking=True)
        self._session.run_with_iobinding(self._binding, self._run_options)
        self._back.copy_(self._logits, non_blocking=True)

    def answer(self) -> NDArray[np.float32]:
        """See Work."""
        self._bench.finish()
        return self._back.numpy()


class TorchWork:
    """Computes with a transformers model of the same shape: inputs and logits are in pinned memory."""

    def __init__(self, bench: Bench, model: Callable[..., Any], batch: Batch, *, typed: bool) -> None:
        self._bench, self._model = bench, model
        ids, types, mask = (bench.host(values) for values in batch)
        self._from = {"input_ids": ids, "attention_mask": mask} | ({"token_type_ids": types} if typed else {})
        self._back = bench.host(np.zeros(len(batch[0]), np.float32))

    @torch.inference_mode()
    def start(self) -> None:
        """See Work."""
        given = {name: self._bench.there(values) for name, values in self._from.items()}
        self._back.copy_(self._model(**given).logits.squeeze(-1), non_blocking=True)

    def answer(self) -> NDArray[np.float32]:
        """See Work."""
        self._bench.finish()
        return self._back.numpy()


def random_batch(rows: int, length: int, vocabulary: int) -> Batch:
    """Random sequences that fill the budget: a query of 16 tokens, then a document. Types are BERT's."""
    ids = np.random.default_rng(rows * length).integers(1000, vocabulary, (rows, length))
    types = np.broadcast_to((np.arange(length) >= 16).astype(np.int64), ids.shape)
    return ids, types, np.ones_like(ids)


def ways_of(provider: Provider, ways: Sequence[Way] = GPU_WAYS) -> Sequence[Way]:
    """The part's ways on a GPU; the CPU's ways on a CPU, where the script is only tried."""
    return ways if provider is not Provider.CPU else CPU_WAYS
