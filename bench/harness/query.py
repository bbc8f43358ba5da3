"""The plan of a query over shards, by the planner, which is a process of its own as it is for the operator."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import grpc
import pyarrow as pa

from tidemark_operator.planning.assemble import Named, with_as_of
from tidemark_operator.planning.assemble import describe as assemble
from tidemark_operator.planning.client import decode_outcome
from tidemark_protocol.check.plan import check_dataflow
from tidemark_protocol.ids import GlobalId, ShardId, Time
from tidemark_protocol.messages.planning import (
    Catalogue,
    ExportRequest,
    Planned,
    PlanRequest,
    Refused,
    Relation,
    ViewRequest,
)
from tidemark_protocol.pb import planner_pb2, planner_pb2_grpc
from tidemark_protocol.plan.codec import encode
from tidemark_protocol.plan.dataflow import DataflowDescription, ShardMetadata
from tidemark_protocol.types import Column
from tidemark_replica.values.arrow_types import sql_type

_SECONDS = 600.0
Planner = Callable[[PlanRequest], Planned | Refused]


@contextmanager
def planner(folder: Path) -> Iterator[Planner]:
    """The planner's process, for as long as the block lasts."""
    address = f"unix://{folder / 'planner.sock'}"
    with (folder / "planner.log").open("wb") as log:
        command = [sys.executable, "-m", "tidemark_planner", "--listen", address, "--plan-timeout", f"{_SECONDS:g}"]
        process = subprocess.Popen(command, stderr=log)
    try:
        with grpc.insecure_channel(address) as channel:
            stub = planner_pb2_grpc.PlannerStub(channel)  # type: ignore[no-untyped-call]

            def plan(request: PlanRequest) -> Planned | Refused:
                asked = planner_pb2.PlanRequest(request=encode(request))
                outcome = stub.Plan(asked, wait_for_ready=True, timeout=_SECONDS).outcome
                return decode_outcome(outcome, Planned)

            yield plan
    finally:
        process.terminate()
        process.wait(timeout=30)


Shards = Mapping[str, tuple[Path, pa.Schema]]
Key = tuple[str, ...] | None


@dataclass(frozen=True)
class Facts:
    """The facts that planning has of tables, by their names: row counts, and the columns of a primary key."""

    rows: Mapping[str, int] = field(default_factory=dict)
    keys: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


NOTHING_KNOWN = Facts()


def describe(plan: Planner, sql: str, shards: Shards, as_of: int, key: Key = None) -> DataflowDescription:
    """The query over shards, by table name, exported as an index by these columns, or by its default key."""
    return described(planned(plan, sql, shards, key), as_of)


def planned(plan: Planner, sql: str, shards: Shards, key: Key = None) -> Planned:
    """The planner's plan. Raises ValueError if the planner refuses the text."""
    return planned_together(plan, {"view": sql}, shards, key)


def planned_together(
    plan: Planner, views: Mapping[str, str], shards: Shards, key: Key = None, known: Facts = NOTHING_KNOWN
) -> Planned:
    """The plan of one Dataflow with these views, by name, each exported as an index. Raises ValueError as `planned`."""
    relations = tuple(_relation(name, *shard, known) for name, shard in shards.items())
    tables = {name: f"tpch.{name}" for name in shards}
    asked = tuple(ViewRequest(name, sql.format_map(tables)) for name, sql in views.items())
    exports = tuple(ExportRequest(f"index-{name}", "index", name, key) for name in views)
    answer = plan(PlanRequest("bench", asked, exports, Catalogue(relations), "bench/"))
    if isinstance(answer, Refused):
        raise ValueError(f"the query cannot be planned: {answer.diagnostics[0].message}")
    return answer


def described(answer: Planned, as_of: int, name: str = "bench") -> DataflowDescription:
    """The query as a dataflow of its own, hydrated at a time."""
    description, _ = assemble(Named(name, name), answer, {})
    description = with_as_of(description, Time(as_of))
    check_dataflow(description)
    return description


def _relation(name: str, location: Path, schema: pa.Schema, known: Facts) -> Relation:
    columns = tuple(Column(f.name, sql_type(f.type), nullable=False) for f in schema)
    shard = ShardMetadata(ShardId(name), str(location), columns)
    key = known.keys.get(name)
    keys = (tuple(schema.get_field_index(column) for column in key),) if key else ()
    return Relation("tpch", name, GlobalId(name), columns, shard, keys, rows=known.rows.get(name))
