"""Memory and utilisation of the GPUs that this process sees, from NVIDIA's driver; nothing if there is no driver.

A driver whose device is lost may never answer. So a thread of its own calls the driver, and nobody waits for it: the gauges show
the values from the scrape before.
"""

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from service.telemetry.metrics import Metrics

log = logging.getLogger(__name__)


class Gpus:
    """Reads the driver; `measure` sets the gauges.

    Args:
        metrics: has the gauges.
        library: NVML's bindings; None: the installed ones, if the driver loads.
    """

    def __init__(self, metrics: Metrics, library: Any = None) -> None:
        self._metrics = metrics
        self._nvml = library or nvml()
        self._thread: threading.Thread | None = None
        self._gpus = {} if self._nvml is None else {str(number): number for number in range(self._nvml.nvmlDeviceGetCount())}

    def measure(self) -> None:
        """Start to read the driver, unless the last read has not ended yet."""
        if self._gpus and not (self._thread and self._thread.is_alive()):
            self._thread = threading.Thread(target=self._ask, name="gpus", daemon=True)
            self._thread.start()

    def _ask(self) -> None:
        """Set the gauges of each GPU, without values that it does not report (a part of a GPU has no utilisation of its own)."""
        for gpu, number in self._gpus.items():
            with self._tolerated(gpu):
                handle = self._nvml.nvmlDeviceGetHandleByIndex(number)
                memory = self._nvml.nvmlDeviceGetMemoryInfo(handle)
                self._metrics.set("gpu_memory", memory.used, gpu=gpu)
                self._metrics.set("gpu_memory_total", memory.total, gpu=gpu)
                self._metrics.set("gpu_utilization", self._nvml.nvmlDeviceGetUtilizationRates(handle).gpu / 100, gpu=gpu)

    @contextmanager
    def _tolerated(self, gpu: str) -> Iterator[None]:
        try:
            yield
        except self._nvml.NVMLError as error:
            log.debug("GPU %s does not tell its state: %s", gpu, error)


def nvml() -> Any:
    """The bindings, initialised; None if they are not installed or there is no driver."""
    try:
        import pynvml
    except ImportError:
        return None
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return None
    return pynvml
