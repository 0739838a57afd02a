"""Prometheus expressions, written with the keys of the table of metrics; a key that is not in the table is an error.

>>> rate("requests", by=["outcome"], within="5m", outcome="!=cancelled")
'sum by (outcome) (rate(keyblock_requests_total{outcome!="cancelled"}[5m]))'
"""

import re
from collections.abc import Collection

from service.telemetry.metrics import MODEL, TABLE

WINDOW = "$__rate_interval"  # Grafana's variable: at least four scrapes
SCOPE = {"namespace": "=~$namespace", "pod": "=~$pod"}  # labels that Kubernetes adds, matched by a dashboard's variables
OF_MODEL = {MODEL: "=~$model"}
_MATCHER = re.compile(r"(=~|!~|!=|=)?(.*)")


def series(key: str, suffix: str = "", **matchers: str) -> str:
    """The selector of a metric's series. A matcher is a label's value with an optional operator in front: `!~a|b`, `=x`, `x`."""
    row = TABLE[key]
    if unknown := set(matchers) - {*row.labels, *SCOPE, "le"}:
        raise ValueError(f"{row.name} has no label {', '.join(unknown)}")
    parts = (_MATCHER.fullmatch(value) for value in matchers.values())
    selectors = [f'{label}{match[1] or "="}"{match[2]}"' for label, match in zip(matchers, parts, strict=True) if match]
    return f"{row.name}{suffix}" + (f"{{{', '.join(selectors)}}}" if selectors else "")


def scoped(key: str, suffix: str = "", **matchers: str) -> str:
    """The selector of the series in the namespaces, pods and models that a dashboard's variables name."""
    return series(key, suffix, **SCOPE, **(OF_MODEL if MODEL in TABLE[key].labels else {}), **matchers)


def aggregated(function: str, expression: str, by: Collection[str] = ()) -> str:
    """An expression aggregated with a function such as sum or max, by the given labels."""
    grouping = f" by ({', '.join(by)}) " if by else ""
    return f"{function}{grouping}({expression})"


def rate(key: str, by: Collection[str] = (), within: str = "", suffix: str = "", **matchers: str) -> str:
    """The growth of a counter per second, summed. Without a window, the one that a dashboard's variables select."""
    selected = series(key, suffix, **matchers) if within else scoped(key, suffix, **matchers)
    return aggregated("sum", f"rate({selected}[{within or WINDOW}])", by)


def quantile(key: str, share: float, by: Collection[str] = ()) -> str:
    """A quantile of a histogram, for a dashboard."""
    return f"histogram_quantile({share:g}, {rate(key, ['le', *by], suffix='_bucket')})"
