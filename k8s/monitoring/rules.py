"""Recording rules and alerts. An alert says what is wrong for clients, or soon will be; its `runbook` says what to do.

The alerts of the two objectives watch how fast an error budget burns, over a long and a short window (Site Reliability Workbook,
chapter 5). The long window shows that the problem matters, the short one that it still lasts.
"""

from typing import Any, NamedTuple

import yaml

from k8s.monitoring.promql import aggregated, rate, series

# change it with: python -m k8s.monitoring --runbooks URL
RUNBOOKS = "https://git.example.com/keyblock/blob/main/docs/run/troubleshoot.md"
POD = ("namespace", "pod")
COUNTED = "!~invalid|cancelled"  # the requests that count for the service's objective
BAD = "=~failed|refused"

SCRAPED = 'up{job=~"(.+/)?keyblock"}'  # a PodMonitor's job is NAMESPACE/NAME
# starts of KeyBlock
STARTS = f"changes(process_start_time_seconds[15m]) and on (namespace, pod) last_over_time({series('build')}[15m])"
STORE_ERRORS = f"increase({series('store_errors', why='=unavailable')}[5m])"


class Objective(NamedTuple):
    """A promise to clients.

    Attributes:
        name: part of the name of the recorded share.
        target: the share of requests that must be good, over 30 days.
        promise: the promise in words.
    """

    name: str
    target: float
    promise: str


SLOW = "2.5"  # seconds; one of the buckets
SERVED = Objective("not_served", 0.999, "99.9% of requests are served: neither failed nor refused")
IN_TIME = Objective("slow", 0.99, f"99% of answers take at most {SLOW} s")
BURNS = (  # times too fast, and both windows; an hour takes 2% of 30 days' budget, six hours 5%, one or three days 10%
    ("page", ((14.4, "1h", "5m"), (6, "6h", "30m"))),
    ("ticket", ((3, "1d", "2h"), (1, "3d", "6h"))),
)
FEW = 9  # up to this many bad requests in six hours wake nobody, even if they are a large share of a quiet night's
WINDOWS = ("5m", "30m", "1h", "2h", "6h", "1d", "3d")


class Alert(NamedTuple):
    """An alert.

    Attributes:
        name: the alert's name.
        runbook: the section of docs/run/troubleshoot.md.
        expression: the alert fires if this has a value.
        lasting: how long it must have a value before the alert fires.
        severity: page (wake somebody) or ticket (within a day).
        summary: the problem in one line.
        description: what was measured.
    """

    name: str
    runbook: str
    expression: str
    lasting: str
    severity: str
    summary: str
    description: str


def bad_share(objective: Objective, window: str) -> str:
    """The expression for the share of requests in a window that were not as promised."""
    by = ["namespace"]
    if objective is SERVED:
        return f"{rate('requests', by, window, outcome=BAD)} / {rate('requests', by, window, outcome=COUNTED)}"
    good = rate("latency", by, window, suffix="_bucket", le=SLOW)
    return f"1 - {good} / {rate('latency', by, window, suffix='_count')}"


def bad_count(objective: Objective, window: str) -> str:
    """The expression for the number of requests in a window that were not as promised."""

    def counted(selected: str) -> str:
        return aggregated("sum", f"increase({selected}[{window}])", ["namespace"])

    if objective is SERVED:
        return counted(series("requests", outcome=BAD))
    return f"({counted(series('latency', '_count'))} - {counted(series('latency', '_bucket', le=SLOW))})"


def recorded(objective: Objective, window: str) -> str:
    """The name under which the share is recorded."""
    return f"namespace:keyblock_{objective.name}:ratio_rate{window}"


def burn_alert(objective: Objective, severity: str, name: str, runbook: str) -> Alert:
    """An alert that fires while the objective's budget burns at the pace of this severity."""
    budget = 1 - objective.target
    pairs = next(pairs for known, pairs in BURNS if known == severity)
    expression = " or ".join(
        f"({recorded(objective, long)} > {factor * budget:.4g} and {recorded(objective, short)} > {factor * budget:.4g})"
        for factor, long, short in pairs
    )
    if severity == "page":
        expression = f"({expression}) and on (namespace) {bad_count(objective, '6h')} > {FEW}"
    (factor, long, _), speed = pairs[0], "fast" if severity == "page" else "slowly, but surely"
    return Alert(
        name,
        runbook,
        expression,
        "2m" if severity == "page" else "1h",
        severity,
        f'The budget of "{objective.promise}" burns {speed}',
        f"{{{{ $value | humanizePercentage }}}} are not as promised, over {long} or longer; "
        f"{budget:.4g} may be. At {factor:g} times that, 30 days' budget is gone in {30 / factor:.3g} days.",
    )


ALERTS = (
    burn_alert(SERVED, "page", "KeyBlockErrorBudgetBurnsFast", "error-budget"),
    burn_alert(SERVED, "ticket", "KeyBlockErrorBudgetBurnsSlowly", "error-budget"),
    burn_alert(IN_TIME, "page", "KeyBlockLatencyBudgetBurnsFast", "latency-budget"),
    burn_alert(IN_TIME, "ticket", "KeyBlockLatencyBudgetBurnsSlowly", "latency-budget"),
    Alert(
        "KeyBlockQueueOld",
        "queue-old",
        aggregated("max", f"min_over_time({series('queue_age')}[5m])", [*POD, "model"]) + " > 5",
        "1m",
        "ticket",
        "Requests wait for the model, and the queue does not drain",
        "For five minutes, the oldest request of {{ $labels.pod }} has always waited at least {{ $value | humanizeDuration }} for "
        "the model {{ $labels.model }}.",
    ),
    Alert(
        "KeyBlockRefuses",
        "refuses",
        f"{rate('requests', POD, '5m', outcome='=refused')} / {rate('requests', POD, '5m', outcome=COUNTED)} > 0.01",
        "5m",
        "ticket",
        "Requests are refused for want of room",
        "{{ $labels.pod }} refuses {{ $value | humanizePercentage }} of its requests with 429 or 503.",
    ),
    Alert(
        "KeyBlockProviderFellBack",
        "provider-fell-back",
        f"{aggregated('max', series('fell_back'), [*POD, 'model'])} == 1",
        "5m",
        "ticket",
        "A replica that could use a GPU computes on the CPU",
        "{{ $labels.pod }} was built for a GPU but uses none, so {{ $labels.model }} runs far more slowly.",
    ),
    Alert(
        "KeyBlockReadinessFlaps",
        "readiness-flaps",
        aggregated("max", f"changes({series('ready')}[15m])", POD) + " > 3",
        "0m",
        "ticket",
        "A replica keeps becoming ready and unready",
        "{{ $labels.pod }} has changed {{ $value }} times in 15 minutes between ready and not ready.",
    ),
    Alert(
        "KeyBlockRestarts",
        "readiness-flaps",
        aggregated("max", STARTS, POD) + " > 2",
        "0m",
        "ticket",
        "A replica is restarted again and again",
        "{{ $labels.pod }} has been restarted {{ $value }} times in 15 minutes.",
    ),
    Alert(
        "KeyBlockNotReady",
        "not-ready",
        f"{aggregated('max', series('ready'), POD)} == 0",
        "10m",
        "page",
        "A replica runs but cannot serve",
        "{{ $labels.pod }} answers /metrics, but has not been ready for ten minutes: its warm-up takes too long, or its model "
        "thread is dead.",
    ),
    Alert(
        "KeyBlockGone",
        "gone",
        f"absent({series('build')})",
        "5m",
        "page",
        "No replica reports its metrics",
        "Prometheus has found no replica of KeyBlock for five minutes: none runs, or none can be scraped.",
    ),
    Alert(
        "KeyBlockSilent",
        "gone",
        aggregated("max", SCRAPED, POD) + " == 0",
        "10m",
        "page",
        "A replica does not report its metrics",
        "Prometheus knows {{ $labels.pod }} but has not reached it for ten minutes: it ends at each start, hangs, or "
        "cannot be scraped.",
    ),
    Alert(
        "KeyBlockDeadlinesDegrade",
        "deadlines",
        f"{rate('degraded_requests', POD, '15m')} / {rate('deadlines', POD, '15m')} > 0.2",
        "15m",
        "ticket",
        "Deadlines cost quality",
        "{{ $labels.pod }} answers {{ $value | humanizePercentage }} of the requests with a deadline with a reduced ranking: it "
        "has too little time for them.",
    ),
    Alert(
        "KeyBlockDeadlinesMissed",
        "deadlines",
        f"{rate('deadlines', POD, '10m', outcome='=missed')} / {rate('deadlines', POD, '10m')} > 0.01",
        "10m",
        "page",
        "Answers come after their deadline",
        "{{ $labels.pod }} answers {{ $value | humanizePercentage }} of the requests with a deadline later than promised: more "
        "than 50 ms, or a batch, after it.",
    ),
    Alert(
        "KeyBlockBatchesFail",
        "batches-fail",
        aggregated("sum", f"increase({series('batches', outcome='=failed')}[10m])", [*POD, "model"]) + " > 0",
        "5m",
        "ticket",
        "Batches fail in the model",
        "{{ $value | humanize }} batches of {{ $labels.model }} failed on {{ $labels.pod }} in ten minutes; their requests were "
        "answered with 500.",
    ),
    Alert(
        "KeyBlockStoreAway",
        "store-away",
        f"{aggregated('max', series('store_up'), POD)} == 0 and {aggregated('sum', STORE_ERRORS, POD)} > 0",
        "2m",
        "page",
        "The store of documents does not answer",
        "{{ $labels.pod }} cannot reach its store: it answers requests with ids with 503, requests with texts as usual.",
    ),
    Alert(
        "KeyBlockStoreShardAway",
        "store-shard-away",
        f"{aggregated('max', series('store_away'), POD)} > 0",
        "2m",
        "page",
        "A part of the store of documents does not answer",
        "{{ $labels.pod }} cannot reach {{ $value }} servers of the store's cluster: their documents are ranked last or, with "
        "`strict`, the request is answered with 503.",
    ),
)


def groups(runbooks: str = RUNBOOKS) -> list[dict[str, Any]]:
    """The groups of rules, in the format of promtool."""
    records = [
        {"record": recorded(objective, window), "expr": bad_share(objective, window)}
        for objective in (SERVED, IN_TIME)
        for window in WINDOWS
    ]
    return [
        {"name": "keyblock-objectives", "interval": "30s", "rules": records},
        {"name": "keyblock-alerts", "rules": [_rule(alert, runbooks) for alert in ALERTS]},
    ]


def _rule(alert: Alert, runbooks: str) -> dict[str, Any]:
    return {
        "alert": alert.name,
        "expr": alert.expression,
        "for": alert.lasting,
        "labels": {"severity": alert.severity},
        "annotations": {
            "summary": alert.summary,
            "description": alert.description,
            "runbook_url": f"{runbooks}#{alert.runbook}",
        },
    }


def rules_yaml(runbooks: str = RUNBOOKS) -> str:
    """The PrometheusRule for the Prometheus operator."""
    resource = {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PrometheusRule",
        "metadata": {"name": "keyblock", "labels": {"app.kubernetes.io/name": "keyblock"}},
        "spec": {"groups": groups(runbooks)},
    }
    written: str = yaml.safe_dump(resource, sort_keys=False, width=120, allow_unicode=True)
    return f"# Written by `python -m k8s.monitoring` from k8s/monitoring/rules.py.\n{written}"
