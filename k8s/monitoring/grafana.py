"""Dashboards as Grafana reads them, written with Grafana's own Foundation SDK, which cannot write what Grafana does not know."""

import json
from collections.abc import Callable
from itertools import count
from string import ascii_uppercase

from grafana_foundation_sdk.builders import common, dashboard, heatmap, prometheus, stat, timeseries
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models import common as shapes
from grafana_foundation_sdk.models import dashboard as models
from grafana_foundation_sdk.models import heatmap as heatmap_models
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

from k8s.monitoring.panels import NAME_COLOURS, Board, Kind, Panel, Query, Unit
from service.telemetry.metrics import TABLE

SOURCE = models.DataSourceRef(type_val="prometheus", uid="${datasource}")
STAT_HEIGHT, HEIGHT, COLUMNS = 4, 8, 24
COLOURS = ("green", "orange", "red")
BUILD = TABLE["build"].name
VARIABLES = {  # name: the query for its values, which uses the variables before it
    "namespace": f"label_values({BUILD}, namespace)",
    "pod": f'label_values({BUILD}{{namespace=~"$namespace"}}, pod)',
    "model": f'label_values({BUILD}{{namespace=~"$namespace", pod=~"$pod"}}, model)',
}
Builder = stat.Panel | timeseries.Panel | heatmap.Panel


def dashboard_json(board: Board) -> str:
    """The dashboard as JSON, ready to import or to be mounted by a sidecar."""
    made = (
        dashboard.Dashboard(board.title)
        .uid(board.name)
        .description(board.description)
        .tags(["keyblock"])
        .refresh("30s")
        .time("now-1h", "now")
        .timezone("browser")
        .tooltip(models.DashboardCursorSync.CROSSHAIR)
        .link(dashboard.DashboardLink("KeyBlock").type(models.DashboardLinkType.DASHBOARDS).tags(["keyblock"]).keep_time(True))
        .with_variable(dashboard.DatasourceVariable("datasource").label("Data source").type("prometheus"))
    )
    for name, query in VARIABLES.items():
        made = made.with_variable(_variable(name, query))
    ids, top = count(1), 0
    for row in board.rows:
        made = made.with_row(dashboard.Row(row.title).id(next(ids)).grid_pos(models.GridPos(h=1, w=COLUMNS, x=0, y=top)))
        top += 1
        for panel, place in zip(row.panels, places(row.panels, top), strict=True):
            made = made.with_panel(_panel(panel).id(next(ids)).grid_pos(place))
            bottom = place.y + place.h
        top = bottom
    return json.dumps(made.build(), cls=JSONEncoder, indent=1, sort_keys=True) + "\n"


def places(panels: list[Panel], top: int) -> list[models.GridPos]:
    """The position of each panel, from left to right and line by line."""
    positions: list[models.GridPos] = []
    left = 0
    for panel in panels:
        height = STAT_HEIGHT if panel.kind is Kind.STAT else HEIGHT
        if left + panel.width > COLUMNS:
            left, top = 0, positions[-1].y + positions[-1].h
        positions.append(models.GridPos(h=height, w=panel.width, x=left, y=top))
        left += panel.width
    return positions


def _variable(name: str, query: str) -> dashboard.QueryVariable:
    return (
        dashboard.QueryVariable(name)
        .label(name.capitalize())
        .datasource(SOURCE)
        .query(query)
        .refresh(models.VariableRefresh.ON_TIME_RANGE_CHANGED)
        .sort(models.VariableSort.ALPHABETICAL_ASC)
        .multi(True)
        .include_all(True)
        .all_value(".*")
        .current(models.VariableOption(text="All", value="$__all", selected=True))
    )


def _panel(panel: Panel) -> Builder:
    made = _KINDS[panel.kind](panel)
    made.title(panel.title).description(panel.description).datasource(SOURCE)
    for letter, query in zip(ascii_uppercase, panel.queries, strict=False):
        made.with_target(_target(panel, query, letter))
    return made


def _target(panel: Panel, query: Query, letter: str) -> prometheus.Dataquery:
    form = PromQueryFormat.HEATMAP if panel.kind is Kind.HEATMAP else PromQueryFormat.TIME_SERIES
    target = prometheus.Dataquery().expr(query.expression).legend_format(query.legend or "__auto").ref_id(letter).format(form)
    target = target.datasource(SOURCE).exemplar(panel.exemplars)
    return target.instant() if panel.kind is Kind.STAT else target.range()


def _stat(panel: Panel) -> stat.Panel:
    named = any(query.legend for query in panel.queries)
    return (
        stat.Panel()
        .unit(panel.unit)
        .no_value("no traffic")
        .thresholds(_thresholds(panel))
        .color_mode(shapes.BigValueColorMode.VALUE)
        .graph_mode(shapes.BigValueGraphMode.NONE)
        .text_mode(shapes.BigValueTextMode.VALUE_AND_NAME if named else shapes.BigValueTextMode.VALUE)
        .reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"]))
    )


def _line_colours(panel: Panel) -> dict[str, str]:
    """The colours of a panel's lines, by the names that its lines may have."""
    legends = [query.legend for query in panel.queries]
    by_label = any("{{outcome}}" in legend or "{{how}}" in legend for legend in legends)
    return {name: colour for name, colour in NAME_COLOURS.items() if by_label or name in legends}


def _lines(panel: Panel) -> timeseries.Panel:
    made = (
        timeseries.Panel()
        .unit(panel.unit)
        .min(0)
        .line_width(1)
        .show_points(shapes.VisibilityMode.NEVER)
        .legend(common.VizLegendOptions().show_legend(True).placement(shapes.LegendPlacement.BOTTOM))
        .tooltip(common.VizTooltipOptions().mode(shapes.TooltipDisplayMode.MULTI).sort(shapes.SortOrder.DESCENDING))
    )
    for name, colour in _line_colours(panel).items():
        made = made.override_by_name(
            name, [models.DynamicConfigValue(id_val="color", value={"mode": "fixed", "fixedColor": colour})]
        )
    if panel.unit is Unit.SHARE:
        made = made.axis_soft_max(0.01 if panel.steps and panel.steps[0] < 0.01 else 1)
    if panel.steps:
        style = common.GraphThresholdsStyleConfig().mode(shapes.GraphThresholdsStyleMode.DASHED)
        made = made.thresholds(_thresholds(panel)).thresholds_style(style)
    return made


def _stacked(panel: Panel) -> timeseries.Panel:
    return _lines(panel).fill_opacity(60).stacking(common.StackingConfig().mode(shapes.StackingMode.NORMAL).group("A"))


def _heatmap(panel: Panel) -> heatmap.Panel:
    return (
        heatmap.Panel()
        .calculate(False)
        .cell_gap(1)
        .y_axis(heatmap.YAxisConfig().unit(panel.unit).axis_placement(shapes.AxisPlacement.LEFT))
        .color(heatmap.HeatmapColorOptions().mode(heatmap_models.HeatmapColorMode.SCHEME).scheme("Spectral").steps(64))
        .filter_values(heatmap.FilterValueRange().le(1e-9))
        .show_legend()
    )


_KINDS: dict[Kind, Callable[[Panel], Builder]] = {
    Kind.STAT: _stat,
    Kind.LINES: _lines,
    Kind.STACKED: _stacked,
    Kind.HEATMAP: _heatmap,
}


def _thresholds(panel: Panel) -> dashboard.ThresholdsConfig:
    """Thresholds at the panel's steps: green below the first step, red above the last."""
    values = (None, *panel.steps)
    colours = COLOURS if len(values) > 2 else (COLOURS[0], COLOURS[-1])
    steps = [models.Threshold(value=value, color=colour) for value, colour in zip(values, colours, strict=False)]
    return dashboard.ThresholdsConfig().mode(models.ThresholdsMode.ABSOLUTE).steps(steps)
