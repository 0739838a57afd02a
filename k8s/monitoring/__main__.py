"""Write the files that are made from the table of metrics: docs/run/metrics.md, the dashboards and the rules.

python -m k8s.monitoring [--runbooks URL]
"""

import argparse
from collections.abc import Mapping
from pathlib import Path

from k8s.monitoring.boards import BOARDS
from k8s.monitoring.grafana import dashboard_json
from k8s.monitoring.page import metrics_page
from k8s.monitoring.rules import RUNBOOKS, rules_yaml

ROOT = Path(__file__).resolve().parents[2]


def written(runbooks: str = RUNBOOKS) -> Mapping[Path, str]:
    """The content of each generated file, by path."""
    here = ROOT / "k8s" / "monitoring"
    boards = {here / "dashboards" / f"{board.name}.json": dashboard_json(board) for board in BOARDS}
    return {ROOT / "docs" / "run" / "metrics.md": metrics_page(), here / "rules.yaml": rules_yaml(runbooks), **boards}


def main() -> None:
    """Write the files."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--runbooks", default=RUNBOOKS, metavar="URL", help="where docs/run/troubleshoot.md can be read at three in the morning"
    )
    for path, text in written(parser.parse_args().runbooks).items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
