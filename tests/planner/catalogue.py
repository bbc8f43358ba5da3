"""The catalogue that the planner's tests plan against: TPC-H's tables and a few small relations."""

from __future__ import annotations

from tidemark_protocol.ids import GlobalId, ShardId
from tidemark_protocol.messages.planning import (
    Catalogue,
    ExportRequest,
    PlanRequest,
    Relation,
    SharedIndex,
    ViewRequest,
)
from tidemark_protocol.plan.dataflow import ShardMetadata
from tidemark_protocol.types import Column, SqlType

_TABLES = {
    "tpch.lineitem": """l_orderkey bigint!, l_partkey bigint!, l_suppkey bigint!, l_linenumber int!,
        l_quantity decimal(15 2)!, l_extendedprice decimal(15 2)!, l_discount decimal(15 2)!, l_tax decimal(15 2)!,
        l_returnflag string!, l_linestatus string!, l_shipdate date!, l_commitdate date!, l_receiptdate date!,
        l_shipinstruct string!, l_shipmode string!, l_comment string!""",
    "tpch.orders": """o_orderkey bigint!, o_custkey bigint!, o_orderstatus string!, o_totalprice decimal(15 2)!,
        o_orderdate date!, o_orderpriority string!, o_clerk string!, o_shippriority int!, o_comment string!""",
    "tpch.customer": """c_custkey bigint!, c_name string!, c_address string!, c_nationkey bigint!, c_phone string!,
        c_acctbal decimal(15 2)!, c_mktsegment string!, c_comment string!""",
    "tpch.supplier": """s_suppkey bigint!, s_name string!, s_address string!, s_nationkey bigint!, s_phone string!,
        s_acctbal decimal(15 2)!, s_comment string!""",
    "tpch.nation": "n_nationkey bigint!, n_name string!, n_regionkey bigint!, n_comment string!",
    "tpch.region": "r_regionkey bigint!, r_name string!, r_comment string!",
    "tpch.part": """p_partkey bigint!, p_name string!, p_mfgr string!, p_brand string!, p_type string!, p_size int!,
        p_container string!, p_retailprice decimal(15 2)!, p_comment string!""",
    "tpch.partsupp": """ps_partkey bigint!, ps_suppkey bigint!, ps_availqty int!, ps_supplycost decimal(15 2)!,
        ps_comment string!""",
    "s.t": """k bigint!, x int, m decimal(15 2)!, s string, d date, ts timestamp, f double, b boolean,
        n timestamp_ntz, h smallint, y tinyint, g float, v binary""",
    "s.u": "k bigint!, y int, s string",
    "my-source.v": "k bigint!, y int",
    "staff.people": "user string!, current_user int, localtime int, `Größe x` double",
    "clicks.log": "id bigint!, page string!",
    "totals.totals": "k bigint!, n bigint!",
    "live.live": "k bigint!, n bigint!",
    "far.far": "k bigint!, n bigint!",
    "sales.by_customer": "customer bigint, product bigint, amount decimal(15 2)!",
    "sales.by_product": "customer bigint, product bigint, amount decimal(15 2)!",
    "sales.all": "customer bigint, product bigint, amount decimal(15 2)!",
}
_KEYS: dict[str, tuple[tuple[int, ...], ...]] = {
    "tpch.lineitem": ((0, 3),),
    "tpch.partsupp": ((0, 1),),
    **{f"tpch.{t}": ((0,),) for t in ("orders", "customer", "supplier", "nation", "region", "part")},
    "totals.totals": ((0,),),
    "live.live": ((0,),),
}
# Dataflows of one export, which their own name also names; `live` is an index, and so is `far`, of another instance.
# `sales` exports one view three times: as two indexes and as a materialized view.
_SHORT = ("totals.totals", "live.live", "far.far")
_INDEXES = {"live.live": (0,), "far.far": (0,), "sales.by_customer": (0,), "sales.by_product": (1,)}


def _column(text: str) -> Column:
    name, of = text.rsplit(maxsplit=1) if text.startswith("`") else text.split(maxsplit=1)
    name = name.strip("`")
    return Column(name, SqlType.parse(of.rstrip("!").replace(" ", ",")), nullable=not of.endswith("!"))


def _relation(dotted: str, columns_text: str) -> Relation:
    parent, name = dotted.split(".")
    columns = tuple(_column(c.strip()) for c in columns_text.split(","))
    shard = None if dotted in _INDEXES else ShardMetadata(ShardId(dotted), f"shards/{dotted}", columns)
    keys = _KEYS.get(dotted, ())
    return Relation(
        parent,
        name,
        GlobalId(dotted),
        columns,
        shard,
        keys,
        monotonic=parent == "clicks",
        short=dotted in _SHORT,
        index_key=_INDEXES.get(dotted),
        indexes=() if parent == "far" else _indexes(parent),
    )


def _indexes(parent: str) -> tuple[SharedIndex, ...]:
    own = [(dotted, key) for dotted, key in _INDEXES.items() if dotted.startswith(f"{parent}.")]
    return tuple(SharedIndex(GlobalId(dotted), GlobalId(f"{parent}/object"), key) for dotted, key in own)


CATALOGUE = Catalogue(tuple(_relation(name, columns) for name, columns in _TABLES.items()))


def one_view(sql: str, key: tuple[str, ...] | None = None) -> PlanRequest:
    """A Dataflow `d` with one view, `v`, exported as an index."""
    return PlanRequest("d", (ViewRequest("v", sql),), (ExportRequest("v", "index", "v", key),), CATALOGUE, "u1/")
