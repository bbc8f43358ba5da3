"""Error rows of malformed values by key, from the shard alone: no broker runs."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from tidemark_persist import Shard, create_or_open
from tidemark_replica.storage.kafka.by_key.errors import KeyedErrors
from tidemark_replica.storage.update_rows import error_rows

SCHEMA = pa.schema([("id", pa.int64())])
KEY = [pa.array([1], pa.int64())]


def append(shard: Shard, time: int, texts: list[str]) -> None:
    rows = pa.Table.from_batches([error_rows(SCHEMA, time, pa.array(texts, pa.string()))])
    shard.compare_and_append(rows, expected_upper=time, new_upper=time + 1, term=1)


def test_an_error_of_before_goes_although_the_table_stood_still_first(tmp_path: Path) -> None:
    """Another process confirms a binding of a table that it has not read, and then its key is written again."""
    shard = create_or_open(str(tmp_path / "t"), SCHEMA, shard_id="t")
    first = KeyedErrors(shard)
    first.refresh()
    first.add(KEY, ["t/0@0"])
    ((text, diff),) = first.updates()
    assert diff == 1
    append(shard, 0, [text])
    second = KeyedErrors(shard)
    append(shard, 1, [])
    second.bound(2)
    second.refresh()
    second.add(KEY, [None])
    assert second.updates() == [(text, -1)]
