"""The bound ahead of the clock to which an ingestion may mint is that to which the operator lets compaction follow."""

from __future__ import annotations

from pathlib import Path

from tests.storage.ingestion_samples import description, tpch_tables
from tidemark_operator.controller.frontiers.read_policy import MAX_AHEAD_MS, bounded
from tidemark_persist import ShardWriters
from tidemark_protocol.frontier import Frontier
from tidemark_protocol.ids import ShardId, Time, WriterTerm
from tidemark_protocol.plan.ingestion import TpchSource
from tidemark_replica.storage.clock import ControllerClock, wall_clock_ms
from tidemark_replica.storage.ingester import AHEAD_MS, Ingester
from tidemark_replica.storage.tpch.source import TpchIngestion

SET_BACK_MS = 5_000
SPEC = TpchSource("0.001", 200, 7)


def test_all_that_may_be_minted_is_within_the_clock_bound(tmp_path: Path) -> None:
    """By a replica whose clock is so far ahead that the operator's bounds it, and by an operator whose clock was set
    back since."""
    started = wall_clock_ms()
    one = ingester(tmp_path)
    bound = ControllerClock(Time(started), MAX_AHEAD_MS).bound()
    assert one.tick(bound)
    one.run_ahead(bound)

    passed = bound - MAX_AHEAD_MS - started
    for shard, upper in uppers(one).items():
        assert upper == Frontier.at(bound + 1), shard
        assert bounded(upper, started + passed - SET_BACK_MS) == upper


def test_where_clocks_agree_tables_run_ahead_as_far_as_they_want(tmp_path: Path) -> None:
    """The bound is no reason for a commit at every tick."""
    one = ingester(tmp_path)
    clock = ControllerClock(Time(wall_clock_ms()), MAX_AHEAD_MS)
    assert one.tick(clock.controller_now)
    one.run_ahead(clock.bound())

    assert uppers(one)[ShardId("nation")] == Frontier.at(clock.controller_now + 1 + AHEAD_MS)


def ingester(root: Path) -> Ingester:
    tables = tpch_tables("orders", "nation")
    source = TpchIngestion(SPEC, root / "cache")
    one = Ingester(description(root, SPEC, tables), WriterTerm(1), source, ShardWriters())
    one.recover()
    return one


def uppers(one: Ingester) -> dict[ShardId, Frontier]:
    return {table.shard.shard_id: Frontier.decode(shard.state().upper) for table, shard in one.table_shards()}
