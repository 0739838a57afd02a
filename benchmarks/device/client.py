"""A client process that keeps several connections busy with requests from files.

python -m benchmarks.device.client PORT CONNECTIONS SECONDS BODY [BODY ...]     prints JSON: answers, failures, processor time
"""

import json
import sys
import threading
import time
from collections.abc import Sequence
from http.client import HTTPConnection
from itertools import cycle, islice
from pathlib import Path

HEADERS = {"Content-Type": "application/json"}


class Load:
    """Connections that send one request after the other.

    Attributes:
        answers: good answers in time.
        failures: errors and degraded answers.
    """

    def __init__(self, port: int, bodies: Sequence[bytes]) -> None:
        self.answers = self.failures = 0
        self._port, self._bodies = port, bodies
        self._lock = threading.Lock()

    def run(self, connections: int, seconds: float) -> None:
        """Send requests for a number of seconds."""
        until = time.perf_counter() + seconds
        threads = [threading.Thread(target=self._send_requests, args=(number, until)) for number in range(connections)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def _send_requests(self, number: int, until: float) -> None:
        connection = HTTPConnection("127.0.0.1", self._port, timeout=600)
        for body in islice(cycle(self._bodies), number * len(self._bodies) // 8, None):
            connection.request("POST", "/rerank", body, HEADERS)
            response = connection.getresponse()
            good = response.status == 200 and b'"degraded":true' not in response.read()
            if time.perf_counter() > until:
                break
            with self._lock:
                self.answers += good
                self.failures += not good
        connection.close()


if __name__ == "__main__":
    port, connections, seconds, *paths = sys.argv[1:]
    load = Load(int(port), [Path(path).read_bytes() for path in paths])
    load.run(int(connections), float(seconds))
    print(json.dumps({"answers": load.answers, "failures": load.failures, "cpu": time.process_time()}))
