"""Aggregates that fold a group's values into one number: bitwise ones, and the shape of a distribution.

    {6, 3, 3}    bit_and 2    bit_or 7    bit_xor 6           an even multiplicity cancels in bit_xor
    {1, 1, 4}    mean 2   moments about it: m2 = 6, m3 = 6, m4 = 18
                 skewness sqrt(n) m3 / m2^1.5 = 0.707    kurtosis n m4 / m2^2 - 3 = -1.5

Entries are in the order of their values, and equal values are combined, so the sums of doubles depend on the values
alone. The shape of equal values is NULL.
"""

from collections.abc import Callable

import numpy as np
import pyarrow as pa

from tidemark_replica.arrangement.numbers.floats import Doubles
from tidemark_replica.arrangement.rows.columns import fixed
from tidemark_replica.arrangement.rows.ordering import changes
from tidemark_replica.arrangement.rows.updates import Array
from tidemark_replica.kernels.groups.group_versions import GroupVersions

_BITS: dict[str, np.ufunc] = {"bit_and": np.bitwise_and, "bit_or": np.bitwise_or, "bit_xor": np.bitwise_xor}


def bitwise(function: str, taking: GroupVersions, column: Array, of: pa.DataType) -> Array:
    """bit_and, bit_or or bit_xor over the integers of every version; NULL for versions without any."""
    values = fixed(column)[taking.row]
    if function == "bit_xor":
        values = np.where(taking.count % 2 == 1, values, np.zeros_like(values))
    there = taking.lengths > 0
    result = np.zeros(taking.size, values.dtype)
    if there.any():
        result[there] = _BITS[function].reduceat(values, taking.starts[there])
    return pa.array(result, of, mask=~there)


def distribution_shape(function: str, taking: GroupVersions, column: Array) -> Array:
    """skewness or kurtosis of the doubles of every version; NULL for versions with no values, or equal ones only."""
    entries: Doubles = np.asarray(fixed(column)[taking.row], np.float64)
    begins = np.flatnonzero(changes([taking.version, entries.view(np.int64)], len(entries)))
    version, values = taking.version[begins], entries[begins]
    counts = np.add.reduceat(taking.count, begins) if len(begins) else begins
    often: Doubles = counts.astype(np.float64)
    different = np.bincount(version, minlength=taking.size)

    def total(of: Doubles) -> Doubles:
        return np.asarray(np.bincount(version, of, taking.size), np.float64)

    with np.errstate(all="ignore"):
        n = total(often)
        mean = total(often * values) / n
        distance = values - mean[version]
        m2, m3, m4 = (total(often * distance**power) for power in (2, 3, 4))
        found = _SHAPES[function](n, m2, m3, m4)
    flat = (different == 1) & np.isfinite(mean)
    return pa.array(found, mask=(different == 0) | flat | (m2 == 0.0))


_SHAPES: dict[str, Callable[[Doubles, Doubles, Doubles, Doubles], Doubles]] = {
    "skewness": lambda n, m2, m3, m4: np.sqrt(n) * m3 / np.sqrt(m2 * m2 * m2),
    "kurtosis": lambda n, m2, m3, m4: n * m4 / (m2 * m2) - 3.0,
}
