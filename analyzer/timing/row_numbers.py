"""Numbers the distinct rows of several columns."""

import numpy as np

from decodescope.analyzer.trace import Int64s


def row_numbers(*columns: Int64s) -> Int64s:
    """For each row a number from 0 on: equal rows share one, and greater rows have greater ones."""
    order = np.lexsort(tuple(reversed(columns)))
    changes = np.zeros(len(order), dtype=np.int64)
    for column in columns:
        changes[1:] |= np.diff(column[order]) != 0
    numbers = np.empty(len(order), dtype=np.int64)
    numbers[order] = np.cumsum(changes)
    return numbers
