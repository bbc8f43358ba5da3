"""Constants: collections that the plan itself holds.

    out[t] = the constant's rows, or its one error, for all t

State: none. Cost: the rows, once, at hydration.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from tidemark_protocol.plan.lir import Constant
from tidemark_replica.arrangement.rows.updates import Updates, make_updates
from tidemark_replica.render.plan.lowering_stream import arrow_types
from tidemark_replica.values.error_text import error_text
from tidemark_replica.values.literals import literal_value


def constant_updates(constant: Constant) -> Updates:
    """The constant as updates at time 0. A reader moves them to the as_of."""
    types = arrow_types(constant.schema)
    if constant.error is not None:
        columns = [pa.nulls(1, t) for t in types]
        error = pa.array([error_text(constant.error.code, constant.error.expression)], pa.string())
        return make_updates(columns, np.zeros(1, np.int64), np.ones(1, np.int64), error)
    columns = [pa.array([literal_value(row.values[i]) for row in constant.rows], type) for i, type in enumerate(types)]
    diff = np.array([row.diff for row in constant.rows], np.int64)
    return make_updates(columns, np.zeros(len(diff), np.int64), diff)
