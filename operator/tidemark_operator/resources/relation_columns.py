"""The columns of the relations of `tidemark_introspection`, by their names: text, whole numbers and booleans, all of
which may be NULL."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from tidemark_protocol.types import BIGINT, BOOLEAN, STRING, Column, SqlType

RETAINED_TABLES, LEASES = "retained_tables", "leases"
_BY_LETTER: dict[str, SqlType] = {"s": STRING, "n": BIGINT, "b": BOOLEAN}


def _columns(text: str) -> tuple[Column, ...]:
    """`name:s write_time:n hydrated:b`"""
    return tuple(Column(name, _BY_LETTER[of]) for name, _, of in (word.partition(":") for word in text.split()))


COLUMNS: Mapping[str, tuple[Column, ...]] = MappingProxyType(
    {
        "frontiers": _columns("name:s kind:s read_time:n write_time:n finished:b lag_ms:n hydrated:b"),
        "replica_frontiers": _columns(
            "name:s instance:s replica:s input_time:n output_time:n write_time:n lag_ms:n hydrated:b refused_reports:n"
        ),
        "dataflows": _columns("name:s instance:s as_of:n scheduled:b hydrated:b dropped:b exports:n"),
        "peeks": _columns("uuid:s instance:s target:s time:n"),
        LEASES: _columns("name:s lease:s holder:s time:n behind_ms:n until:n"),
        "errors": _columns("name:s replica:s code:s errors:n detail:s"),
        "statuses": _columns("name:s replica:s kind:s field:s value:s"),
        "arrangements": _columns("dataflow:s replica:s arrangements:n records:n batches:n bytes:n"),
        "steps": _columns("dataflow:s replica:s steps:n elapsed_ms:n max_ms:n hydration_ms:n"),
        "recomputations": _columns(
            "dataflow:s replica:s time:n rows:n input_rows:n step_ms:n hydration_ms:n elapsed_ms:n recomputations:n"
        ),
        "step_histogram": _columns("dataflow:s replica:s up_to_ms:n steps:n"),
        "hydrations": _columns("dataflow:s instance:s replica:s as_of:n began:n ended:n outcome:s"),
        "operators": _columns(
            "dataflow:s replica:s place:n operator:s kind:s records:n batches:n bytes:n elapsed_ms:n "
            "percent:n hydrated:b"
        ),
        "operator_channels": _columns("dataflow:s replica:s from_place:n from_operator:s to_place:n to_operator:s"),
        "imports": _columns("dataflow:s instance:s name:s kind:s write_time:n finished:b lag_ms:n input_time:n"),
        "tables": _columns(
            "source:s table:s instance:s replica:s rows:n bytes:n write_time:n finished:b lag_ms:n behind:n unit:s "
            "snapshot_percent:n malformed:n stopped:b error:s errors:n error_time:n"
        ),
        "files": _columns("source:s table:s file:s size:n rows:n errors:n state:s reason:s time:n"),
        RETAINED_TABLES: _columns(
            "name:s part:s version:n kind:s owner:s state:s bytes:n write_time:n finished:b instance:s location:s "
            "error:s"
        ),
        "wallclock_lag": _columns("name:s instance:s up_to_s:n seconds:n"),
    }
)
TABLES = tuple(name for name in COLUMNS if name not in (RETAINED_TABLES, LEASES))
"""The relations that a DataSource keeps as tables: those that the operator knows without asking a replica, and that do
not come and go with each transaction."""
