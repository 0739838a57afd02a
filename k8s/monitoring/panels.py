"""What a panel is: a question, the expressions that answer it, and how the answer is shown."""

from enum import StrEnum
from typing import NamedTuple


class Kind(StrEnum):
    """How a panel shows its data."""

    STAT = "stat"
    LINES = "lines"
    STACKED = "stacked"
    HEATMAP = "heatmap"


class Unit(StrEnum):
    """What the numbers are, in Grafana's words."""

    REQUESTS = "reqps"
    SECONDS = "s"
    SHARE = "percentunit"
    BYTES = "bytes"
    NUMBER = "short"
    DOCUMENTS_A_SECOND = "suffix: documents/s"
    TOKENS_A_SECOND = "suffix: tokens/s"
    BATCHES_A_SECOND = "suffix: batches/s"
    CONNECTIONS_A_SECOND = "suffix: connections/s"


MEANT = {  # what is good is green wherever it stands, and what is bad red
    **dict.fromkeys(("ok", "met"), "green"),
    **dict.fromkeys(("failed", "missed", "order"), "red"),
    **dict.fromkeys(("refused", "late", "split", "selector"), "orange"),
    "invalid": "blue",
    "cancelled": "purple",
    "tokens": "blue",
    "padding": "orange",
}


class Query(NamedTuple):
    """An expression, and what its lines are called: Grafana fills in {{label}}."""

    expression: str
    legend: str = ""


class Panel(NamedTuple):
    """A panel.

    Attributes:
        title: what it shows.
        description: what it says and what to make of it, in a sentence or two.
        unit: of the numbers; of a heat map, of its buckets.
        queries: at least one.
        width: of the 24 columns of a row.
        steps: from which value on it is orange, then red; none for no colours.
        needs: what it is empty without, such as "GPU"; empty itself where it always has data.
        exemplars: whether trace ids are shown.
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
        name: of its file, and in its address.
    """

    name: str
    title: str
    description: str
    rows: list[Row]

    @property
    def panels(self) -> list[Panel]:
        """Of all rows."""
        return [panel for row in self.rows for panel in row.panels]
