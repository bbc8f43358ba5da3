"""Updates of a subscribe: the columns of the rows, then __time, __diff and __part, in order of time and part."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

TIME_COLUMN, DIFF_COLUMN, PART_COLUMN = "__time", "__diff", "__part"


def unseen(updates: pa.Table, lower: int, lower_part: int) -> pa.Table:
    """The updates from (lower, lower_part) on: the stream of another replica may begin before the end of what the
    client has received."""
    time, part = updates.column(TIME_COLUMN), updates.column(PART_COLUMN)
    first, first_part = pa.scalar(lower, pa.int64()), pa.scalar(lower_part, pa.uint64())
    later = pc.or_(pc.greater(time, first), pc.and_(pc.equal(time, first), pc.greater_equal(part, first_part)))
    return updates if pc.all(later).as_py() else updates.filter(later)
