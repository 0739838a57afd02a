from types import SimpleNamespace

import pytest

from service.gpus import Gpus
from service.metrics import Metrics


class NVMLError(Exception):
    pass


class Driver(SimpleNamespace):
    """As NVML's bindings are called; two GPUs, the second of which does not tell."""

    NVMLError = NVMLError

    def nvmlDeviceGetCount(self) -> int:  # noqa: N802
        return 2

    def nvmlDeviceGetHandleByIndex(self, number: int) -> int:  # noqa: N802
        return number

    def nvmlDeviceGetMemoryInfo(self, handle: int) -> SimpleNamespace:  # noqa: N802
        if handle:
            raise NVMLError("GPU is lost")
        return SimpleNamespace(used=3 << 30, total=80 << 30)

    def nvmlDeviceGetUtilizationRates(self, handle: int) -> SimpleNamespace:  # noqa: N802
        return SimpleNamespace(gpu=37)


def test_what_the_driver_tells_is_told_in_base_units() -> None:
    metrics = Metrics()
    Gpus(metrics, Driver()).measure()
    names = ("keyblock_gpu_memory_used_bytes", "keyblock_gpu_memory_total_bytes", "keyblock_gpu_utilization_ratio")
    assert [metrics.registry.get_sample_value(name, {"gpu": "0"}) for name in names] == [3 << 30, 80 << 30, 0.37]
    assert metrics.registry.get_sample_value(names[0], {"gpu": "1"}) is None


def test_without_a_driver_there_is_nothing() -> None:
    import pynvml

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        metrics = Metrics()
        Gpus(metrics).measure()
        assert "keyblock_gpu_memory_used_bytes{" not in str(list(metrics.registry.collect()))
    else:
        pytest.skip("this machine has a GPU")
