"""A real Prometheus that scrapes running services, and answers as Grafana would ask it."""

import json
import re
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

import httpx
import yaml

from tests.support.ports import free_port

NAMESPACE = "keyblock"  # the label that Kubernetes would add
START_SECONDS, POLL_SECONDS = 60, 0.05
_LABEL = re.compile(r"{{(\w+)}}")


class Line(NamedTuple):
    """A series of an answer.

    Attributes:
        labels: that it has left.
        times: seconds since 1970.
        values: as many.
    """

    labels: dict[str, str]
    times: list[float]
    values: list[float]

    def name(self, legend: str) -> str:
        """The name of the series in Grafana's legend."""
        return _LABEL.sub(lambda found: self.labels.get(found[1], ""), legend)


class Prometheus:
    """A Prometheus that runs while its context is entered.

    Args:
        directory: for its configuration and its data.
        targets: addresses, `host:port`, of the services; each gets a pod's name.
        groups: of rules, to be evaluated as often as is scraped.
        seconds: between two scrapes; a rate is taken over ten of them.
    """

    def __init__(self, directory: Path, targets: Sequence[str], groups: Sequence[dict[str, Any]] = (), seconds: int = 1) -> None:
        self._directory = directory
        self._config = {
            "global": {"scrape_interval": f"{seconds}s", "evaluation_interval": f"{seconds}s"},
            "rule_files": ["rules.yaml"],
            "scrape_configs": [{"job_name": "keyblock", "static_configs": [_scraped(n, t) for n, t in enumerate(targets)]}],
        }
        self._groups = [{**group, "interval": f"{seconds}s"} for group in groups]
        self._window = f"{10 * seconds}s"
        self._seconds = seconds
        self.url = f"http://127.0.0.1:{free_port()}"
        self._client = httpx.Client(base_url=f"{self.url}/api/v1", timeout=60)

    def __enter__(self) -> Self:
        (self._directory / "rules.yaml").write_text(yaml.safe_dump({"groups": self._groups}), encoding="utf-8")
        config = self._directory / "prometheus.yaml"
        config.write_text(yaml.safe_dump(self._config), encoding="utf-8")
        command = ["prometheus", f"--config.file={config}", f"--storage.tsdb.path={self._directory / 'data'}"]
        address = f"--web.listen-address={self.url.removeprefix('http://')}"
        self._process = subprocess.Popen([*command, address, "--enable-feature=exemplar-storage", "--log.level=error"])
        try:
            self._wait()
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._stop()

    def _stop(self) -> None:
        self._client.close()
        self._process.terminate()
        self._process.wait(60)

    def _wait(self) -> None:
        until = time.perf_counter() + START_SECONDS
        while time.perf_counter() < until:
            try:
                if httpx.get(f"{self.url}/-/ready").status_code == 200:
                    return
            except httpx.TransportError:
                pass
            if self._process.poll() is not None:
                break
            time.sleep(POLL_SECONDS)
        raise RuntimeError(f"prometheus was not ready after {START_SECONDS} s, or has ended")

    def ask(self, path: str, **parameters: object) -> Any:
        """The answer of Prometheus's API. Raises ValueError with its error."""
        answer = self._client.get(path, params={name: str(value) for name, value in parameters.items()})
        body = json.loads(answer.content)
        if body["status"] != "success":
            raise ValueError(f"{parameters}: {body['error']}")
        return body["data"]

    def instant(self, expression: str) -> list[Line]:
        """An expression's values now."""
        found = self.ask("/query", query=self.filled_in(expression))["result"]
        return [Line(one["metric"], [float(one["value"][0])], [float(one["value"][1])]) for one in found]

    def lines(self, expression: str, start: float, end: float, points: int = 200) -> list[Line]:
        """An expression's values over time."""
        step = max((end - start) / points, self._seconds)
        found = self.ask("/query_range", query=self.filled_in(expression), start=start, end=end, step=step)["result"]
        return [Line(one["metric"], *(list(map(float, part)) for part in zip(*one["values"], strict=True))) for one in found]

    def filled_in(self, expression: str) -> str:
        """A panel's expression as Grafana sends it, with everything chosen."""
        expression = expression.replace("$__rate_interval", self._window)
        return re.sub(r"\$(namespace|pod|model)\b", ".*", expression)


def _scraped(number: int, target: str) -> dict[str, Any]:
    return {"targets": [target], "labels": {"namespace": NAMESPACE, "pod": f"keyblock-{number}"}}
