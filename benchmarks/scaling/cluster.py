"""Replicas behind a balancer: each works off its requests one after the other, and refuses one that would wait too long.

That a replica finishes one request before it begins the next is the simplification: the service takes turns, so that small requests
wait less than here and large ones more. The work that waits, by which autoscalers and refusals go, is the same.
"""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from benchmarks.scaling.autoscaler import Autoscaler, Metric, Settings, pre_stop_seconds, scrape_seconds
from benchmarks.scaling.traffic import Floats, Requests
from service.settings import Limits

LOOK = 15.0  # seconds between two decisions of the autoscaler: the controller's default, and KEDA's pollingInterval
REFUSE = Limits().max_wait_ms / 1000


class Pod:
    """One replica.

    Attributes:
        ready: time in seconds at which it can take its first request.
        free: time at which it has finished all its requests.
        work: seconds of all requests given to it so far.
        turn: number of its last request.
        samples: time, waiting seconds and finished work at each scrape, latest last.
    """

    __slots__ = ("_ends", "created", "free", "ready", "samples", "turn", "work")

    def __init__(self, created: float, ready: float) -> None:
        self.created, self.ready, self.free = created, ready, ready
        self.work, self.turn = 0.0, -1
        self.samples: list[tuple[float, float, float]] = []
        self._ends: deque[float] = deque()

    def waiting(self, at: float) -> float:
        """Seconds that a new request would wait."""
        return self.free - at if self.free > at else 0.0

    def take(self, at: float, seconds: float, turn: int) -> None:
        """Add a request that takes so many seconds."""
        self.free = (self.free if self.free > at else at) + seconds
        self.work += seconds
        self.turn = turn
        self._ends.append(self.free)

    def outstanding(self, at: float) -> int:
        """The number of requests not yet finished."""
        ends = self._ends
        while ends and ends[0] <= at:
            ends.popleft()
        return len(ends)

    def sample(self, at: float, keep: float) -> None:
        """Record a scrape, and forget those older than `keep` seconds."""
        self.samples = [one for one in self.samples if one[0] > at - keep]
        self.samples.append((at, self.waiting(at), self.work - self.waiting(at)))

    def value(self, at: float, settings: Settings) -> float | None:
        """The value of its metric, or None if it is not ready or has too few scrapes."""
        known = [one for one in self.samples if one[0] >= at - settings.window]
        if self.ready > at or not known:
            return None
        if settings.metric is Metric.WAIT:
            return sum(waiting for _, waiting, _ in known) / len(known)
        if len(known) < 2:
            return None
        return (known[-1][2] - known[0][2]) / (known[-1][0] - known[0][0])


Choose = Callable[[Sequence[Pod], float, int, int], Pod]
"""Chooses a pod, given the pods that are ready, the time, the number of the request and its key."""


def least_outstanding(pods: Sequence[Pod], at: float, _turn: int, _key: int) -> Pod:
    """The pod with the fewest requests, as least_conn of nginx. Among equals, the one whose last request is the longest ago."""
    best, fewest = pods[0], pods[0].outstanding(at)
    for pod in pods[1:]:
        n = pod.outstanding(at)
        if n < fewest or (n == fewest and pod.turn < best.turn):
            best, fewest = pod, n
    return best


def round_robin(pods: Sequence[Pod], _at: float, turn: int, _key: int) -> Pod:
    """The pods in turn."""
    return pods[turn % len(pods)]


def hashed(pods: Sequence[Pod], _at: float, _turn: int, key: int) -> Pod:
    """The pod by the key; with a random key, as kube-proxy chooses for each connection."""
    return pods[key % len(pods)]


def least_work(pods: Sequence[Pod], _at: float, _turn: int, _key: int) -> Pod:
    """The pod with the least work waiting, which no real balancer knows."""
    return min(pods, key=lambda pod: pod.free)


@dataclass(frozen=True)
class Result:
    """The waits of the requests and the time of the pods.

    Attributes:
        waits: seconds until each request began; NaN if it was refused.
        replicas: time and number of replicas at each decision, including starting ones.
        pod_seconds: seconds of all pods, from creation to end.
        worked: seconds that replicas were busy.
        until: time at which everything was done.
    """

    waits: Floats
    replicas: NDArray[np.float64]
    pod_seconds: float
    worked: float
    until: float

    @property
    def refused(self) -> float:
        """The share of the requests that were refused."""
        return float(np.isnan(self.waits).mean()) if len(self.waits) else 0.0

    @cached_property
    def served(self) -> Floats:
        """Waits in seconds of the requests that were answered."""
        return self.waits[~np.isnan(self.waits)]

    def wait(self, quantile: float) -> float:
        """A quantile of the waits in seconds of the requests that were answered; 0 if there are none."""
        return float(np.quantile(self.served, quantile)) if len(self.served) else 0.0


class Cluster:
    """Pods that come and go.

    Args:
        replicas: replicas at the start, all ready.
        settings: the autoscaler's settings, one for each metric; empty for a fixed number.
        start: seconds from a pod's creation to its readiness.
    """

    def __init__(self, replicas: int, settings: Sequence[Settings] = (), start: float = 0.0) -> None:
        if replicas < 1:
            raise ValueError(f"{replicas} replicas serve nobody")
        self.ready = [Pod(0.0, 0.0) for _ in range(replicas)]
        self.starting: list[Pod] = []
        self.gone: list[tuple[Pod, float]] = []
        self.history: list[tuple[float, int]] = [(0.0, replicas)]
        self._autoscaler = Autoscaler(settings, replicas) if settings else None
        self._start, self._stay = start, pre_stop_seconds()
        self._decide = 0.0
        self._keep = max((one.window for one in settings), default=0.0) + 1

    def welcome(self, at: float) -> None:
        """Move the pods that have become ready from those that are starting."""
        while self.starting and self.starting[0].ready <= at:
            self.ready.append(self.starting.pop(0))

    def look(self, at: float) -> None:
        """Scrape each pod, and let the autoscaler decide if it is time."""
        self.welcome(at)
        pods = [*self.ready, *self.starting]
        if self._autoscaler is not None:
            for pod in self.ready:
                pod.sample(at, self._keep)
        if self._autoscaler is not None and at >= self._decide:
            self._decide = at + LOOK
            values = [[pod.value(at, one) for pod in pods] for one in self._autoscaler.settings]
            self._scale(at, self._autoscaler.decide(at, len(pods), values) - len(pods))
        self.history.append((at, len(self.ready) + len(self.starting)))

    def _scale(self, at: float, more: int) -> None:
        """Create `more` pods, or if negative stop pods: first those that are not ready, then those that became ready last."""
        self.starting += [Pod(at, at + self._start) for _ in range(more)]
        for _ in range(-more):
            pod = (self.starting or self.ready).pop()
            self.gone.append((pod, at + (self._stay if pod.ready <= at else 0)))

    def pod_seconds(self, until: float) -> float:
        """Seconds of all pods, from creation to the end of preStop and of their requests."""
        going = sum(max(end, pod.free if pod.work else 0) - pod.created for pod, end in self.gone)
        return going + sum(until - pod.created for pod in (*self.ready, *self.starting))


def simulate(
    requests: Requests, cluster: Cluster, choose: Choose = least_outstanding, keys: Sequence[int] = (), refuse: float = REFUSE
) -> Result:
    """Give every request to a pod, which refuses it if it would wait longer than `refuse`; no client retries."""
    waits = np.full(len(requests), np.nan)
    keys = keys if len(keys) else range(len(requests))
    worked, look, step = 0.0, 0.0, scrape_seconds()
    for turn, (at, seconds) in enumerate(zip(requests.at.tolist(), requests.seconds.tolist(), strict=True)):
        while look <= at:
            cluster.look(look)
            look += step
        if cluster.starting:
            cluster.welcome(at)
        pod = choose(cluster.ready, at, turn, keys[turn])
        wait = pod.waiting(at)
        if wait <= refuse:
            waits[turn] = wait
            pod.take(at, seconds, turn)
            worked += seconds
    while look <= requests.until:
        cluster.look(look)
        look += step
    until = max([requests.until, *(pod.free for pod in (*cluster.ready, *(pod for pod, _ in cluster.gone)))])
    return Result(waits, np.array(cluster.history), cluster.pod_seconds(requests.until), worked, until)
