"""Window functions of a row's position in its partition, without a frame.

row_number = 1 2 3 4      rank = 1 1 3 4      dense_rank = 1 1 2 3      of  a a b c  in their order
percent_rank = (rank - 1) / (rows - 1), 0 in a partition of one row;  cume_dist = last peer's number / rows
ntile(n): n parts of nearly equal size, the first ones longer by one row
lag(x, k, default): x of the row k positions before; lead(x, k) = lag(x, -k)
"""

from collections.abc import Callable, Mapping

import numpy as np
import pyarrow as pa

from tidemark_replica.arrangement.rows.updates import Array, Bools, Ints
from tidemark_replica.kernels.window.calls import WindowColumn, valid_places, values_at
from tidemark_replica.kernels.window.partitions import Partitions


def _row_number(call: WindowColumn, p: Partitions) -> Array:
    return _int(p.all_positions - p.begin + 1)


def _rank(call: WindowColumn, p: Partitions) -> Array:
    return _int(p.peers_begin - p.begin + 1)


def _dense_rank(call: WindowColumn, p: Partitions) -> Array:
    number: Ints = np.cumsum(p.new_peers)
    return _int(number - number[p.begin] + 1)


def _percent_rank(call: WindowColumn, p: Partitions) -> Array:
    others = p.end - p.begin - 1
    return pa.array((p.peers_begin - p.begin) / np.maximum(others, 1))


def _cume_dist(call: WindowColumn, p: Partitions) -> Array:
    return pa.array((p.peers_end - p.begin) / (p.end - p.begin))


def _ntile(call: WindowColumn, p: Partitions) -> Array:
    parts, place = int(call.parameters[0]), p.all_positions - p.begin
    size, longer = (p.end - p.begin) // parts, (p.end - p.begin) % parts
    in_longer = longer * (size + 1)
    first, rest = place // (size + 1), (place - in_longer) // np.maximum(size, 1) + longer
    return _int(np.where(place < in_longer, first, rest) + 1)


def _shifted(call: WindowColumn, p: Partitions) -> Array:
    """The argument some positions further on (lead) or before (lag), among the positions that count."""
    by = int(call.parameters[0]) * (-1 if call.function == "lag" else 1)
    if by == 0:
        return values_at(call, p, p.all_positions, np.ones(p.size, np.bool_))
    able = valid_places(call, p)
    places = np.flatnonzero(able)
    up_to_here: Ints = np.cumsum(able)
    wanted: Ints = up_to_here + by - 1 if by > 0 else up_to_here - able + by
    target, there = _picked(places, wanted)
    return values_at(call, p, target, there & (target >= p.begin) & (target < p.end))


def _picked(places: Ints, wanted: Ints) -> tuple[Ints, Bools]:
    """places[wanted], and a mask of the wanted ones that exist."""
    there = (wanted >= 0) & (wanted < len(places))
    return np.append(places, 0)[np.where(there, wanted, len(places))], there


def _int(values: Ints) -> Array:
    return pa.array(values.astype(np.int32))


POSITION_FUNCTIONS: Mapping[str, Callable[[WindowColumn, Partitions], Array]] = {
    "row_number": _row_number,
    "rank": _rank,
    "dense_rank": _dense_rank,
    "percent_rank": _percent_rank,
    "cume_dist": _cume_dist,
    "ntile": _ntile,
    "lag": _shifted,
    "lead": _shifted,
}
