"""The rules before promtool: they are right, and each alert fires where it should and is quiet where it should be."""

import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from k8s.monitoring.boards import BOARDS
from k8s.monitoring.rules import ALERTS, groups
from service.settings import Settings
from service.telemetry.metrics import TABLE
from tests.service.conftest import warm
from tests.support.programs import need

POD = 'namespace="n", pod="p"'
MODEL = f'{POD}, model="m"'


class Case(NamedTuple):
    """Series by the minute, as promtool writes them, and when to look."""

    at: str
    series: dict[str, str]


def requests(at: str, ok: str, **others: str) -> Case:
    name = TABLE["requests"].name
    counted = {f'{name}{{{POD}, outcome="{outcome}"}}': values for outcome, values in {"ok": ok, **others}.items()}
    return Case(at, counted)


def answers(at: str, quick: int, of: int) -> Case:
    name, minutes = TABLE["latency"].name, 2000
    return Case(
        at, {f'{name}_bucket{{{MODEL}, le="2.5"}}': f"0+{quick}x{minutes}", f"{name}_count{{{MODEL}}}": f"0+{of}x{minutes}"}
    )


def few_slow(at: str) -> Case:
    """Answers of a quiet night, the last two of which were slow."""
    name = TABLE["latency"].name
    return Case(at, {f'{name}_bucket{{{MODEL}, le="2.5"}}': "0x60 1x20 2x40", f"{name}_count{{{MODEL}}}": "0x60 1x20 2x3 3 4x40"})


def gauge(key: str, at: str, values: str, labels: str = POD) -> Case:
    return Case(at, {f"{TABLE[key].name}{{{labels}}}": values})


def deadlines(at: str, degraded: int = 0, **outcomes: int) -> Case:
    counted = {f'{TABLE["deadlines"].name}{{{MODEL}, outcome="{outcome}"}}': f"0+{n}x90" for outcome, n in outcomes.items()}
    return Case(at, {**counted, f"{TABLE['degraded_requests'].name}{{{MODEL}}}": f"0+{degraded}x90"})


def batches(at: str, failed: str, split: str) -> Case:
    name = TABLE["batches"].name
    return Case(at, {f'{name}{{{MODEL}, outcome="failed"}}': failed, f'{name}{{{MODEL}, outcome="split"}}': split})


def store(at: str, up: str, errors: str) -> Case:
    counted = f'{TABLE["store_errors"].name}{{{POD}, why="unavailable"}}'
    return Case(at, {f"{TABLE['store_up'].name}{{{POD}}}": up, counted: errors})


def starts(at: str, values: str) -> Case:
    """When the process was started, which has no label of a model; and that it is a replica of ours."""
    return Case(at, {f"process_start_time_seconds{{{POD}}}": values, f"{TABLE['build'].name}{{{MODEL}}}": "1x20"})


def scraped(at: str, values: str) -> Case:
    return Case(at, {f'up{{{POD}, job="n/keyblock"}}': values})


FIRING = {
    "KeyBlockErrorBudgetBurnsFast": requests("90m", "0+90x120", failed="0+2x120"),
    "KeyBlockErrorBudgetBurnsSlowly": requests("4h", "0+996x300", refused="0+4x300"),
    "KeyBlockLatencyBudgetBurnsFast": answers("90m", 80, 100),
    "KeyBlockLatencyBudgetBurnsSlowly": answers("4h", 96, 100),
    "KeyBlockQueueOld": gauge("queue_age", "15m", "6+1x20", MODEL),
    "KeyBlockRefuses": requests("20m", "0+95x30", refused="0+5x30"),
    "KeyBlockProviderFellBack": gauge("fell_back", "10m", "1x20", MODEL),
    "KeyBlockReadinessFlaps": gauge("ready", "12m", "1 0 1 0 1 0 1 1x20"),
    "KeyBlockRestarts": starts("12m", "100 100 200 200 300 300 _ 400 400x10"),
    "KeyBlockNotReady": gauge("ready", "15m", "0x30"),
    "KeyBlockSilent": scraped("15m", "1 1 0x30"),
    "KeyBlockGone": Case("10m", {"up": "1x20"}),
    "KeyBlockDeadlinesDegrade": deadlines("60m", degraded=30, met=100),
    "KeyBlockDeadlinesMissed": deadlines("60m", met=95, missed=5),
    "KeyBlockBatchesFail": batches("15m", "0+1x30", "0x30"),
    "KeyBlockStoreAway": store("10m", "0x20", "0+4x20"),
    "KeyBlockStoreShardAway": gauge("store_away", "10m", "0 1x20"),
}
QUIET: dict[str, list[Case]] = {
    "KeyBlockErrorBudgetBurnsFast": [
        requests("90m", "0+9990x120", failed="0+2x120"),
        requests("70m", "0+90x120", failed="0+10x20 200x100"),  # it was bad, and is over
        requests("90m", "0+90x120", failed="0x120", invalid="0+90x120", cancelled="0+50x120"),  # the clients' doing
        requests("90m", "0x120", failed="0x120"),  # nobody asks
        requests("88m", "0+1x120", failed="0x84 1+1x1 2x40"),  # of the few that a night has
    ],
    "KeyBlockErrorBudgetBurnsSlowly": [requests("4h", "0+9995x300", refused="0+5x300")],
    "KeyBlockLatencyBudgetBurnsFast": [answers("90m", 95, 100), few_slow("88m")],
    "KeyBlockLatencyBudgetBurnsSlowly": [answers("4h", 995, 1000)],
    "KeyBlockQueueOld": [gauge("queue_age", "15m", "9 9 0 9 9 9 0 9 9 9 0 9 9 9 0 9 9", MODEL)],  # it drains each time
    "KeyBlockRefuses": [requests("20m", "0+995x30", refused="0+5x30")],
    "KeyBlockProviderFellBack": [gauge("fell_back", "10m", "0x20", MODEL)],
    "KeyBlockReadinessFlaps": [gauge("ready", "12m", "0 0 1x20"), gauge("ready", "12m", "1 1 1 0 0 1x20")],
    "KeyBlockRestarts": [
        starts("12m", "100 100 100 _ 200 200 300x20"),
        Case("12m", {f"process_start_time_seconds{{{POD}}}": "100 200 300 400 500 600x20"}),  # of another service
    ],
    "KeyBlockNotReady": [gauge("ready", "15m", "0 0 0 0 0 1x30")],
    "KeyBlockSilent": [
        scraped("15m", "0 0 0 1x30"),
        Case("15m", {f'up{{{POD}, job="n/other"}}': "0x30"}),
    ],
    "KeyBlockGone": [gauge("build", "10m", "1x20", MODEL)],
    "KeyBlockDeadlinesDegrade": [deadlines("60m", degraded=10, met=100)],
    "KeyBlockDeadlinesMissed": [deadlines("60m", met=50, late=50)],
    "KeyBlockBatchesFail": [batches("15m", "0x30", "0+1x30")],
    "KeyBlockStoreAway": [store("10m", "0x20", "0x20"), store("10m", "1x20", "0 3 3x20")],  # no store; back again
    "KeyBlockStoreShardAway": [gauge("store_away", "10m", "1 0 0 1 0 0 1 0 0 0 0")],  # failovers
}


def promtool(*arguments: str | Path) -> str:
    ran = subprocess.run([need("promtool", "prometheus"), *map(str, arguments)], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


def filled(expression: str) -> str:
    """A panel's expression with Grafana's variables filled in."""
    return re.sub(r"\$(namespace|pod|model)\b", ".*", expression.replace("$__rate_interval", "5m"))


@pytest.fixture
def rules_of(tmp_path: Path) -> Callable[[str], Path]:
    """The rule of one alert, with the recorded ones that it reads: promtool evaluates every rule of a file at every minute."""

    def write(name: str) -> Path:
        (expression,) = (alert.expression for alert in ALERTS if alert.name == name)
        read = [
            [rule for rule in of["rules"] if rule.get("alert") == name or rule.get("record", name) in expression] for of in groups()
        ]
        path = tmp_path / "rules.yaml"
        path.write_text(
            yaml.safe_dump({"groups": [of | {"rules": kept} for of, kept in zip(groups(), read, strict=True) if kept]}),
            encoding="utf-8",
        )
        return path

    return write


def case(alert: str, given: Case, fires: bool) -> dict[str, Any]:
    asked = f'count(ALERTS{{alertname="{alert}", alertstate="firing"}})'
    samples = [{"labels": "{}", "value": 1}] if fires else []
    return {
        "name": f"{alert} {'fires' if fires else 'is quiet'}",
        "interval": "1m",
        "input_series": [{"series": name, "values": values} for name, values in given.series.items()],
        "promql_expr_test": [{"expr": asked, "eval_time": given.at, "exp_samples": samples}],
    }


def test_the_rules_and_what_the_panels_ask_are_right(tmp_path: Path) -> None:
    """A panel's expression is checked as a recording rule."""
    asked = [filled(query.expression) for board in BOARDS for panel in board.panels for query in panel.queries]
    panels = {"name": "panels", "rules": [{"record": f"panel:{number}", "expr": one} for number, one in enumerate(asked)]}
    path = tmp_path / "rules.yaml"
    path.write_text(yaml.safe_dump({"groups": [*groups(), panels]}), encoding="utf-8")
    assert "SUCCESS" in promtool("check", "rules", path)


def test_names_and_help_are_as_prometheus_wants_them(bundle_path: Path) -> None:
    with warm(Settings(bundle=(bundle_path,), provider="cpu")) as client:
        exposed = client.get("/metrics").content
    ran = subprocess.run([need("promtool", "prometheus"), "check", "metrics"], input=exposed, capture_output=True, check=False)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, b"", b"")


def test_what_panels_show(tmp_path: Path) -> None:
    """No mean of nothing, though work was done for requests that got no answer; and a replica of two models is one replica."""
    given = {
        f'{TABLE["stages"].name}_sum{{{MODEL}, stage="parse"}}': "0+1x20",
        f"{TABLE['latency'].name}_count{{{MODEL}}}": "0x20",
        f'{TABLE["blocks"].name}{{{MODEL}, step="asked"}}': "0+1x20",
        f"{TABLE['tokens'].name}{{{MODEL}}}": "0+1x20",
        f"{TABLE['documents'].name}{{{MODEL}}}": "0x20",
        **{f'{TABLE["fell_back"].name}{{{POD}, model="{model}"}}': "1x20" for model in ("m", "another")},
    }
    shown = {"Mean request, by stage": [], "Blocks of a document": [], "Tokens of a document": [], "Fallen back": [1]}
    asked = [
        {"expr": filled(query.expression), "eval_time": "15m", "exp_samples": [{"value": value} for value in shown[panel.title]]}
        for board in BOARDS
        for panel in board.panels
        if panel.title in shown
        for query in panel.queries
    ]
    series = [{"series": name, "values": values} for name, values in given.items()]
    tests = [{"interval": "1m", "input_series": series, "promql_expr_test": asked}]
    path = tmp_path / "cases.yaml"
    path.write_text(yaml.safe_dump({"evaluation_interval": "1m", "tests": tests}), encoding="utf-8")
    assert "SUCCESS" in promtool("test", "rules", path)


@pytest.mark.parametrize("alert", [alert.name for alert in ALERTS])
def test_an_alert_fires_when_it_should_and_only_then(alert: str, rules_of: Callable[[str], Path], tmp_path: Path) -> None:
    cases = [case(alert, FIRING[alert], True), *(case(alert, given, False) for given in QUIET[alert])]
    path = tmp_path / "cases.yaml"
    files = [str(rules_of(alert))]
    path.write_text(yaml.safe_dump({"rule_files": files, "evaluation_interval": "1m", "tests": cases}), encoding="utf-8")
    assert "SUCCESS" in promtool("test", "rules", path)
