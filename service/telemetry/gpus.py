"""Memory and utilisation of the GPUs that this process sees, as NVIDIA's driver reports them; nothing where there is none.

A driver whose device is lost may never answer. So it is asked in a thread of its own, which nobody waits for: what is shown is what
it said after the scrape before.
"""

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from service.telemetry.metrics import Metrics

log = logging.getLogger(__name__)


class Gpus:
    """Asks the driver; `measure` has the gauges set.

    Args:
        metrics: where they are set.
        library: NVML's bindings; by default those installed, where the driver loads.
    """

    def __init__(self, metrics: Metrics, library: Any = None) -> None:
        self._metrics = metrics
        self._nvml = library or nvml()
        self._asking: threading.Thread | None = None
        self._gpus = {} if self._nvml is None else {str(number): number for number in range(self._nvml.nvmlDeviceGetCount())}

    def measure(self) -> None:
        """Have the driver asked, unless it has not answered yet."""
        if self._gpus and not (self._asking and self._asking.is_alive()):
            self._asking = threading.Thread(target=self._ask, name="gpus", daemon=True)
            self._asking.start()

    def _ask(self) -> None:
        """Set the gauges of each GPU; what one does not tell (a part of a GPU has no utilisation of its own) is left out."""
        for gpu, number in self._gpus.items():
            with self._untold(gpu):
                handle = self._nvml.nvmlDeviceGetHandleByIndex(number)
                memory = self._nvml.nvmlDeviceGetMemoryInfo(handle)
                self._metrics.set("gpu_memory", memory.used, gpu=gpu)
                self._metrics.set("gpu_memory_total", memory.total, gpu=gpu)
                self._metrics.set("gpu_utilization", self._nvml.nvmlDeviceGetUtilizationRates(handle).gpu / 100, gpu=gpu)

    @contextmanager
    def _untold(self, gpu: str) -> Iterator[None]:
        try:
            yield
        except self._nvml.NVMLError as error:
            log.debug("GPU %s does not tell its state: %s", gpu, error)


def nvml() -> Any:
    """The bindings, initialised; None where they are not installed or there is no driver."""
    try:
        import pynvml
    except ImportError:
        return None
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return None
    return pynvml
