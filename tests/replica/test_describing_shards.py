"""What a replica tells of a table to whoever may take it over: whose it is, and its columns."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from tidemark_persist import create_or_open
from tidemark_protocol.describe import description_from_proto, description_to_proto
from tidemark_protocol.ids import ShardId
from tidemark_protocol.responses import Description
from tidemark_protocol.types import BIGINT, Column, SqlType
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
