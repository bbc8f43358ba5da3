"""Who follows a shard, and what an old look at it is worth."""

from __future__ import annotations

from pathlib import Path

from tests.replica.loop import Loop
from tests.replica.tables import Table
from tidemark_protocol.ids import ShardId


def test_a_newcomer_does_not_take_an_old_looks_word_that_there_is_no_shard(tmp_path: Path) -> None:
    """It was looked for too early, and then more and more rarely; whoever comes after it was made sees it at once."""
    loop, id, location = Loop(), ShardId("late"), str(tmp_path / "late")
    loop.watch.follow(id, location, "dataflow")
    loop.run_until(lambda: loop.watch.seen(id))
    early = loop.watch.seen(id)
    assert early is not None
    assert not early.exists
    Table(tmp_path, "late")

    loop.watch.follow(id, location, "peek")

    assert loop.watch.seen(id) is None
    loop.run_until(lambda: loop.watch.seen(id))
    fresh = loop.watch.seen(id)
    assert fresh is not None
    assert fresh.exists
