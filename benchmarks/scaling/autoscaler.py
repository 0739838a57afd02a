"""Kubernetes' HorizontalPodAutoscaler, with the settings of k8s/components: what it wants, what its behavior lets it do.

After pkg/controller/podautoscaler: the ratio of metric and target with its tolerance, pods that are not ready counted as idle
when more are wanted, recommendations stabilised over a window, then the policies' rates, then the least and the most.
"""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

import yaml

K8S = Path(__file__).resolve().parent.parent.parent / "k8s"
COMPONENTS = ("hpa-cpu", "hpa-queue", "keda", "hpa-both", "keda-both")
TOLERANCE = 0.1  # the controller's --horizontal-pod-autoscaler-tolerance; our manifests do not change it
CPU_WINDOW = 30.0  # seconds over which metrics-server averages CPU use, about two scrapes of the kubelet


class Metric(StrEnum):
    """The metric that an autoscaler follows."""

    CPU = "cpu"  # busy share of a pod
    WAIT = "wait"  # seconds of waiting work


@dataclass(frozen=True)
class Policy:
    """A limit on a change: `value` pods, or percent of the pods at the start of the period, in `period` seconds."""

    type: str
    value: int
    period: float

    def limit(self, start: int, sign: int) -> int:
        """The number of pods that the policy allows, up or down, from the number at the start of its period."""
        if self.type == "Pods":
            return start + sign * self.value
        scaled = start * (1 + sign * self.value / 100)
        return ceiling(scaled) if sign > 0 else math.floor(scaled)


@dataclass(frozen=True)
class Rules:
    """The rules for scaling in one direction: the `scaleUp` or `scaleDown` of a behavior."""

    window: float
    policies: tuple[Policy, ...]


@dataclass(frozen=True)
class Settings:
    """The autoscaler settings of a Kubernetes component for one metric.

    Attributes:
        together: the metric is a sum that the target divides (External), not a mean of pods.
        window: seconds over which the metric is averaged.
    """

    metric: Metric
    target: float
    together: bool
    window: float
    least: int
    most: int
    up: Rules
    down: Rules

    def wanted(self, current: int, values: Sequence[float | None]) -> int:
        """Replicas wanted by this metric, from the value of each pod; None for a pod that is not ready."""
        return by_sum(current, values, self.target) if self.together else by_mean(current, values, self.target)


def ceiling(number: float) -> int:
    """The number rounded up, after removing the rounding error of floats."""
    return math.ceil(round(number, 9))


def steady(ratio: float) -> bool:
    """Whether a ratio is so near to 1 that the number of replicas stays."""
    return abs(ratio - 1) <= TOLERANCE + 1e-12


def by_sum(current: int, values: Sequence[float | None], target: float) -> int:
    """Replicas by an External metric of type AverageValue."""
    total = sum(value for value in values if value is not None)
    return current if steady(total / (target * current)) else ceiling(total / target)


def by_mean(current: int, values: Sequence[float | None], target: float) -> int:
    """Replicas by a Resource or Pods metric; pods not ready are left out, or count as idle if more would be wanted."""
    known = [value for value in values if value is not None]
    if not known:
        return current
    ratio = sum(known) / len(known) / target
    if ratio > 1 and len(known) < len(values):
        known += [0.0] * (len(values) - len(known))
        ratio = sum(known) / len(known) / target
        if ratio < 1:
            return current
        return current if steady(ratio) else max(current, ceiling(ratio * len(known)))
    return current if steady(ratio) else ceiling(ratio * len(known))


class Autoscaler:
    """A HorizontalPodAutoscaler, with its state between two decisions.

    Args:
        settings: one for each metric. The metric that wants the most replicas decides; the first one's behavior applies.
        current: replicas at the start.
    """

    def __init__(self, settings: Sequence[Settings], current: int) -> None:
        self.settings = settings
        self._wishes = [(0.0, current)]
        self._changes: list[tuple[float, int]] = []

    def decide(self, now: float, current: int, values: Sequence[Sequence[float | None]]) -> int:
        """The number of replicas from now on, given for each metric the values of the pods."""
        wish = max(one.wanted(current, known) for one, known in zip(self.settings, values, strict=True))
        decided = self._limited(now, current, self._stabilised(now, current, wish))
        if decided != current:
            self._changes.append((now, decided - current))
        return decided

    def _stabilised(self, now: float, current: int, wish: int) -> int:
        """Go up to the least wanted within the window for going up, or down to the most within that for going down."""
        up, down = self.settings[0].up.window, self.settings[0].down.window
        lowest = min([wish, *(n for at, n in self._wishes if at > now - up)])
        highest = max([wish, *(n for at, n in self._wishes if at > now - down)])
        self._wishes = [(at, n) for at, n in self._wishes if at > now - max(up, down)] + [(now, wish)]
        return min(max(current, lowest), highest)

    def _limited(self, now: float, current: int, wish: int) -> int:
        """The wish, limited by the policies and to the range from `least` to `most`."""
        settings = self.settings[0]
        wish = min(max(wish, settings.least), settings.most)
        if wish > current:
            limits = (policy.limit(self._start(now, current, policy), +1) for policy in settings.up.policies)
            return min(wish, max(current, *limits))
        if wish < current:
            limits = (policy.limit(self._start(now, current, policy), -1) for policy in settings.down.policies)
            return max(wish, min(current, *limits))
        return current

    def _start(self, now: float, current: int, policy: Policy) -> int:
        """Replicas at the start of the policy's period."""
        return current - sum(change for at, change in self._changes if at > now - policy.period)


def read(component: str) -> tuple[Settings, ...]:
    """The settings of one of COMPONENTS, one for each metric."""
    folder = K8S / "components" / component
    (name,) = load(folder / "kustomization.yaml")["resources"]
    manifest = load(folder / name)
    return of_scaled_object(manifest["spec"]) if manifest["kind"] == "ScaledObject" else of_autoscaler(manifest["spec"])


def load(path: Path) -> Any:
    """Read a manifest in YAML."""
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def of_autoscaler(spec: Mapping[str, Any]) -> tuple[Settings, ...]:
    """The settings of a HorizontalPodAutoscaler, one for each metric."""
    rest = spec["minReplicas"], spec["maxReplicas"], *behavior(spec["behavior"])
    return tuple(Settings(*_of_metric(metric), *rest) for metric in spec["metrics"])


def _of_metric(metric: Mapping[str, Any]) -> tuple[Metric, float, bool, float]:
    """The metric, its target, whether the target divides a sum, and the seconds over which it is averaged."""
    if metric["type"] == "Resource":
        return Metric.CPU, metric["resource"]["target"]["averageUtilization"] / 100, False, CPU_WINDOW
    adapter = load(K8S / "components" / "hpa-queue" / "adapter-values.yaml")
    window = range_seconds(adapter["rules"]["custom"][0]["metricsQuery"])
    return Metric.WAIT, quantity(metric["pods"]["target"]["averageValue"]), False, window


def of_scaled_object(spec: Mapping[str, Any]) -> tuple[Settings, ...]:
    """The settings of a ScaledObject, as KEDA turns it into an autoscaler: External for a query, Resource for the CPU."""
    directions = behavior(spec["advanced"]["horizontalPodAutoscalerConfig"]["behavior"])
    rest = spec["minReplicaCount"], spec["maxReplicaCount"], *directions
    return tuple(Settings(*_of_trigger(trigger), *rest) for trigger in spec["triggers"])


def _of_trigger(trigger: Mapping[str, Any]) -> tuple[Metric, float, bool, float]:
    """The metric of a trigger of KEDA, as `_of_metric` returns it."""
    fields = trigger["metadata"]
    if trigger["type"] == "cpu":
        return Metric.CPU, int(fields["value"]) / 100, False, CPU_WINDOW
    return Metric.WAIT, float(fields["threshold"]), True, range_seconds(fields["query"])


def behavior(spec: Mapping[str, Any]) -> tuple[Rules, Rules]:
    """The rules for up and down. Of several policies the one that allows the most change applies. Raises ValueError for others."""
    up, down = (spec[name] for name in ("scaleUp", "scaleDown"))
    if any(one.get("selectPolicy", "Max") != "Max" for one in (up, down)):
        raise ValueError("only selectPolicy: Max is simulated")
    return rules(up), rules(down)


def rules(spec: Mapping[str, Any]) -> Rules:
    """The rules of one direction."""
    policies = tuple(Policy(one["type"], one["value"], one["periodSeconds"]) for one in spec["policies"])
    return Rules(spec["stabilizationWindowSeconds"], policies)


def quantity(text: str) -> float:
    """A quantity as Kubernetes writes it: 500m is a half."""
    return int(text[:-1]) / 1000 if text.endswith("m") else float(text)


def range_seconds(query: str) -> float:
    """Seconds of the range in a Prometheus query, such as [1m]. Raises ValueError without one."""
    found = re.search(r"\[(\d+)([sm])\]", query)
    if found is None:
        raise ValueError(f"no range in {query!r}")
    return int(found[1]) * {"s": 1, "m": 60}[found[2]]


def pre_stop_seconds() -> float:
    """Seconds for which a pod continues to answer after the request to stop."""
    (container,) = load(K8S / "base" / "deployment.yaml")["spec"]["template"]["spec"]["containers"]
    return float(container["lifecycle"]["preStop"]["sleep"]["seconds"])


def scrape_seconds() -> float:
    """Seconds between two scrapes of a pod."""
    manifest = load(K8S / "monitoring" / "podmonitor.yaml")
    return float(manifest["spec"]["podMetricsEndpoints"][0]["interval"].removesuffix("s"))
