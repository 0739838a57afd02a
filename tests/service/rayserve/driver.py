"""A Ray cluster of this machine that runs the application; it does what lines of its standard input say, one word for one done.

``deploy {"bundle": ...}`` deploys with these settings; ``waiting`` counts the jobs that a replica of the model has in hand. It ends
with its input.
"""

import json
import sys

import ray
from ray import serve

from service.rayserve.deployments import build
from service.remote.wire import Report

STARTS = (
    4  # a node that is not there within 30 s, or a proxy within 60 s, is given up by Ray: a busy machine may need more than one
)


def main(port: int) -> None:
    start(port)
    said = sys.stdout
    for line in sys.stdin:
        order, _, rest = line.strip().partition(" ")
        print(done(order, rest), file=said, flush=True)


def start(port: int) -> None:
    for left in reversed(range(STARTS)):
        try:
            ray.init(address="local", num_cpus=4, include_dashboard=False, log_to_driver=False)
            serve.start(http_options={"port": port})
            return
        except Exception:  # of no class of its own
            ray.shutdown()
            if not left:
                raise


def done(order: str, rest: str) -> str:
    if order == "deploy":
        serve.run(build(json.loads(rest)), name="keyblock", route_prefix="/")
        return "deployed"
    report: Report = serve.get_deployment_handle("model", "keyblock").report.remote().result(timeout_s=30)
    return str(len(report.waiting))


if __name__ == "__main__":
    main(int(sys.argv[1]))
