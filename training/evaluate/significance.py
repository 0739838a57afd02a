"""Paired two-sided t-tests per query, corrected for several comparisons: they decide whether a difference is significant.

scipy is imported inside functions, since keyblock-evaluate --help lists the corrections without it.
"""

import math
import warnings
from collections.abc import Callable, Mapping, Sequence

import numpy as np

SMALLEST = 1e-300  # smaller p-values are printed as "< 1e-300": floating point cannot tell them apart


def paired_t_test(first: Mapping[str, float], second: Mapping[str, float]) -> float:
    """The p-value over the queries of `first`. A query that `second` lacks counts as zero; identical systems give 1.

    Raises ValueError with fewer than two queries.
    """
    from scipy.stats import ttest_rel

    if len(first) < 2:
        raise ValueError(f"a paired test needs at least two queries, not {len(first)}")
    a = np.asarray(list(first.values()))
    b = np.asarray([second.get(query, 0.0) for query in first])
    if np.array_equal(a, b):
        return 1.0
    with warnings.catch_warnings():  # scipy warns if every query differs by the same amount, and rightly gives p = 0
        warnings.simplefilter("ignore", RuntimeWarning)
        p = float(ttest_rel(a, b).pvalue)
    return 1.0 if math.isnan(p) else p  # differences so small that their mean and variance are both 0 in floating point


def bonferroni(p_values: Sequence[float]) -> list[float]:
    """Multiply each p-value by their number, up to 1: bounds the chance of any false discovery (Dunn 1961)."""
    return [min(1.0, len(p_values) * p) for p in p_values]


def holm(p_values: Sequence[float]) -> list[float]:
    """Multiply the i-th smallest of n p-values by n - i + 1; no result is smaller than the one before it (Holm 1979).

    Bounds the chance of any false discovery as `bonferroni` does, and never gives a larger p-value.
    """
    corrected, largest = [0.0] * len(p_values), 0.0
    for place, index in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        largest = max(largest, min(1.0, (len(p_values) - place) * p_values[index]))
        corrected[index] = largest
    return corrected


CORRECTIONS: dict[str, Callable[[Sequence[float]], list[float]]] = {"holm": holm, "bonferroni": bonferroni, "none": list}


def correct(p_values: Sequence[float], correction: str = "holm") -> list[float]:
    """The p-values of one family of comparisons, corrected by a method of CORRECTIONS."""
    return CORRECTIONS[correction](p_values)


def corrected_tests(
    systems: Mapping[str, Mapping[str, float]], reference: Mapping[str, float], correction: str = "holm"
) -> dict[str, float]:
    """The p-value of each system's difference from the reference, corrected as one family; systems of one query are left out."""
    tested = {name: values for name, values in systems.items() if len(values) > 1}
    p_values = [paired_t_test(values, reference) for values in tested.values()]
    return dict(zip(tested, correct(p_values, correction), strict=True))


def p_text(p: float) -> str:
    """A p-value as tables print it."""
    return f"{p:.2g}" if p >= SMALLEST else f"< {SMALLEST:g}"
