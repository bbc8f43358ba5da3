"""Staying small: checkpoints, log clean-up, compaction and vacuum, with readers and writers at work."""

from __future__ import annotations

import json
from threading import Event, Thread

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.persist.model import COLUMNS, batch, changes, contents
from tests.s3_fixtures import Place
from tests.waiting import BOUND
from tidemark_persist import DIFF, TIME, DataFile, MaintenancePolicy, Shard, create_or_open, delete_shard
from tidemark_persist.maintenance.compaction import GROWTH, choose, rewrite, run_of
from tidemark_persist.maintenance.maintenance import Checkpoint, Compact, Vacuum
from tidemark_persist.times import Time

NO_WAIT = MaintenancePolicy(
    checkpoint_commits=5, compact_runs=4, vacuum_grace_seconds=0.0, orphan_age_seconds=0.0, log_retention_seconds=0
)


def open_at(place: Place, policy: MaintenancePolicy) -> Shard:
    """A handle with this policy."""
    return create_or_open(place.location, COLUMNS, shard_id="s", policy=policy)


def fill(shard: Shard, ticks: int, tidy: bool = False) -> None:
    """A counter: each tick inserts its row and takes back the last one's."""
    for _ in range(ticks):
        now = shard.refresh().upper
        rows = [(("n", now), now, 1)] + ([(("n", now - 1), now, -1)] if now else [])
        shard.compare_and_append(batch(rows), expected_upper=now, new_upper=now + 1, term=1)
        if tidy:
            run_all(shard)


def run_all(shard: Shard) -> None:
    """Run all tasks that are due now."""
    for work in shard.maintenance_due():
        shard.run_maintenance(work)


def data_files(place: Place) -> set[str]:
    """The names of all data files there are, referred to or not."""
    return {path.name for path in place.folder.glob("*.parquet")}


def live_files(shard: Shard) -> set[str]:
    """The names of those referred to."""
    return {part.path for part in shard.snapshot_parts(shard.refresh().upper - 1)}


def sizes(*runs: int) -> list[DataFile]:
    """Files that differ in size only."""
    return [DataFile(f"f{i}.parquet", size, 1, Time(0), Time(0)) for i, size in enumerate(runs)]


@pytest.mark.parametrize(
    ("runs", "merged"),
    [
        ([], []),
        ([1, 1, 1], []),
        ([1, 1, 1, 1], [1, 1, 1, 1]),
        ([1, 1, 1, 1, 9], [1, 1, 1, 1]),
        ([1, 1, 1, 1, 8, 70], [1, 1, 1, 1, 8]),
        ([1, 50, 60, 70, 80, 1000], [1, 50, 60, 70, 80]),
        ([1, 3, 10, 30, 100, 300], []),
    ],
)
def test_compaction_merges_the_smallest_tier_that_has_gathered(runs: list[int], merged: list[int]) -> None:
    """Files that outweigh all smaller ones stay until enough has come together below them."""
    assert [file.size for file in choose(sizes(*runs), 4)] == merged


def test_compaction_keeps_files_few_and_rewrites_seldom() -> None:
    """A thousand appends of one size: a logarithmic number of files, each byte rewritten a few times."""
    files: list[DataFile] = []
    rewritten = most = 0
    for tick in range(1000):
        files.append(DataFile(f"a{tick}.parquet", 10, 1, Time(0), Time(0)))
        if chosen := choose(files, 8):
            total = sum(file.size for file in chosen)
            rewritten += total
            files = [file for file in files if file not in chosen]
            files.append(DataFile(f"c{tick}.parquet", total, 1, Time(0), Time(0)))
        most = max(most, len(files))
    assert most <= 40
    assert rewritten <= 10_000 * 12
    assert GROWTH > 1


def test_compaction_of_a_run_of_several_files_counts_it_as_one() -> None:
    """The shares of one compaction together are what was merged."""
    shares = [DataFile(f"run.{i}.parquet", 10, 1, Time(0), Time(0)) for i in range(6)]
    assert {run_of(file.path) for file in shares} == {"run"}
    assert choose(shares, 4) == ()


@pytest.mark.parametrize("rows_in_memory", [1, 7, 1_000_000])
def test_compaction_consolidates_up_to_the_since(place: Place, rows_in_memory: int) -> None:
    """Updates that cancelled out before the since are gone; times after it are untouched."""
    shard = open_at(place, MaintenancePolicy())
    fill(shard, 20)
    files = tuple(shard._log.state.files())
    merged = rewrite(shard._log.storage, files, shard._table_schema, Time(15), rows_in_memory)

    expected = {(("n", 15), 15): 1}
    for tick in range(16, 20):
        expected |= {(("n", tick), tick): 1, (("n", tick - 1), tick): -1}
    assert sum(file.rows for file in merged) == len(expected)
    assert (min(file.min_time for file in merged), max(file.max_time for file in merged)) == (15, 19)


def test_compaction_keeps_insertions_and_retractions_in_row_groups_of_their_own(place: Place) -> None:
    """A reader finds the retractions by statistics, without reading insertions."""
    shard = open_at(place, MaintenancePolicy())
    fill(shard, 20)
    files = tuple(shard._log.state.files())
    (merged,) = rewrite(shard._log.storage, files, shard._table_schema, Time(15), 1_000_000)

    with shard._log.storage.open_input(merged.path) as source, pq.ParquetFile(source) as file:
        groups = [set(file.read_row_group(g).column(DIFF).to_pylist()) for g in range(file.num_row_groups)]
    assert groups == [{1}, {-1}]


@pytest.mark.parametrize("type", [pa.string(), pa.list_(pa.int64())])
def test_compaction_puts_rows_with_the_same_first_column_side_by_side(place: Place, type: pa.DataType) -> None:
    """Statistics then rule out row groups; a nested column has none, and only times are in order."""
    schema = pa.schema([("k", type)])
    shard = create_or_open(place.location, schema, shard_id="s", policy=MaintenancePolicy())
    keys = [str(i % 10) if pa.types.is_string(type) else [i % 10] for i in range(100)]
    updates = pa.table({"k": pa.array(keys, type), TIME: [i // 50 for i in range(100)], DIFF: [1] * 100})
    shard.compare_and_append(updates, expected_upper=0, new_upper=2, term=1)
    files = tuple(shard._log.state.files())
    (merged,) = rewrite(shard._log.storage, files, shard._table_schema, Time(0), 1_000_000)

    with shard._log.storage.open_input(merged.path) as source:
        rows = pq.read_table(source)
    found = list(
        zip(rows.column(TIME).to_pylist(), rows.column("k").to_pylist(), rows.column(DIFF).to_pylist(), strict=True)
    )
    if pa.types.is_string(type):
        assert found == [(time, str(k), 5) for time in (0, 1) for k in range(10)]
    else:
        assert sorted(found) == [(time, [k], 5) for time in (0, 1) for k in range(10)]


@pytest.mark.broad
def test_log_files_and_data_stay_bounded(place: Place) -> None:
    """Ticking for ever: the log, the files and the rows are as many after 60 ticks as after 15."""
    shard = open_at(place, MaintenancePolicy(vacuum_grace_seconds=0.0, log_retention_seconds=0))
    log = place.folder / "_delta_log"
    for _ in range(4):
        for _ in range(15):
            fill(shard, 1, tidy=True)
            shard.downgrade_since(max(0, shard.state().upper - 5))
        assert len(list(log.iterdir())) < 40
        assert len(data_files(place)) < 20
        assert len(live_files(shard)) <= 10

    assert contents(shard.snapshot(59)) == {("n", 59): 1}


@pytest.mark.slow
def test_log_files_and_data_stay_bounded_over_a_thousand_commits(place: Place) -> None:
    """Graces and retention as in production, only shorter: after 1,040 ticks no more is left than after 260."""
    shard = open_at(place, MaintenancePolicy(vacuum_grace_seconds=0.2, log_retention_seconds=1))
    log = place.folder / "_delta_log"
    measured = []
    for _ in range(4):
        for _ in range(260):
            fill(shard, 1, tidy=True)
            shard.downgrade_since(max(0, shard.state().upper - 5))
        measured.append((len(list(log.iterdir())), len(data_files(place)), len(live_files(shard))))

    assert contents(shard.snapshot(1039)) == {("n", 1039): 1}
    for entries, files, live in measured:
        assert entries < 900  # what a second of commits leaves, and some
        assert files < 700
        assert live <= 16
    reopened = open_at(place, NO_WAIT)
    assert reopened.state() == shard.state()
    assert contents(reopened.snapshot(1039)) == {("n", 1039): 1}


def test_maintenance_falls_due_and_is_done_once(place: Place) -> None:
    """Cheap to ask after every commit; done by one writer, it is not due for that handle."""
    shard = open_at(place, NO_WAIT)
    fill(shard, 4)
    assert [type(work) for work in shard.maintenance_due()] == [Compact, Vacuum]
    fill(shard, 1)
    work = shard.maintenance_due()
    assert [type(piece) for piece in work] == [Checkpoint, Compact, Vacuum]
    for piece in work:
        shard.run_maintenance(piece)
        shard.run_maintenance(piece)  # twice is no worse than once
    assert [type(piece) for piece in shard.maintenance_due()] == [Vacuum]  # without grace always due
    assert contents(shard.snapshot(4)) == {("n", 4): 1}


def test_compaction_tells_other_readers_that_no_data_changed(place: Place) -> None:
    """A stream of the table's changes, in whatever tool, must not see the rows again."""
    shard = open_at(place, NO_WAIT)
    fill(shard, 4)
    run_all(shard)

    entry = place.folder / "_delta_log" / f"{shard.state().version:020}.json"
    actions = [json.loads(line) for line in entry.read_text().splitlines()]
    files = [action.get("add") or action["remove"] for action in actions if "add" in action or "remove" in action]
    assert [file["dataChange"] for file in files] == [False] * 5


def test_compaction_that_was_overtaken_is_dropped(place: Place) -> None:
    """Two replicas choose the same files: one result counts, the other's files are taken away."""
    first, second = open_at(place, NO_WAIT), open_at(place, NO_WAIT)
    fill(first, 4)
    second.refresh()
    works = [next(w for w in shard.maintenance_due() if isinstance(w, Compact)) for shard in (first, second)]
    first.run_maintenance(works[0])
    files = data_files(place)
    second.run_maintenance(works[1])

    assert data_files(place) == files
    assert len(live_files(second)) == 1
    assert contents(second.snapshot(3)) == {("n", 3): 1}


def test_listing_taken_before_a_compaction_reads_the_same_after_it(place: Place) -> None:
    """Files never change; the old ones stay until vacuum's grace is over."""
    shard = open_at(place, MaintenancePolicy(compact_runs=4))
    fill(shard, 8)
    before, listing = shard.listen(3, 8), shard.snapshot_parts(7)
    expected = changes(before)
    shard.downgrade_since(2)
    run_all(shard)

    assert live_files(shard) != {part.path for part in listing}
    assert changes(before) == expected
    assert changes(shard.listen(3, 8)) == expected
    assert contents(shard.snapshot(7)) == {("n", 7): 1}


@pytest.mark.broad
def test_listing_is_exact_at_every_time_while_compaction_and_vacuum_run(place: Place) -> None:
    """A follower in another thread, on another handle, sees each tick once, in the right order."""
    policy = MaintenancePolicy(checkpoint_commits=3, compact_runs=3, vacuum_grace_seconds=0.5)
    writer, follower = open_at(place, policy), open_at(place, policy)
    seen: dict[object, int] = {}
    done = Event()

    def follow() -> None:
        lower = 0
        while not done.is_set() or lower < follower.refresh().upper:
            upper = follower.refresh().upper
            if upper == lower:
                done.wait(0.001)
                continue
            with follower.lease():  # however slowly it reads
                seen.update(changes(follower.listen(lower, upper)))
            lower = upper

    thread = Thread(target=follow)
    thread.start()
    fill(writer, 30, tidy=True)
    done.set()
    thread.join(BOUND)

    expected = {(("n", tick), tick): 1 for tick in range(30)}
    expected |= {(("n", tick - 1), tick): -1 for tick in range(1, 30)}
    assert seen == expected


def test_crash_in_the_middle_of_a_lease_leaves_a_draft_that_holds_nothing_up(place: Place) -> None:
    """Also one that is just being written by another thread: it is no lease yet."""
    shard = open_at(place, NO_WAIT)
    fill(shard, 20)
    shard.lease().release()
    leases = place.folder / "_tidemark" / "leases"
    leases.mkdir(parents=True, exist_ok=True)
    (leases / ".a.json.1f.tmp").write_bytes(b"")
    fill(shard, 20, tidy=True)

    assert data_files(place) == live_files(shard)
    delete_shard(shard.location, shard.shard_id)
    assert place.left() == []


def test_lease_that_expired_holds_nothing_and_is_tidied_away(place: Place) -> None:
    """A reader that died does not keep files for ever."""
    shard = open_at(place, NO_WAIT)
    fill(shard, 4)
    shard.lease(seconds=-1)
    run_all(shard)
    run_all(shard)

    assert data_files(place) == live_files(shard)
    assert list((place.folder / "_tidemark" / "leases").glob("*")) == []


def test_handle_that_slept_through_a_log_clean_up_catches_up(place: Place) -> None:
    """The entries after its version are gone: it goes on from the checkpoint, to read and to write."""
    shard, sleeper = open_at(place, NO_WAIT), open_at(place, NO_WAIT)
    fill(shard, 23, tidy=True)

    assert sleeper.refresh() == shard.state()
    fill(sleeper, 1)
    assert contents(shard.snapshot(22)) == {("n", 22): 1}
    assert shard.refresh() == sleeper.state()
