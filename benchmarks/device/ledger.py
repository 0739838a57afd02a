"""Processor time of the service by kind of work, served at its own path."""

import functools
import resource
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse

from benchmarks.device.session import SimulatedDevice
from keyblock.pipeline import Pipeline
from service.store.values import Values

PATH = "/ledger"
KINDS = {  # kinds of threads, by the beginning of their names
    "MainThread": "event loop",
    "edge": "JSON",
    "prepare": "preparing threads",
    "store": "store",
    "model": "model's thread",
    "device": "device's thread",
}
REST = "other threads"
STEPS: dict[str, tuple[Any, str]] = {
    "preparation": (Pipeline, "prepare_documents"),
    "selection and packing": (Pipeline, "select_each"),
    "decoding": (Values, "decoded"),
}


class Ledger:
    """Sums of processor time since the start of the process.

    Args:
        device: the simulated device, whose times are added.
    """

    def __init__(self, device: SimulatedDevice) -> None:
        self._device = device
        self._steps: defaultdict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])
        self._lock = threading.RLock()  # a signal may arrive while this thread holds it

    def watch(self) -> None:
        """Start to measure the steps."""
        for step, (owner, name) in STEPS.items():
            setattr(owner, name, self._measured(step, getattr(owner, name)))

    async def respond(self, _request: Request) -> JSONResponse:
        """The sums as an HTTP response."""
        return JSONResponse(self.sums())

    def sums(self) -> dict[str, Any]:
        """Seconds of processor time by thread, by step and of the whole process, and the device's times."""
        with self._lock:
            steps = {step: {"cpu": cpu, "wall": wall} for step, (cpu, wall) in self._steps.items()}
        used = resource.getrusage(resource.RUSAGE_SELF)
        device = {"busy": self._device.busy, "waited": self._device.waited, "batches": self._device.batches}
        cpu = used.ru_utime + used.ru_stime
        return {"at": time.perf_counter(), "cpu": cpu, "threads": by_kind(), "steps": steps, "device": device}

    def _measured(self, step: str, work: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(work)
        def measured(*arguments: Any, **named: Any) -> Any:
            cpu, wall = time.thread_time(), time.perf_counter()
            try:
                return work(*arguments, **named)
            finally:
                cpu, wall = time.thread_time() - cpu, time.perf_counter() - wall
                with self._lock:
                    sums = self._steps[step]
                    sums[0] += cpu
                    sums[1] += wall

        return measured


def by_kind() -> dict[str, float]:
    """Seconds of processor time of the process's running Python threads, by kind."""
    found: defaultdict[str, float] = defaultdict(float)
    for thread in threading.enumerate():
        kind = next((kind for start, kind in KINDS.items() if thread.name.startswith(start)), REST)
        if thread.ident is not None:
            found[kind] += time.clock_gettime(time.pthread_getcpuclockid(thread.ident))
    return dict(found)
