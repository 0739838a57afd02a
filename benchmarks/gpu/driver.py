"""Reads name, memory, clocks and energy of the first GPU from NVIDIA's driver."""

from collections.abc import Callable
from typing import Any

from service.telemetry.gpus import nvml


class Driver:
    """The first GPU, as NVML describes it. Without a GPU, every property is None or empty.

    Args:
        library: NVML's bindings; by default the installed ones, if the driver loads.
    """

    def __init__(self, library: Any = None) -> None:
        self._nvml = library or _with_a_gpu()
        self._gpu = self._nvml.nvmlDeviceGetHandleByIndex(0) if self._nvml else None

    @property
    def name(self) -> str | None:
        """The GPU's name; None without a driver."""
        return self._query(lambda nvml, gpu: _text(nvml.nvmlDeviceGetName(gpu)))

    @property
    def version(self) -> str | None:
        """Version of the driver."""
        return self._query(lambda nvml, _: _text(nvml.nvmlSystemGetDriverVersion()))

    @property
    def memory(self) -> int | None:
        """Bytes of the GPU's memory."""
        return self._query(lambda nvml, gpu: int(nvml.nvmlDeviceGetMemoryInfo(gpu).total))

    @property
    def used(self) -> int | None:
        """Bytes of the GPU's memory that all processes use."""
        return self._query(lambda nvml, gpu: int(nvml.nvmlDeviceGetMemoryInfo(gpu).used))

    @property
    def joules(self) -> float | None:
        """Energy in joules since the driver was loaded."""
        return self._query(lambda nvml, gpu: nvml.nvmlDeviceGetTotalEnergyConsumption(gpu) / 1000)

    @property
    def clocks(self) -> dict[str, int]:
        """Current and highest MHz of the multiprocessors and of the memory; empty if the driver does not report them."""
        found = {}
        for name, kind in (("SM", "NVML_CLOCK_SM"), ("memory", "NVML_CLOCK_MEM")):
            now = self._query(lambda nvml, gpu, kind=kind: int(nvml.nvmlDeviceGetClockInfo(gpu, getattr(nvml, kind))))
            most = self._query(lambda nvml, gpu, kind=kind: int(nvml.nvmlDeviceGetMaxClockInfo(gpu, getattr(nvml, kind))))
            found |= {f"{name} now": now, f"{name} at most": most}
        return {name: value for name, value in found.items() if value is not None}

    def _query(self, ask: Callable[..., Any]) -> Any:
        """The library's answer; None without the library, or if the GPU does not support the query."""
        if self._nvml is None:
            return None
        try:
            return ask(self._nvml, self._gpu)
        except self._nvml.NVMLError:
            return None


def _text(output: str | bytes) -> str:
    return output.decode() if isinstance(output, bytes) else output


def _with_a_gpu() -> Any:
    """The initialised bindings; None if they are not installed, or without a driver or a GPU."""
    library = nvml()
    try:
        return library if library is not None and library.nvmlDeviceGetCount() else None
    except library.NVMLError:
        return None
