"""An ingester that dies anywhere leaves neither gap nor duplicate; one that was replaced changes nothing."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow as pa
import pytest

from tests.storage.dying_appends import die_after
from tests.storage.ingestion_samples import contents, description, tpch_tables
from tidemark_persist import DIFF, TIME, Fenced, ShardWriters, consolidate, open_shard, read_part
from tidemark_protocol.ids import Time, WriterTerm
from tidemark_protocol.plan.ingestion import TpchSource
from tidemark_replica.storage.errors import NotDefinite
from tidemark_replica.storage.ingester import Ingester
from tidemark_replica.storage.tpch.initial import InitialData
from tidemark_replica.storage.tpch.source import TpchIngestion
from tidemark_replica.storage.tpch.tables import TABLES
from tidemark_replica.storage.tpch.transactions import changes
from tidemark_replica.values.arrow_types import arrow_schema

SPEC = TpchSource("0.001", 200, 7)
NAMES = ("orders", "lineitem", "nation")


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tpch")


def ingester(root: Path, cache: Path, term: int = 1) -> Ingester:
    """A new one, as a new process would make it."""
    source = TpchIngestion(SPEC, cache)
    return Ingester(description(root, SPEC, tpch_tables(*NAMES)), WriterTerm(term), source, ShardWriters())


def expected(cache: Path, table: str, transactions: int) -> pa.Table:
    """The table after so many transactions, from the generator alone."""
    data = InitialData(cache, SPEC.scale_factor)
    rows = pa.Table.from_batches(list(data.rows(table)), arrow_schema(TABLES[table].columns))
    start = rows.append_column(DIFF, pa.repeat(pa.scalar(1, pa.int64()), rows.num_rows))
    if table == "nation" or not transactions:
        return start
    done = changes(data.population, SPEC.seed, 0, transactions)
    gone = data.orders_at(done.initial_deleted)[0 if table == "orders" else 1]
    gone = gone.append_column(DIFF, pa.repeat(pa.scalar(-1, pa.int64()), gone.num_rows))
    return consolidate(pa.concat_tables([start, done.orders if table == "orders" else done.lineitem, gone]))


def ticks(root: Path) -> dict[int, int]:
    """Transactions so far, by the time of the binding that says so."""
    remap = open_shard(f"{root}/remap")
    parts = remap.listen(0, remap.state().upper)
    rows = [r for p in parts for b in read_part(p) for r in b.to_pylist()]
    return {r[TIME]: r["transactions"] for r in rows if r[DIFF] > 0}


def is_same(left: pa.Table, right: pa.Table) -> bool:
    """The same rows with the same multiplicities."""
    left = left.select(right.column_names)
    key = [(n, "ascending") for n in right.column_names]
    return bool(left.sort_by(key).combine_chunks().equals(right.sort_by(key).combine_chunks()))


def check(root: Path, cache: Path) -> None:
    """Every table, at every binding, is what the bindings say."""
    bound = ticks(root)
    assert bound
    for table in NAMES:
        for at, transactions in bound.items():
            assert is_same(contents(root, table, at), expected(cache, table, transactions)), (table, at, transactions)


def test_tables_hold_what_the_bindings_say_at_every_tick(tmp_path: Path, cache: Path) -> None:
    """No fault at all."""
    one = ingester(tmp_path, cache)
    one.recover()
    for tick in range(1000, 3000, 500):
        assert one.tick(Time(tick))
    assert not one.tick(Time(1500))
    check(tmp_path, cache)


@pytest.mark.parametrize("died_after", range(1, 9))
def test_crash_after_any_append_the_next_ingester_goes_on(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch, died_after: int
) -> None:
    """Each tick makes four appends (the remap and three tables); the process dies after the n-th."""
    one = ingester(tmp_path, cache)
    one.recover()
    die_after(monkeypatch, died_after)
    with pytest.raises(KeyboardInterrupt):
        _ = [one.tick(Time(tick)) for tick in (1000, 1500, 2000)]
    monkeypatch.undo()
    two = ingester(tmp_path, cache, term=died_after % 2 + 1)
    two.recover()
    assert two.tick(Time(2500))
    check(tmp_path, cache)


@pytest.mark.parametrize("died_after", [1, 2, 3])
def test_after_a_failure_between_the_appends_of_a_tick_no_other_tick_leaves_it_out(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch, died_after: int
) -> None:
    """A tick would move the tables past a binding that they lack. So it is refused until the ingester has recovered,
    also where the recovery fails."""
    one = ingester(tmp_path, cache)
    with pytest.raises(RuntimeError, match="recover again"):
        one.tick(Time(500))
    one.recover()
    die_after(monkeypatch, died_after)
    with pytest.raises(KeyboardInterrupt):
        one.tick(Time(1000))
    monkeypatch.undo()
    with pytest.raises(RuntimeError, match="recover again"):
        one.tick(Time(1500))
    die_after(monkeypatch, 1)
    with pytest.raises(KeyboardInterrupt):
        one.recover()
    monkeypatch.undo()
    with pytest.raises(RuntimeError, match="recover again"):
        one.tick(Time(2000))
    one.recover()
    assert one.tick(Time(2500))
    check(tmp_path, cache)


def test_an_older_ingester_is_fenced_and_changes_nothing(tmp_path: Path, cache: Path) -> None:
    """The newer term wins from its first look on."""
    old, new = ingester(tmp_path, cache), ingester(tmp_path, cache, term=2)
    old.recover()
    old.tick(Time(1000))
    new.recover()
    with pytest.raises(Fenced):
        old.tick(Time(1500))
    new.tick(Time(2000))

    assert sorted(ticks(tmp_path)) == [1000, 2000]
    check(tmp_path, cache)


def test_another_seed_is_refused_instead_of_changing_history(tmp_path: Path, cache: Path) -> None:
    """The remap pins what made the data."""
    one = ingester(tmp_path, cache)
    one.recover()
    one.tick(Time(1000))
    spec = TpchSource("0.001", 200, 8)
    other = Ingester(
        description(tmp_path, spec, tpch_tables(*NAMES)),
        WriterTerm(2),
        TpchIngestion(spec, cache),
        ShardWriters(),
    )

    with pytest.raises(NotDefinite, match="restore the DataSource"):
        other.recover()


def test_tables_that_change_no_more_run_ahead_within_the_bound(tmp_path: Path, cache: Path) -> None:
    """They need a commit only now and then; `orders` never runs ahead."""
    one = ingester(tmp_path, cache)
    one.recover()
    one.tick(Time(1000))
    one.run_ahead(Time(4000))

    assert open_shard(f"{tmp_path}/nation").refresh().upper == 4000
    assert open_shard(f"{tmp_path}/orders").refresh().upper == 1001
    one.tick(Time(5000))
    check(tmp_path, cache)


LOOP = """
import sys
from pathlib import Path
from tests.storage.test_crash_ingestion import ingester
from tidemark_protocol.ids import Time
from tidemark_persist import open_shard
root, cache = Path(sys.argv[1]), Path(sys.argv[2])
one = ingester(root, cache)
one.recover()
tick = (open_shard(f"{root}/remap").state().upper // 100 + 1) * 100
while True:
    print("all before", tick, flush=True)
    one.tick(Time(tick))
    for shard in one.shards():
        for work in shard.maintenance_due():
            shard.run_maintenance(work)
    tick += 100
"""


def test_crash_sigkill_in_a_loop_leaves_neither_gap_nor_duplicate(tmp_path: Path, cache: Path) -> None:
    """A real process, killed at random moments, taken over by the next."""
    moments = random.Random(11)
    InitialData(cache, SPEC.scale_factor).path("orders")
    for done in (1, 2, 0, 3):
        process = subprocess.Popen(
            [sys.executable, "-c", LOOP, str(tmp_path), str(cache)],
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )
        assert process.stdout is not None
        for _ in range(done + 1):
            assert process.stdout.readline().startswith(b"all before")
        time.sleep(moments.uniform(0.0, 0.2))  # not a wait for anything: the moment of death
        process.send_signal(signal.SIGKILL)
        process.wait()
    last = ingester(tmp_path, cache)
    last.recover()

    assert len(ticks(tmp_path)) >= 6
    check(tmp_path, cache)
