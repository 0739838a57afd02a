"""What NVIDIA's driver tells of the first GPU: name, memory, clocks, energy; nothing where there is none."""

from collections.abc import Callable
from typing import Any

from service.telemetry.gpus import nvml


class Driver:
    """Asks NVML.

    Args:
        library: its bindings; by default those installed, where the driver loads.
    """

    def __init__(self, library: Any = None) -> None:
        self._nvml = library or _with_a_gpu()
        self._gpu = self._nvml.nvmlDeviceGetHandleByIndex(0) if self._nvml else None

    @property
    def name(self) -> str | None:
        """What the GPU calls itself; None without a driver."""
        return self._query(lambda nvml, gpu: _text(nvml.nvmlDeviceGetName(gpu)))

    @property
    def version(self) -> str | None:
        """The driver's."""
        return self._query(lambda nvml, _: _text(nvml.nvmlSystemGetDriverVersion()))

    @property
    def memory(self) -> int | None:
        """Bytes that the GPU has."""
        return self._query(lambda nvml, gpu: int(nvml.nvmlDeviceGetMemoryInfo(gpu).total))

    @property
    def used(self) -> int | None:
        """Bytes of it in use, by all processes."""
        return self._query(lambda nvml, gpu: int(nvml.nvmlDeviceGetMemoryInfo(gpu).used))

    @property
    def joules(self) -> float | None:
        """Energy since the driver was loaded."""
        return self._query(lambda nvml, gpu: nvml.nvmlDeviceGetTotalEnergyConsumption(gpu) / 1000)

    @property
    def clocks(self) -> dict[str, int]:
        """MHz now and at most, of the multiprocessors and of the memory; empty where they are not told."""
        found = {}
        for name, kind in (("SM", "NVML_CLOCK_SM"), ("memory", "NVML_CLOCK_MEM")):
            now = self._query(lambda nvml, gpu, kind=kind: int(nvml.nvmlDeviceGetClockInfo(gpu, getattr(nvml, kind))))
            most = self._query(lambda nvml, gpu, kind=kind: int(nvml.nvmlDeviceGetMaxClockInfo(gpu, getattr(nvml, kind))))
            found |= {f"{name} now": now, f"{name} at most": most}
        return {name: value for name, value in found.items() if value is not None}

    def _query(self, ask: Callable[..., Any]) -> Any:
        """What the library says; None without it, and where the GPU does not tell it."""
        if self._nvml is None:
            return None
        try:
            return ask(self._nvml, self._gpu)
        except self._nvml.NVMLError:
            return None


def _text(output: str | bytes) -> str:
    return output.decode() if isinstance(output, bytes) else output


def _with_a_gpu() -> Any:
    """The bindings, initialised; None where they are not installed, or there is no driver or no GPU."""
    library = nvml()
    try:
        return library if library is not None and library.nvmlDeviceGetCount() else None
    except library.NVMLError:
        return None
