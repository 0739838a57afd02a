"""Shared by the parts: sizes, directories and the device."""

import gc
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from benchmarks.gpu.driver import Driver
from keyblock.runtime.cpus import default_threads
from keyblock.runtime.providers import Provider

ROOT = Path(__file__).resolve().parents[2]
BUNDLE = ROOT / "models" / "default"


@dataclass(frozen=True)
class Sizes:
    """How much is measured.

    Attributes:
        name: name of the set; figures are comparable only within one set.
        budgets: tokens of a sequence.
        batches: sequences of a batch.
        seconds: time for one figure.
        products: rows and columns of the timed matrix products.
        copied: bytes that are copied to measure the memory's bandwidth.
        sequences: most real sequences that are scored for parity.
        documents, words: documents of a request, and words of a document.
        requests: requests of each measurement of the service.
        clients: numbers of concurrent clients, one measurement for each.
        starts: number of starts of the service.
    """

    name: str
    budgets: tuple[int, ...]
    batches: tuple[int, ...]
    seconds: float
    products: tuple[int, ...]
    copied: int
    sequences: int
    documents: int
    words: int
    requests: int
    clients: tuple[int, ...]
    starts: int


FULL = Sizes("full", (64, 128, 256, 512), (1, 8, 32, 128, 512), 0.4, (4096, 8192), 4 << 30, 2000, 100, 2000, 48, (1, 8), 3)
SMALL = Sizes("small", (64, 128), (1, 8), 0.05, (256, 512), 16 << 20, 40, 8, 200, 4, (1, 2), 1)
SIZES = {sizes.name: sizes for sizes in (FULL, SMALL)}


@dataclass
class Bench:
    """One run of the benchmark.

    Attributes:
        provider: CUDA, or the CPU to try the script itself.
        sizes: how much is measured.
        prepared: what `benchmarks.gpu.prepare` wrote.
        home: directory for graphs, logs and bundles.
        bundle: bundle that is served, and whose ranking is compared.
    """

    provider: Provider
    sizes: Sizes
    prepared: Path
    home: Path
    bundle: Path = BUNDLE
    driver: Driver = field(default_factory=Driver)

    def __post_init__(self) -> None:
        self.home.mkdir(parents=True, exist_ok=True)

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

    def forget(self) -> None:
        """Free the device's unused memory."""
        gc.collect()
        if self.on_gpu:
            torch.cuda.empty_cache()

    def host(self, values: np.ndarray) -> Tensor:
        """A copy in pinned memory, which the GPU can fetch."""
        copied = torch.from_numpy(np.array(values))
        return copied.pin_memory() if self.on_gpu else copied

    def there(self, values: Tensor) -> Tensor:
        """A copy in the device's memory. On a GPU it may arrive later, but before any work that starts after it."""
        return values.to(self.device, non_blocking=True, copy=True)
