"""TPC-H queries whose joins meet their inputs in the text's order: from its first input on, the next input of the text
that an equality connects.

Plans have what planning knows in a cluster: primary keys of the tables that do not change, and row counts of all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bench.harness.query import Facts, Planner, Shards, planned_together
from bench.harness.workload.tpch_history import TpchHistory
from tests.oracle.variants.join_orders import forced
from tidemark_planner.catalyst.analyser import Catalyst
from tidemark_planner.lir.joins.order import PossibleLookup, Preference
from tidemark_planner.planning.dataflow import plan
from tidemark_protocol.messages.planning import Planned

_KEYS: Mapping[str, tuple[str, ...]] = {
    "orders": ("o_orderkey",),
    "customer": ("c_custkey",),
    "part": ("p_partkey",),
    "supplier": ("s_suppkey",),
    "nation": ("n_nationkey",),
    "region": ("r_regionkey",),
    "partsupp": ("ps_partkey", "ps_suppkey"),
}
"""A delta changes lineitem alone."""


def facts(history: TpchHistory) -> Facts:
    """The facts that planning has of the history's tables."""
    rows = {name: max(1024, 1 << table.rows.bit_length() - 1) for name, table in history.tables.items()}
    return Facts(rows, _KEYS)


def _text(lookups: Sequence[PossibleLookup], prefer: Preference) -> PossibleLookup:
    return min(lookups, key=lambda lookup: (lookup.columns == 0, lookup.input))


def _first(inputs: int) -> int:
    return 0


def planning(session: Any) -> Planner:
    """Planning in this process."""
    own = session.newSession()
    for key, value in {"spark.sql.ansi.enabled": "true", "spark.sql.session.timeZone": "UTC"}.items():
        own.conf.set(key, value)
    catalyst = Catalyst(own)
    return lambda request: plan(catalyst, request)


def planned_in_text_order(session: Any, views: Mapping[str, str], shards: Shards, known: Facts) -> Planned:
    """The plan in the text's order, made in this process."""
    with forced(_text, _first):
        return planned_together(planning(session), views, shards, known=known)
