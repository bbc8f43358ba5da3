"""Thinning: the rows of each group that can be among the first ones, of rows without retractions.

a: 3 1 4 1 5   end 2   ──>   a: 1 +2        1 twice takes both positions
"""

from typing import Any

import numpy as np
import pyarrow as pa

from tidemark_replica.arrangement.rows.grouping import group_rows
from tidemark_replica.arrangement.rows.layout import file_hashes
from tidemark_replica.arrangement.rows.updates import Updates, diffs
from tidemark_replica.kernels.ranking.ranking import Ranking


def thinned(rows: Any, ranking: Ranking) -> Any:
    """The rows of a value-ordered file that begin before the ranking's last position in their group.

    `rows` are consolidated and of one time, and their diffs are positive. Groups of one hash may keep more.
    """
    if not rows.num_rows:
        return rows
    layout = ranking.layout
    group = group_rows(file_hashes(rows), [rows.column(1 + k) for k in layout.key]).ids()
    weights = np.asarray(rows.column(layout.weights[0]).to_numpy())
    before = np.cumsum(weights) - weights
    begins = np.append(True, group[1:] != group[:-1])
    first = np.maximum.accumulate(np.where(begins, np.arange(len(group)), 0))
    kept = before - before[first] < ranking.end
    return rows if kept.all() else rows.filter(pa.array(kept))


def has_retractions(oks: Updates) -> bool:
    """Whether a row is taken back, be it one that cancels with another."""
    return bool(oks.num_rows) and int(diffs(oks).min()) < 0
