"""What the driver tells, from bindings that answer as NVML does; and nothing where it tells nothing."""

from types import SimpleNamespace

from benchmarks.gpu.driver import Driver
from tests.benchmarks.gpu.conftest import Nothing


class Answers(Nothing):
    """A GPU that tells all but its memory's clock."""

    NVML_CLOCK_SM, NVML_CLOCK_MEM = 1, 2

    def nvmlDeviceGetName(self, _: int) -> bytes:  # noqa: N802  # as below, their names in NVML
        return b"NVIDIA H200"  # older bindings give bytes

    def nvmlSystemGetDriverVersion(self) -> str:  # noqa: N802
        return "580.1"

    def nvmlDeviceGetMemoryInfo(self, _: int) -> SimpleNamespace:  # noqa: N802
        return SimpleNamespace(total=1000, used=400)

    def nvmlDeviceGetTotalEnergyConsumption(self, _: int) -> int:  # noqa: N802
        return 2500  # millijoules

    def nvmlDeviceGetClockInfo(self, _: int, kind: int) -> int:  # noqa: N802
        return self._of(kind, 345)

    def nvmlDeviceGetMaxClockInfo(self, _: int, kind: int) -> int:  # noqa: N802
        return self._of(kind, 1980)

    def _of(self, kind: int, value: int) -> int:
        if kind == self.NVML_CLOCK_MEM:
            raise self.NVMLError
        return value


def test_what_a_gpu_tells() -> None:
    driver = Driver(Answers())
    assert (driver.name, driver.version, driver.memory, driver.used, driver.joules) == ("NVIDIA H200", "580.1", 1000, 400, 2.5)
    assert driver.clocks == {"SM now": 345, "SM at most": 1980}


def test_values_that_the_driver_does_not_report_are_none() -> None:
    driver = Driver(Nothing())
    assert (driver.name, driver.version, driver.memory, driver.used, driver.joules) == (None,) * 5
    assert driver.clocks == {}
