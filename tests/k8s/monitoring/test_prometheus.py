"""Against the real thing: a Prometheus scrapes a service under load, and is asked what every panel and every rule asks."""

import asyncio
import math
import re
import subprocess
import time
from collections.abc import Iterator
from typing import NamedTuple

import httpx
import pytest

from k8s.monitoring.boards import BOARDS
from k8s.monitoring.panels import Kind, Panel, Query, Unit
from k8s.monitoring.rules import ALERTS, Alert, groups
from tests.conftest import ROOT
from tests.k8s.monitoring.load import Load, Phase, Size
from tests.k8s.monitoring.prometheus import NAMESPACE, Prometheus
from tests.support.programs import need
from tests.support.serving import Service
from tests.support.texts import invented

BUNDLE = ROOT / "models" / "default"
PHASES = (Phase(4, 2), Phase(6, 12))
ROUNDS = 6
SETTLED = 3  # seconds, a few scrapes: what came last is seen too
QUERIES = [(board, panel, query) for board in BOARDS for panel in board.panels for query in panel.queries]
NAMES = [f"{board.name}: {panel.title}, {query.legend}" for board, panel, query in QUERIES]
MOST = {Unit.SHARE: 1.0, Unit.SECONDS: 600.0}
COMPARED = re.compile(r" (>|==) ")


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    need("prometheus", "prometheus")
    folder = tmp_path_factory.mktemp("service")
    settings = {"store": folder / "store", "max_requests_in_flight": 6, "score_cache_bytes": 1 << 20}
    settings |= {"token_cap": 512}  # large requests are many batches, of which some wait whenever is scraped
    with Service(1, folder / "log", bundle=BUNDLE, **settings) as service:
        yield service


SHOWN = {  # what the load must show, at least once: an expression, and the least that it is
    "requests answered": ('keyblock_requests_total{outcome="ok"}', 20),
    "TEI's dialect": ('keyblock_requests_total{outcome="ok", dialect="tei"}', 1),
    "malformed": ('keyblock_requests_total{outcome="invalid"}', 1),
    "refused": ('keyblock_refused_total{why="requests"}', 1),
    "gone": ('keyblock_requests_total{outcome="cancelled"}', 1),
    "deadlines": ("sum(rate(keyblock_deadlines_total[1m]))", 1e-6),  # more than were there when they were first scraped
    "degraded": ("keyblock_degraded_requests_total", 1),
    "padding": ("keyblock_padding_tokens_total", 1),
    "cache": ('keyblock_cache_lookups_total{outcome="hit"}', 1),
    "scores": ('keyblock_score_cache_lookups_total{outcome="miss"}', 1),
    "store": ('keyblock_store_lookups_total{outcome="hit"}', 1),
    "unknown ids": ('keyblock_store_lookups_total{outcome="miss"}', 1),
    "without text": ("keyblock_unscored_documents_total", 1),
    "blocks": ('keyblock_blocks_total{step="scored"}', 100),
    "a queue": ("max_over_time(keyblock_queue_age_seconds[1m])", 1e-6),
    "load time": ("keyblock_model_load_seconds", 0.01),
}


class Seen(NamedTuple):
    """A Prometheus that has scraped a service under load, and from when to when."""

    prometheus: Prometheus
    start: float
    end: float


def unshown(prometheus: Prometheus) -> list[str]:
    """What of SHOWN has not happened yet."""
    found = {what: prometheus.instant(expression) for what, (expression, _) in SHOWN.items()}
    return [what for what, lines in found.items() if not lines or max(line.values[0] for line in lines) < SHOWN[what][1]]


@pytest.fixture(scope="module")
def seen(service: Service, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Seen]:
    """The load goes on until all of it has shown, with new texts whose scores are not known: on a busy machine for longer."""
    texts = invented(BUNDLE / "tokenizer.json")
    with Prometheus(tmp_path_factory.mktemp("prometheus"), [service.url.removeprefix("http://")], groups()) as prometheus:
        start = time.time()
        for _ in range(ROUNDS):
            asyncio.run(Load([service.url], texts, Size(documents=5, words=60, large=60)).run(PHASES))
            time.sleep(SETTLED)
            if not unshown(prometheus):
                break
        yield Seen(prometheus, start, time.time())


@pytest.mark.parametrize(("panel", "query"), [(panel, query) for _, panel, query in QUERIES], ids=NAMES)
def test_every_panel_has_data_of_its_unit(seen: Seen, panel: Panel, query: Query) -> None:
    lines = seen.prometheus.lines(query.expression, seen.start, seen.end)
    if panel.needs:
        assert all(value >= 0 for line in lines for value in line.values if not math.isnan(value))
        return
    values = [value for line in lines for value in line.values if not math.isnan(value)]
    assert values, f"no data for {query.expression}"
    assert min(values) >= 0
    if panel.kind is not Kind.HEATMAP:  # whose values are how many, whatever of
        assert max(values) <= MOST.get(panel.unit, math.inf) + 1e-9
    assert not any(math.isinf(value) for value in values)
    labels = set(re.findall(r"{{(\w+)}}", query.legend))
    assert all(labels <= {label for label, value in line.labels.items() if value} for line in lines)
    if panel.kind is Kind.HEATMAP:
        assert all("le" in line.labels for line in lines)


def test_the_load_shows_in_the_numbers(seen: Seen) -> None:
    assert unshown(seen.prometheus) == []


@pytest.mark.parametrize("alert", ALERTS, ids=[alert.name for alert in ALERTS])
def test_every_alert_compares_what_is_there(seen: Seen, alert: Alert) -> None:
    """With `bool` a comparison tells its outcome, 0 or 1, in place of nothing: each side has data, and their labels match."""
    expression = alert.expression
    if expression.startswith("absent("):
        assert seen.prometheus.instant(expression) == []
        assert len(seen.prometheus.instant(expression.replace("keyblock_", "no_such_"))) == 1
        return
    lines = seen.prometheus.instant(COMPARED.sub(r" \1 bool ", expression))
    assert lines
    assert {line.values[0] for line in lines} <= {0.0, 1.0}
    assert all(line.labels.get("namespace") == NAMESPACE for line in lines)


def test_names_and_help_are_as_prometheus_wants_them(service: Service) -> None:
    exposed = httpx.get(f"{service.url}/metrics").content
    ran = subprocess.run(["promtool", "check", "metrics"], input=exposed, capture_output=True, check=False)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, b"", b"")
