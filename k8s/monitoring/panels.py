"""Panels of dashboards: a title, the expressions to draw, and how to draw them."""

from enum import StrEnum
from typing import NamedTuple


class Kind(StrEnum):
    """How a panel shows its data."""

    STAT = "stat"
    LINES = "lines"
    STACKED = "stacked"
    HEATMAP = "heatmap"


class Unit(StrEnum):
    """The unit of a panel's numbers, as Grafana calls it."""

    REQUESTS = "reqps"
    SECONDS = "s"
    SHARE = "percentunit"
    BYTES = "bytes"
    NUMBER = "short"
    DOCUMENTS_A_SECOND = "suffix: documents/s"
    TOKENS_A_SECOND = "suffix: tokens/s"
    BATCHES_A_SECOND = "suffix: batches/s"
    CONNECTIONS_A_SECOND = "suffix: connections/s"


NAME_COLOURS = {  # in every panel, good outcomes are green and bad outcomes red
    **dict.fromkeys(("ok", "met"), "green"),
    **dict.fromkeys(("failed", "missed", "order"), "red"),
    **dict.fromkeys(("refused", "late", "split", "selector"), "orange"),
    "invalid": "blue",
    "cancelled": "purple",
    "tokens": "blue",
    "padding": "orange",
}


class Query(NamedTuple):
    """An expression and the name of its lines, in which Grafana fills in {{label}}."""

    expression: str
    legend: str = ""


class Panel(NamedTuple):
    """A panel.

    Attributes:
        title: the panel's title.
        description: what the panel shows and how to read it, in a sentence or two.
        unit: the unit of the numbers or, for a heat map, of its buckets.
        queries: at least one query.
        width: how many of a row's 24 columns the panel takes.
        steps: the values from which the panel is orange, then red; none for no colours.
        needs: what the service must have for the panel to have data, such as "GPU"; empty if it always has data.
        exemplars: whether the panel shows trace ids.
    """

    title: str
    description: str
    kind: Kind
    unit: Unit
    queries: list[Query]
    width: int = 8
    steps: tuple[float, ...] = ()
    needs: str = ""
    exemplars: bool = False


class Row(NamedTuple):
    """Panels under a heading."""

    title: str
    panels: list[Panel]


class Board(NamedTuple):
    """A dashboard.

    Attributes:
        name: the name of its file and in its address.
    """

    name: str
    title: str
    description: str
    rows: list[Row]

    @property
    def panels(self) -> list[Panel]:
        """The panels of all rows."""
        return [panel for row in self.rows for panel in row.panels]
