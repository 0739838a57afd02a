"""Prometheus expressions, written with the keys of the table of metrics: a name that is not declared is an error here already.

>>> rate("requests", by=["outcome"], within="5m", outcome="!=cancelled")
'sum by (outcome) (rate(keyblock_requests_total{outcome!="cancelled"}[5m]))'
"""

import re
from collections.abc import Collection

from service.telemetry.metrics import MODEL, TABLE

WINDOW = "$__rate_interval"  # Grafana's: four scrapes at least
SCOPE = {"namespace": "=~$namespace", "pod": "=~$pod"}  # a dashboard's variables; labels that Kubernetes adds
OF_MODEL = {MODEL: "=~$model"}
_MATCHER = re.compile(r"(=~|!~|!=|=)?(.*)")


def series(key: str, suffix: str = "", **matchers: str) -> str:
    """A metric's series, those of the dashboard's variables; matchers are values, with an operator in front: `!~a|b`, `=x`, `x`."""
    row = TABLE[key]
    if unknown := set(matchers) - {*row.labels, *SCOPE, "le"}:
        raise ValueError(f"{row.name} has no label {', '.join(unknown)}")
    parts = (_MATCHER.fullmatch(value) for value in matchers.values())
    shown = [f'{label}{match[1] or "="}"{match[2]}"' for label, match in zip(matchers, parts, strict=True) if match]
    return f"{row.name}{suffix}" + (f"{{{', '.join(shown)}}}" if shown else "")


def shown(key: str, suffix: str = "", **matchers: str) -> str:
    """The same, of the namespaces, pods and models that a dashboard's variables name."""
    return series(key, suffix, **SCOPE, **(OF_MODEL if MODEL in TABLE[key].labels else {}), **matchers)


def over(function: str, expression: str, by: Collection[str] = ()) -> str:
    """An aggregation."""
    grouping = f" by ({', '.join(by)}) " if by else ""
    return f"{function}{grouping}({expression})"


def rate(key: str, by: Collection[str] = (), within: str = "", suffix: str = "", **matchers: str) -> str:
    """How much a counter grows a second, summed; of a dashboard where no window is given."""
    selected = series(key, suffix, **matchers) if within else shown(key, suffix, **matchers)
    return over("sum", f"rate({selected}[{within or WINDOW}])", by)


def quantile(key: str, share: float, by: Collection[str] = ()) -> str:
    """Of a dashboard's histogram."""
    return f"histogram_quantile({share:g}, {rate(key, ['le', *by], suffix='_bucket')})"
