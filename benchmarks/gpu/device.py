"""Describes the GPU, and measures its rates of arithmetic and of memory, which limit every program."""

import platform
import time
from collections.abc import Callable, Iterator
from importlib.metadata import PackageNotFoundError, version

import onnxruntime
import torch

from benchmarks.gpu.bench import Bench
from benchmarks.gpu.record import Row
from benchmarks.performance.record import cpu_name
from keyblock.runtime.cpus import default_threads

PACKAGES = ("torch", "transformers", "onnxruntime-gpu", "onnxruntime-openvino", "tensorrt", "numpy")
PRECISIONS = {"fp32": torch.float32, "tf32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}
WARM_RUNS = 3


def measure(bench: Bench) -> Iterator[Row]:
    """Rows that describe the GPU and its software, then its rates, measured with PyTorch."""
    driver = bench.driver
    yield {
        "table": "device",
        "name": driver.name or cpu_name(),
        "driver": driver.version,
        "memory": driver.memory,
        "clocks": driver.clocks,
        "cuda": torch.version.cuda,
        "host": f"{cpu_name()}, {default_threads()} threads",
        "python": platform.python_version(),
        "providers": onnxruntime.get_available_providers(),
        "versions": {name: found for name in PACKAGES if (found := _version(name))},
    }
    for precision, dtype in PRECISIONS.items():
        if precision == "tf32" and not bench.on_gpu:
            continue
        torch.backends.cuda.matmul.allow_tf32 = precision == "tf32"
        rates = [_product(bench, size, dtype) for size in bench.sizes.products]
        yield {"table": "roofline", "what": precision, "rate": max(rates)}
    torch.backends.cuda.matmul.allow_tf32 = False
    yield {"table": "roofline", "what": "memory", "rate": _copy(bench)}
    if bench.on_gpu:
        yield {"table": "roofline", "what": "host to device, pinned", "rate": _fetch(bench)}
    yield {"table": "clocks", "after": driver.clocks}


def _product(bench: Bench, size: int, dtype: torch.dtype) -> float:
    """Operations a second of a product of square matrices. They hold random numbers, since zeros cost less power."""
    left, right = (torch.randn(size, size, device=bench.device).to(dtype) for _ in range(2))
    result = torch.empty_like(left)
    return 2 * size**3 / _seconds(bench, lambda: torch.matmul(left, right, out=result))


def _copy(bench: Bench) -> float:
    """Bytes a second that the device reads and writes when it copies within its memory."""
    given = torch.ones(bench.sizes.copied // 2, dtype=torch.uint8, device=bench.device)
    result = torch.empty_like(given)
    return 2 * given.numel() / _seconds(bench, lambda: result.copy_(given))


def _fetch(bench: Bench) -> float:
    """Bytes a second from pinned memory to the device."""
    given = torch.ones(bench.sizes.copied // 16, dtype=torch.uint8).pin_memory()
    result = torch.empty_like(given, device=bench.device)
    return given.numel() / _seconds(bench, lambda: result.copy_(given, non_blocking=True))


def _seconds(bench: Bench, work: Callable[[], object]) -> float:
    """Seconds of one run: the mean of as many runs as fit into a figure's time."""
    for _ in range(WARM_RUNS):
        work()
    bench.finish()
    runs, took = 1, 0.0
    while took < bench.sizes.seconds:
        runs = max(2 * runs, 4)
        started = time.perf_counter()
        for _ in range(runs):
            work()
        bench.finish()
        took = time.perf_counter() - started
    return took / runs


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
