"""Markdown tables of measured systems: quality with corrected p-values."""

from collections.abc import Mapping, Sequence

from training.evaluate.measures import Values, means
from training.evaluate.significance import corrected_tests, p_text


def table(systems: Mapping[str, Values], reference: str, correction: str = "holm") -> str:
    """A row for each system: its means, and the p-values of its difference from the reference (none for a single query).

    The p-values of a measure are one family, corrected together.
    """
    measures = list(systems[reference])
    p_values = {measure: p_values_of(systems, reference, measure, correction) for measure in measures}
    rows = [
        [name, *(cell for m in measures for cell in (f"{means(values)[m]:.4f}", p_values[m].get(name, "")))]
        for name, values in systems.items()
    ]
    return markdown([["system", *(cell for m in measures for cell in (m, "p"))], *rows])


def markdown(rows: Sequence[Sequence[str]]) -> str:
    """Rows of cells as a Markdown table; the first row is the head."""
    lines = [f"| {' | '.join(cells)} |" for cells in rows]
    return "\n".join([lines[0], "|" + " --- |" * len(rows[0]), *lines[1:]])


def p_values_of(systems: Mapping[str, Values], reference: str, measure: str, correction: str = "holm") -> dict[str, str]:
    """The corrected p-value of a measure, as printed, for each system but the reference."""
    others = {name: values[measure] for name, values in systems.items() if name != reference}
    return {name: p_text(p) for name, p in corrected_tests(others, systems[reference][measure], correction).items()}
