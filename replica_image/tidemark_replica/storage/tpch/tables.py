"""The eight tables of TPC-H, with their real types and keys."""

from __future__ import annotations

from tidemark_protocol.plan.ingestion import SourceTable
from tidemark_protocol.types import Column, SqlType

_DDL: dict[str, tuple[str, tuple[int, ...]]] = {
    "region": ("r_regionkey bigint, r_name string, r_comment string", (0,)),
    "nation": ("n_nationkey bigint, n_name string, n_regionkey bigint, n_comment string", (0,)),
    "supplier": (
        "s_suppkey bigint, s_name string, s_address string, s_nationkey bigint, s_phone string,"
        " s_acctbal decimal(15;2), s_comment string",
        (0,),
    ),
    "customer": (
        "c_custkey bigint, c_name string, c_address string, c_nationkey bigint, c_phone string,"
        " c_acctbal decimal(15;2), c_mktsegment string, c_comment string",
        (0,),
    ),
    "part": (
        "p_partkey bigint, p_name string, p_mfgr string, p_brand string, p_type string, p_size int,"
        " p_container string, p_retailprice decimal(15;2), p_comment string",
        (0,),
    ),
    "partsupp": (
        "ps_partkey bigint, ps_suppkey bigint, ps_availqty int, ps_supplycost decimal(15;2), ps_comment string",
        (0, 1),
    ),
    "orders": (
        "o_orderkey bigint, o_custkey bigint, o_orderstatus string, o_totalprice decimal(15;2), o_orderdate date,"
        " o_orderpriority string, o_clerk string, o_shippriority int, o_comment string",
        (0,),
    ),
    "lineitem": (
        "l_orderkey bigint, l_partkey bigint, l_suppkey bigint, l_linenumber int, l_quantity decimal(15;2),"
        " l_extendedprice decimal(15;2), l_discount decimal(15;2), l_tax decimal(15;2), l_returnflag string,"
        " l_linestatus string, l_shipdate date, l_commitdate date, l_receiptdate date, l_shipinstruct string,"
        " l_shipmode string, l_comment string",
        (0, 3),
    ),
}
CHANGING = frozenset({"orders", "lineitem"})


def _column(text: str) -> Column:
    name, type_ = text.strip().split(" ")
    return Column(name, SqlType.parse(type_.replace(";", ",")), nullable=False)


TABLES: dict[str, SourceTable] = {
    name: SourceTable(
        name,
        tuple(_column(part) for part in ddl.split(",")),
        keys=(key,),
        monotonic=name not in CHANGING,
    )
    for name, (ddl, key) in _DDL.items()
}
