"""The processes of `keyblock-serve --processes` in front of a simulated device, and their processor time.

Each process writes its ledger to the folder that LEDGERS names when it receives SIGUSR2.
"""

import json
import os
import signal
import time
from collections import Counter
from pathlib import Path
from types import FrameType
from typing import Any

from benchmarks.device.ledger import KINDS, Ledger
from benchmarks.device.session import SimulatedDevice
from keyblock.bundle import Bundle
from keyblock.runtime.providers import Precision, Provider, resolve
from service.engine.instance import Graphs
from service.processes.child import Control, Order
from service.processes.front import front
from service.processes.model import model
from service.ranking.loading import Opened
from service.settings import Settings

LEDGERS = "DEVICE_LEDGERS"
CALLS = "calls of the model's process"
REST = "the model's process beside"
OF_MODEL = {KINDS["MainThread"]: CALLS, KINDS["model"]: KINDS["model"]}
READY = ".ready"  # suffix of the file that a process makes when it is ready for the signal
WAIT_SECONDS = 0.01


async def device(order: Order, control: Control) -> int:
    """The model's process."""
    simulated = SimulatedDevice.from_environment()
    write_on_signal(Ledger(simulated))
    choice = resolve(Provider.CPU, precision=Precision.FP32)  # only for its description; nothing is computed

    def opener(bundle: Bundle, _: Settings) -> Opened:
        return Opened(bundle, Graphs(simulated, ahead=1), choice)

    return await model(order, control, opener)


async def preparing(order: Order, control: Control) -> int:
    """A front process."""
    ledger = Ledger(SimulatedDevice(1.0, 0.0))  # without requests: the model has its own process
    ledger.watch()
    write_on_signal(ledger)
    return await front(order, control)


def write_on_signal(ledger: Ledger) -> None:
    """Let SIGUSR2 write the ledger to a file, and mark the process as ready for the signal."""
    path = Path(os.environ[LEDGERS], str(os.getpid()))

    def write(_number: int, _frame: FrameType | None) -> None:
        path.with_suffix(".part").write_text(json.dumps(ledger.sums()), encoding="utf-8")
        path.with_suffix(".part").rename(path)

    signal.signal(signal.SIGUSR2, write)
    path.with_suffix(READY).touch()


def ledgers(supervisor: int, folder: Path) -> dict[str, Any]:
    """The sums over all child processes of the supervisor."""
    found = Path(f"/proc/{supervisor}/task/{supervisor}/children").read_text(encoding="utf-8").split()
    by_child = {child: _ledger_of(int(child), folder / child) for child in found}
    of_model = {child for child in found if f"{__name__}:device" in Path(f"/proc/{child}/cmdline").read_text(encoding="utf-8")}
    return merged([by_child[child] for child in found if child not in of_model], *[by_child[child] for child in of_model])


def merged(fronts: list[dict[str, Any]], model: dict[str, Any]) -> dict[str, Any]:
    """Merge several ledgers into one. The threads of the model's process keep their own entries."""
    threads, steps = Counter(), {}
    for one in fronts:
        threads.update(one["threads"])
        for step, sums in one["steps"].items():
            steps[step] = Counter(steps.get(step, {})) + Counter(sums)
    threads.pop(KINDS["model"], None)  # the model's thread of a front process has no work
    of_model = {kind: model["threads"].get(thread, 0.0) for thread, kind in OF_MODEL.items()}
    of_model[REST] = model["cpu"] - sum(of_model.values())
    cpu = model["cpu"] + sum(one["cpu"] for one in fronts)
    return {"at": model["at"], "cpu": cpu, "threads": {**threads, **of_model}, "steps": steps, "device": model["device"]}


def _ledger_of(pid: int, path: Path) -> dict[str, Any]:
    while not path.with_suffix(READY).exists():  # earlier the signal would kill the process
        time.sleep(WAIT_SECONDS)
    path.unlink(missing_ok=True)
    os.kill(pid, signal.SIGUSR2)
    while not path.exists():
        time.sleep(WAIT_SECONDS)
    found: dict[str, Any] = json.loads(path.read_bytes())
    return found
