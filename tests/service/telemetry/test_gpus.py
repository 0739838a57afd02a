import threading
from types import SimpleNamespace

import pytest

from service.telemetry.gpus import Gpus
from service.telemetry.metrics import Metrics
from tests.service.faults import wait_for


class NVMLError(Exception):
    pass


class Driver(SimpleNamespace):
    """Has the functions of NVML's bindings; there are two GPUs, and the second reports nothing."""

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


def test_the_drivers_figures_are_reported_in_base_units() -> None:
    metrics = Metrics()
    Gpus(metrics, Driver()).measure()
    wait_for(lambda: metrics.registry.get_sample_value("keyblock_gpu_utilization_ratio", {"gpu": "0"}) is not None)
    names = ("keyblock_gpu_memory_used_bytes", "keyblock_gpu_memory_total_bytes", "keyblock_gpu_utilization_ratio")
    assert [metrics.registry.get_sample_value(name, {"gpu": "0"}) for name in names] == [3 << 30, 80 << 30, 0.37]
    assert metrics.registry.get_sample_value(names[0], {"gpu": "1"}) is None


def test_a_driver_that_does_not_answer_is_neither_awaited_nor_called_again() -> None:
    asked, answers = [], threading.Event()

    class Lost(Driver):
        def nvmlDeviceGetMemoryInfo(self, handle: int) -> SimpleNamespace:  # noqa: N802
            asked.append(handle)
            assert answers.wait(60)
            return super().nvmlDeviceGetMemoryInfo(handle)

    metrics = Metrics()
    gpus = Gpus(metrics, Lost())
    for _ in range(3):
        gpus.measure()
    wait_for(lambda: bool(asked))
    assert asked == [0]
    answers.set()
    wait_for(lambda: metrics.registry.get_sample_value("keyblock_gpu_memory_used_bytes", {"gpu": "0"}) == 3 << 30)


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
