"""The simulated device: one process after the other uses it."""

from random import Random

import numpy as np

from benchmarks.simulation.device import HUNG_SECONDS, Device
from benchmarks.simulation.machine import SimulatedMachine

BATCH = np.asarray([[1, 2, 3]])


def test_a_batch_of_an_ended_process_does_nothing_to_the_next_one() -> None:
    """It hung when its process ended. Its time is over while the next process's batch hangs, and a later batch is to die."""
    machine = SimulatedMachine(Random(1), interleaves=False)
    device = Device(machine, Random(1), token_seconds=1e-5)

    def process() -> None:
        device.start()
        device.hangs = True
        machine.thread(lambda: device.run(BATCH)).start()

    def next_one() -> None:
        process()
        device.dies = True

    with machine.loop.running():
        machine.loop.at(0.0, process)
        machine.loop.at(30.0, next_one)
        while machine.now() < HUNG_SECONDS:
            machine.loop.step()
    assert (device.dead, device.dies, device.hangs_since) == (False, True, 30.0)
