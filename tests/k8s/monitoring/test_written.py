"""What is made from the table of metrics is up to date, and names what there is."""

import json
import re
from pathlib import Path

import pytest
import yaml
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.cog.plugins import register_default_plugins
from grafana_foundation_sdk.models.dashboard import Dashboard

from k8s.monitoring.__main__ import written
from k8s.monitoring.boards import BOARDS
from k8s.monitoring.grafana import dashboard_json
from k8s.monitoring.panels import Board
from k8s.monitoring.rules import ALERTS, RUNBOOKS
from service.telemetry.metrics import TABLE
from tests.conftest import ROOT

RUNBOOK_PAGE = ROOT / "docs" / "run" / "troubleshoot.md"
NAMES = re.compile(r"\b(?:keyblock|process)_[a-z_]+")


@pytest.mark.parametrize("path", written(), ids=lambda path: path.name)
def test_what_is_written_is_up_to_date(path: Path) -> None:
    assert path.read_text(encoding="utf-8") == written()[path], "run: python -m k8s.monitoring"


@pytest.mark.parametrize("board", BOARDS, ids=lambda board: board.name)
def test_a_dashboard_is_all_that_grafanas_schema_knows(board: Board) -> None:
    """Read into the SDK's types, which are made from Grafana's schema, and written again, nothing is lost."""
    register_default_plugins()
    given = json.loads(dashboard_json(board))
    assert json.loads(json.dumps(Dashboard.from_json(given), cls=JSONEncoder)) == given
    assert given["uid"] == board.name
    assert given["schemaVersion"] >= 39


@pytest.mark.parametrize("board", BOARDS, ids=lambda board: board.name)
def test_a_panel_draws_all_its_queries(board: Board) -> None:
    drawn = {panel["title"]: panel["targets"] for panel in json.loads(dashboard_json(board))["panels"] if panel["type"] != "row"}
    asked = {panel.title: [query.expression for query in panel.queries] for panel in board.panels}
    assert {title: [target["expr"] for target in targets] for title, targets in drawn.items()} == asked


def test_every_metric_is_used_by_a_panel_or_an_alert() -> None:
    used = " ".join(text for path, text in written().items() if path.suffix in (".json", ".yaml"))
    assert {row.name for row in TABLE.values() if row.name not in used} == set()


def test_nothing_is_named_that_is_not_measured() -> None:
    texts = {path: text for path, text in written().items() if path.suffix in (".json", ".yaml")}
    texts[RUNBOOK_PAGE] = RUNBOOK_PAGE.read_text(encoding="utf-8")
    known = {row.name for row in TABLE.values()}
    known |= {f"process_{name}" for name in ("cpu_seconds_total", "resident_memory_bytes", "start_time_seconds")}
    known |= {f"{row.name}_{part}" for row in TABLE.values() if row.kind == "histogram" for part in ("bucket", "sum", "count")}
    known |= {"keyblock_not_served", "keyblock_slow"}  # recorded
    assert {name for text in texts.values() for name in NAMES.findall(text)} - known == set()


def test_every_alert_has_a_runbook_which_knows_it() -> None:
    parts = (part.partition("\n") for part in RUNBOOK_PAGE.read_text(encoding="utf-8").split("\n## ")[1:])
    runbooks = {heading.lower().replace(" ", "-"): text for heading, _, text in parts}
    for alert in ALERTS:
        assert f"`{alert.name}`" in runbooks[alert.runbook]
        assert re.findall(r"^### (.+)$", runbooks[alert.runbook], re.MULTILINE) == ["What it means", "Look", "Do"]
    assert set(runbooks) == {alert.runbook for alert in ALERTS}


def test_alerts_point_to_where_the_runbooks_are() -> None:
    (rules,) = (text for path, text in written("https://wiki.example.org/books").items() if path.name == "rules.yaml")
    groups = yaml.safe_load(rules)["spec"]["groups"]
    urls = {rule["annotations"]["runbook_url"] for group in groups for rule in group["rules"] if "alert" in rule}
    assert urls == {f"https://wiki.example.org/books#{alert.runbook}" for alert in ALERTS}
    assert RUNBOOKS.endswith("docs/run/troubleshoot.md")
