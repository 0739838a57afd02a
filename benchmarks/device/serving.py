"""keyblock-serve in front of a simulated device.

python -m benchmarks.device.serving     configured like keyblock-serve; RATE and LAUNCH of the device in the environment
"""

import sys

from starlette.routing import Route

from benchmarks.device.ledger import PATH, Ledger
from benchmarks.device.session import SimulatedDevice
from keyblock.bundle import load_bundle
from keyblock.runtime.providers import Precision, Provider, resolve
from service.app import create_app
from service.engine.instance import Graphs
from service.http.listeners import serve
from service.processes.supervisor import supervise
from service.ranking.loading import Opened
from service.ranking.ranker import Ranker
from service.settings import Settings
from service.start import configure, ports
from service.store.opening import open_store

PROCESSES = "benchmarks.device.processes"


def main() -> int:
    """Serve until SIGTERM."""
    settings = Settings()
    if settings.processes > 1:
        return supervise(settings, f"{PROCESSES}:device", f"{PROCESSES}:preparing")
    configure(settings)
    clients, _ = ports(settings)
    device = SimulatedDevice.from_environment()
    ledger = Ledger(device)
    ledger.watch()
    choice = resolve(Provider.CPU, precision=Precision.FP32)  # only for its description; nothing is computed
    ranker = Ranker(settings, [Opened(load_bundle(settings.bundle[0]), Graphs(device, ahead=1), choice)], open_store(settings))
    app = create_app(settings, ranker)
    app.router.routes.insert(0, Route(PATH, ledger.respond))
    return 0 if serve(settings, ranker.metrics, (app, clients)) else 1


if __name__ == "__main__":
    sys.exit(main())
