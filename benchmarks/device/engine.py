"""Measures the model's thread alone in front of the simulated device: the rate if everything before it costs nothing."""

import threading
import time
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from benchmarks.device.session import LENGTH, SimulatedDevice
from keyblock.bundle import Bundle
from keyblock.packing import Packed
from service.engine.encoder import Caps
from service.engine.engine import Engine
from service.engine.instance import Graphs
from service.engine.jobs import Job
from service.settings import Settings
from service.telemetry.metrics import Metrics

QUERY_TOKENS = 12


class Fed(NamedTuple):
    """The rate and processor time of the engine alone.

    Attributes:
        rate: sequences a second.
        busy: share of the time in which the device computed.
        given: share of the time in which the device had a batch; more than `busy`, since waiting threads wake up late.
        host: microseconds of processor time a sequence, of the model's and the device's threads together.
    """

    rate: float
    busy: float
    given: float
    host: float


def engine_alone(bundle: Bundle, device: SimulatedDevice, token_cap: int, sequences: int = 20_000, job_size: int = 100) -> Fed:
    """Submit sequences of 128 tokens in jobs as requests do, all at once, and wait for the last."""
    defaults = Settings.model_fields
    engine = Engine(Caps(token_cap, defaults["batch_ms"].default / 1000), Metrics())
    instance = engine.add("simulated", Graphs(device, ahead=1), bundle.pipeline)
    engine.start()
    instance.warmed.result()
    clocks = [_clock_of("model"), _clock_of("device")]
    rows = np.random.default_rng(0).integers(1000, 20_000, (job_size, LENGTH), dtype=np.int32)
    packed = [Packed(row, QUERY_TOKENS, np.zeros(1, np.intp)) for row in rows]
    jobs = [Job(packed, instance.ranker) for _ in range(sequences // job_size)]
    before, began, cpu = np.array([device.busy, device.waited]), time.perf_counter(), sum(clock() for clock in clocks)
    for future in [engine.submit(job) for job in jobs]:
        future.result()
    wall, cpu = time.perf_counter() - began, sum(clock() for clock in clocks) - cpu
    busy, given = (np.array([device.busy, device.waited]) - before) / wall
    engine.close()
    done = len(jobs) * job_size
    return Fed(done / wall, float(busy), float(given), 1e6 * cpu / done)


def _clock_of(name: str) -> Callable[[], float]:
    """The processor time of the newest thread of this name."""
    idents = [thread.ident for thread in threading.enumerate() if thread.name == name]
    clock = time.pthread_getcpuclockid(idents[-1] or 0)
    return lambda: time.clock_gettime(clock)
