"""Paired two-sided t-tests per query: whether the difference of two systems is more than luck."""

import math
import warnings
from collections.abc import Mapping

import numpy as np
from scipy.stats import ttest_rel


def paired_t_test(first: Mapping[str, float], second: Mapping[str, float]) -> float:
    """The p-value over the queries of `first`; a query that `second` lacks counts as zero, identical systems give 1.

    Raises ValueError with fewer than two queries.
    """
    if len(first) < 2:
        raise ValueError(f"a paired test needs at least two queries, not {len(first)}")
    a = np.asarray(list(first.values()))
    b = np.asarray([second.get(query, 0.0) for query in first])
    if np.array_equal(a, b):
        return 1.0
    with warnings.catch_warnings():  # scipy warns where every query differs by the same amount, and rightly gives p = 0
        warnings.simplefilter("ignore", RuntimeWarning)
        p = float(ttest_rel(a, b).pvalue)
    return 1.0 if math.isnan(p) else p  # differences so small that their mean and variance are both 0 in floating point
