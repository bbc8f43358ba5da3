"""What a replica tells of itself arrives as it was sent; of a table, to whoever may take it over: whose it is, and its
columns."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa

from tidemark_persist import create_or_open
from tidemark_protocol.describe import description_from_proto, description_to_proto
from tidemark_protocol.frontier import Frontier
from tidemark_protocol.ids import GlobalId, ShardId, Time
from tidemark_protocol.pb import compute_pb2 as pb
from tidemark_protocol.responses import DescribedDataflow, Description
from tidemark_protocol.types import BIGINT, Column, SqlType
from tidemark_protocol.understanding import UNDERSTOOD
from tidemark_replica.describing import Describer
from tidemark_replica.mailbox import Mailbox
from tidemark_replica.shards import ShardHandles, told


def test_a_table_is_told_with_its_owner_and_its_columns(tmp_path: Path) -> None:
    """Whatever id it is asked about by; and the answer arrives as it was sent."""
    schema = pa.schema([("a", pa.int64()), ("b", pa.list_(pa.field("element", pa.decimal128(15, 2))))])
    create_or_open(str(tmp_path / "t"), schema, shard_id="theirs")
    handles = ShardHandles()

    seen = handles.look(ShardId("mine"), str(tmp_path / "t"))
    told_of = told(handles.reader(str(tmp_path / "t")), seen)

    decimals = SqlType.array(SqlType("decimal", 15, 2))
    assert (told_of.id, told_of.owner) == ("mine", "theirs")
    assert told_of.columns == (Column("a", BIGINT), Column("b", decimals))
    answer = Description("incarnation", None, 0, (), (), (told_of, seen))
    assert description_from_proto(description_to_proto(answer)) == answer


def test_from_when_on_a_dataflow_reads_is_told_where_it_is_known() -> None:
    """An older replica says nothing about it, which is not that it reads from zero on."""
    known = (None, Frontier.at(0), Frontier.at(9), Frontier.empty())
    dataflows = tuple(DescribedDataflow((GlobalId("i"),), "digest", Time(8), reads_from) for reads_from in known)
    answer = Description("incarnation", None, 0, dataflows, (), ())
    assert description_from_proto(description_to_proto(answer)) == answer


def test_must_say_what_it_understands_of_plans() -> None:
    """All of it: who does not say so is not told of what needs it."""
    mailbox = cast(Mailbox, SimpleNamespace(call=lambda asked: asked()))
    describer = Describer(mailbox, ShardHandles(), lambda: None, lambda: (0, (), ()))
    assert describer(cast(Any, pb.DescribeRequest())).understands == UNDERSTOOD
