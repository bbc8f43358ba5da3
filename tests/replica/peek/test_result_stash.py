"""Large answers: in memory up to a bound, then in an unnamed file, with a bound on all of them."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tidemark_persist import create_or_open
from tidemark_protocol.ids import GlobalId, ShardId, Time
from tidemark_protocol.messages.commands import Peek, ShardTarget
from tidemark_protocol.messages.planning import Finishing
from tidemark_protocol.messages.responses import PeekRows
from tidemark_protocol.plan.dataflow import ShardMetadata
from tidemark_protocol.plan.lir import MapFilterProject, OrderKey
from tidemark_protocol.types import BIGINT, Column
from tidemark_replica.arrangement.batches.batch_cache import BatchCache
from tidemark_replica.errors import StashFull
from tidemark_replica.events.jobs import JobCancelled
from tidemark_replica.peek.peek_reader import AnswerLimits, PeekReader
from tidemark_replica.peek.result_stash import ResultSpool, ResultStash, StashedResult
from tidemark_replica.render.errors import CollectionInError, ResultTooLarge

ROWS = 100_000
COLUMNS = (Column("n", BIGINT), Column("m", BIGINT))


@pytest.fixture(scope="module")
def shard(tmp_path_factory: pytest.TempPathFactory) -> ShardMetadata:
    """`n` of 0..ROWS, each with `m` = ROWS - n; from 20 on one row cannot be computed."""
    location = str(tmp_path_factory.mktemp("stash") / "v1")
    schema = pa.schema([pa.field(c.name, pa.int64()) for c in COLUMNS])
    made = create_or_open(location, schema, shard_id=ShardId("s"))
    n = np.arange(ROWS, dtype=np.int64)
    at, one = np.full(ROWS, 5, np.int64), np.ones(ROWS, np.int64)
    names = ["n", "m", "__time", "__diff", "__error"]
    rows = pa.table([n, ROWS - n, at, one, pa.nulls(ROWS, pa.string())], names=names)
    made.compare_and_append(rows, expected_upper=0, new_upper=20, term=1)
    error = json.dumps({"code": "DIVIDE_BY_ZERO", "expression": "1 / n"})
    wrong = pa.table([pa.nulls(1, pa.int64()), pa.nulls(1, pa.int64()), [20], [1], [error]], names=names)
    made.compare_and_append(wrong, expected_upper=20, new_upper=30, term=1)
    return ShardMetadata(ShardId("s"), location, COLUMNS)


def peek_of(shard: ShardMetadata, at: int = 9, finishing: Finishing = Finishing()) -> Peek:  # noqa: B008
    every = MapFilterProject.identity(shard.schema)
    return Peek("p", ShardTarget(GlobalId("s"), shard), Time(at), every, finishing, COLUMNS)


def reader(stash: ResultStash) -> PeekReader:
    def none() -> Any:
        raise AssertionError("this peek needs no job")

    return PeekReader(none, lambda id: None, BatchCache(Path()), stash)


def rows(answer: PeekRows | StashedResult) -> list[tuple[int, ...]]:
    """In pieces, as a reader of the stash gets them."""
    data = answer.data if isinstance(answer, PeekRows) else b"".join(pieces(answer.spool))
    table = pa.ipc.open_stream(data).read_all()
    assert table.num_rows == answer.row_count
    return list(zip(*(c.to_pylist() for c in table.columns), strict=True))


def pieces(spool: ResultSpool) -> Iterator[bytes]:
    offset = 0
    while piece := spool.read(offset, 100_001):
        offset += len(piece)
        yield piece


EVERY = [(n, ROWS - n) for n in range(ROWS)]
BY_M = (OrderKey(1),)
FINISHINGS = {
    "all": (Finishing(), EVERY),
    "ordered": (Finishing(BY_M), EVERY[::-1]),
    "ordered, some, of one column": (Finishing(BY_M, 90_000, 7, shown=1), [(n,) for n, _ in EVERY[::-1][7:90_007]]),
    "ordered, past an offset": (Finishing(BY_M, None, 7), EVERY[::-1][7:]),
}


@pytest.mark.parametrize("above", [0, 1000, 1 << 30, None])
@pytest.mark.parametrize("name", FINISHINGS)
def test_agree_an_answer_is_the_same_stashed_or_not(
    name: str, above: int | None, shard: ShardMetadata, tmp_path: Path
) -> None:
    """Rows, order, limit and offset; past the bound it is on disk, and its room is counted until it is let go."""
    finishing, expected = FINISHINGS[name]
    stash = ResultStash(tmp_path / "stash")
    answer = reader(stash)(peek_of(shard, finishing=finishing), AnswerLimits(1 << 30, above), lambda: False)
    found = rows(answer)

    assert (found if finishing.order else sorted(found)) == expected
    assert isinstance(answer, StashedResult) == (above is not None and above <= 1000)
    if isinstance(answer, StashedResult):
        assert stash.bytes_on_disk == answer.spool.size > 700_000
        answer.spool.close()
    assert stash.bytes_on_disk == 0


def test_without_an_order_limit_and_offset_count_over_all_batches(shard: ShardMetadata, tmp_path: Path) -> None:
    """The answer has as many different rows as there should be, wherever batches end."""
    finishing = Finishing(limit=70_000, offset=20_000)
    answer = reader(ResultStash(tmp_path))(
        peek_of(shard, finishing=finishing), AnswerLimits(1 << 30, 1000), lambda: False
    )

    found = rows(answer)
    assert len(found) == len(set(found)) == 70_000
    assert set(found) <= set(EVERY)


def test_crash_an_unfinished_stash_leaves_nothing(shard: ShardMetadata, tmp_path: Path) -> None:
    """Too large, in error, not wanted any more, or no room on disk: the reason, and all room is free."""
    stash, wanted = ResultStash(tmp_path, limit=1_500_000), iter([False, True])
    cases: list[tuple[type[Exception], str, Any]] = [
        (ResultTooLarge, "max size of 1000000 bytes.*spec.maxResultSize", (AnswerLimits(1_000_000, 0), lambda: False)),
        (JobCancelled, "peek p", (AnswerLimits(1 << 30, 0), lambda: next(wanted))),
        (StashFull, "the limit is 1500000", (AnswerLimits(1 << 30, 0), lambda: False)),
    ]
    for kind, says, (limits, stopped) in cases:
        with pytest.raises(kind, match=says):
            reader(stash)(peek_of(shard), limits, stopped)
        assert stash.bytes_on_disk == 0
    large = ResultStash(tmp_path)
    with pytest.raises(CollectionInError, match="DIVIDE_BY_ZERO"):
        reader(large)(peek_of(shard, at=25), AnswerLimits(1 << 30, 0), lambda: False)
    assert large.bytes_on_disk == 0


KILLED = """
import os, signal, sys
from pathlib import Path
from tidemark_replica.peek.result_stash import ResultSpool, ResultStash
spool = ResultSpool(ResultStash(Path(sys.argv[1])), spill_above=0)
spool.write(bytes(100_000))
assert spool.on_disk
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_crash_a_killed_replica_leaves_no_files(tmp_path: Path) -> None:
    """They have no names: there is nothing to sweep."""
    done = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path / "stash")], check=False)

    assert done.returncode == -9
    assert list((tmp_path / "stash").iterdir()) == []


def test_must_give_nothing_past_the_end_of_an_answer(tmp_path: Path) -> None:
    """However far: the kernel takes no offset near 2^63."""
    stash = ResultStash(tmp_path)
    spool = ResultSpool(stash, spill_above=0)
    spool.write(b"answer")
    stash.keep("p", StashedResult(spool, 1))

    assert [stash.read_piece("p", offset) for offset in (5, 6, 2**62, 2**63 - 1)] == [b"r", b"", b"", b""]


def test_a_stash_of_the_same_uuid_replaces_the_first(tmp_path: Path) -> None:
    """An asker that was replaced by another cannot keep its place."""
    stash = ResultStash(tmp_path)
    for content in (b"one", b"another"):
        spool = ResultSpool(stash, spill_above=0)
        spool.write(content)
        stash.keep("p", StashedResult(spool, 1))

    assert stash.read_piece("p", 0) == b"another"
    assert stash.bytes_on_disk == len(b"another")
