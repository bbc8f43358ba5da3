"""Peeks of indexes and shards of a real replica process."""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.replica.conversations import reaches, started, unique
from tests.replica.plans import SCHEMA, copies, shard
from tests.replica.process import ScriptedClient, wait_until
from tests.replica.tables import Table
from tidemark_protocol.ids import GlobalId, Time
from tidemark_protocol.messages.commands import CancelPeek, IndexTarget, Peek, ShardTarget, UpdateConfiguration
from tidemark_protocol.messages.planning import Finishing
from tidemark_protocol.messages.responses import PeekError, PeekResponse, PeekRows, PeekStashed, Response, Status
from tidemark_protocol.plan.expr import Call, ColumnRef, Literal
from tidemark_protocol.plan.lir import MapFilterProject, Mfp, OrderKey
from tidemark_protocol.types import BIGINT, BOOLEAN, DOUBLE, STRING, Column

pytestmark = pytest.mark.spark

WHOLE, UNFINISHED = MapFilterProject(SCHEMA), Finishing()


def peek_of(
    target: IndexTarget | ShardTarget,
    at: int,
    mfp: MapFilterProject = WHOLE,
    finishing: Finishing = UNFINISHED,
    **more: Any,
) -> Peek:
    columns = tuple(Column(f"x{i}", c.type) for i, c in enumerate(mfp.output))
    return Peek(uuid.uuid4().hex, target, Time(at), mfp, finishing, columns, **more)


def answer(client: ScriptedClient, peek: Peek) -> list[tuple[Any, ...]] | str:
    """The rows, or the error."""
    client.send(peek)
    found = client.wait_for(
        lambda responses: [r for r in responses if isinstance(r, PeekResponse) and r.uuid == peek.uuid]
    )
    result = found[0].result
    if isinstance(result, PeekError):
        return result.message
    assert isinstance(result, PeekRows)
    table = pa.ipc.open_stream(result.data).read_all()
    assert table.num_rows == result.row_count
    return list(zip(*(c.to_pylist() for c in table.columns), strict=True))


N, S = ColumnRef(0, BIGINT), ColumnRef(1, STRING)
POSITIVE = Call(">", (N, Literal("1", BIGINT)), BOOLEAN)
INVERSE = Call("/", (Literal("1.0", DOUBLE), Call("cast", (N,), DOUBLE)), DOUBLE)


def test_peeks_read_indexes_and_shards(connect: Callable[..., ScriptedClient], tmp_path: Path) -> None:
    """Whole, by key, through filters, ordered and limited, at several times; and why a peek is refused."""
    table, view = Table(tmp_path, "t"), shard("v", str(tmp_path))
    table.append(10, ((1, "a"), 3, 2), ((2, None), 5, 1), ((3, "c"), 7, 1), ((1, "a"), 8, -1))
    dataflow = copies(unique("d"), 4, source=table.metadata, index=unique("i"), view=view)
    client = connect(*started(dataflow))
    index, kept = IndexTarget(dataflow.export_ids[0]), ShardTarget(dataflow.export_ids[1], view)
    client.wait_for(reaches("write", dataflow.export_ids[1], 10))
    for target in (index, kept):
        assert sorted(answer(client, peek_of(target, 9)), key=repr) == [(1, "a"), (2, None), (3, "c")]
        assert answer(client, peek_of(target, 4)) == [(1, "a"), (1, "a")]
        filtered = MapFilterProject(SCHEMA, predicates=(POSITIVE,), projection=(1,))
        assert sorted(answer(client, peek_of(target, 9, filtered)), key=repr) == [("c",), (None,)]
        descending = Finishing((OrderKey(0, descending=True),), limit=1, offset=1, shown=1)
        assert answer(client, peek_of(target, 9, finishing=descending)) == [(2,)]
        # said by whoever notices first: the command loop, or the reader of a shard whose since has just moved
        assert re.search(r"can be read from \{4\} on|its since is 4\b", str(answer(client, peek_of(target, 3))))
    assert answer(client, peek_of(index, 9, literals=((Literal("3", BIGINT),), (Literal("7", BIGINT),)))) == [(3, "c")]
    client.send(UpdateConfiguration(max_result_bytes=10))
    assert "exceeds max size of 10" in str(answer(client, peek_of(index, 9)))
    client.send(UpdateConfiguration(max_result_bytes=1 << 20))
    assert "not an index" in str(answer(client, peek_of(IndexTarget(GlobalId("gone")), 9)))


def test_an_answer_past_a_bound_is_fetched(connect: Callable[..., ScriptedClient], tmp_path: Path) -> None:
    """The same rows as in a message, from any offset; gone with CancelPeek, and with the client."""
    table = Table(tmp_path, "t")
    table.append(10, *(((n, "x"), 3, 1) for n in range(5000)))
    dataflow = copies(unique("d"), 4, source=table.metadata, index=unique("i"))
    client = connect(*started(dataflow))
    index = IndexTarget(dataflow.export_ids[0])
    client.wait_for(reaches("output", dataflow.export_ids[0], 10))
    client.send(UpdateConfiguration(stash_above_bytes=10_000))
    asked = peek_of(index, 9)
    kept = stashed(client, asked)
    data = client.fetch(asked.uuid, 0)
    rows = pa.ipc.open_stream(data).read_all()
    assert len(data) == kept.size
    assert (rows.num_rows, sorted(rows.column(0).to_pylist())) == (kept.row_count, list(range(5000)))
    assert client.fetch(asked.uuid, 9_000) == data[9_000:]
    assert client.fetch(asked.uuid, kept.size) == b""
    client.send(CancelPeek(asked.uuid))
    wait_until(lambda: client.fetch(asked.uuid, 0) is None)

    later = peek_of(index, 9)
    stashed(client, later)
    other = connect(*started(dataflow))
    wait_until(lambda: other.fetch(later.uuid, 0) is None)


def stashed(client: ScriptedClient, peek: Peek) -> PeekStashed:
    client.send(peek)
    found = client.wait_for(
        lambda responses: [r for r in responses if isinstance(r, PeekResponse) and r.uuid == peek.uuid]
    )
    assert isinstance(found[0].result, PeekStashed)
    return found[0].result


def test_an_error_in_the_data_is_told_and_goes_away(connect: Callable[..., ScriptedClient], tmp_path: Path) -> None:
    """Peeks show it while it stands, a Status counts it, the corrected row repairs the view."""
    table = Table(tmp_path, "t")
    table.append(10, ((1, "a"), 3, 1), ((0, "b"), 5, 1))
    dataflow = copies(unique("d"), 4, source=table.metadata, index=unique("i"))
    mfp = MapFilterProject(SCHEMA, expressions=(INVERSE,), projection=(1, 2))
    plan = Mfp(dataflow.objects[0].plan, mfp)
    columns = (Column("s", STRING), Column("x", DOUBLE))
    dataflow = replace(
        dataflow,
        objects=(replace(dataflow.objects[0], plan=plan),),
        index_exports=(replace(dataflow.index_exports[0], columns=columns),),
    )
    client = connect(*started(dataflow))
    id = dataflow.export_ids[0]
    client.wait_for(reaches("output", id, 10))
    whole = MapFilterProject(mfp.output)
    assert "DIVIDE_BY_ZERO" in str(answer(client, peek_of(IndexTarget(id), 9, whole)))
    client.wait_for(lambda responses: erroring(responses, id) == "1")
    table.append(20, ((0, "b"), 12, -1), ((4, "b"), 12, 1))

    assert sorted(answer(client, peek_of(IndexTarget(id), 19, whole))) == [("a", 1.0), ("b", 0.25)]
    client.wait_for(lambda responses: erroring(responses, id) == "0")


def erroring(responses: list[Response], id: GlobalId) -> str | None:
    found = [r.fields["errors"] for r in responses if isinstance(r, Status) and (r.id, r.kind) == (id, "erroring")]
    return found[-1] if found else None
