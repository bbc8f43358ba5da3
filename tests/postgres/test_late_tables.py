"""Tables that begin while others go on: none of the others waits for their contents, and all that can be read together
is a state that the upstream had between two transactions."""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from time import sleep
from typing import Any

import pytest

from tests.dialects.postgres import Postgres
from tests.postgres.databases import (
    KEYED_SCHEMA,
    SCHEMA,
    Database,
    History,
    KeyedHistory,
    check,
    connect,
    create_database,
    drop_slots,
    ingested_rows,
    ingester,
    readable_tables,
    source_of,
    spec_of,
    tick,
    tick_until_begun,
    tick_until_followed,
)
from tests.postgres.test_crash_processes import finish, first_line, ingesting_process
from tests.postgres.test_stops import A, B, ingesting, rows, upper
from tests.storage.dying_appends import die_after
from tests.waiting import BOUND, until
from tidemark_persist import NotReadable
from tidemark_protocol.plan.ingestion import PostgresTable
from tidemark_replica.storage.errors import SourceNotReady
from tidemark_replica.storage.ingester import Ingester
from tidemark_replica.storage.postgres import late_tables
from tidemark_replica.storage.postgres import source as source_module
from tidemark_replica.storage.postgres import tick as tick_module
from tidemark_replica.storage.postgres.contents import copied_tables
from tidemark_replica.storage.postgres.contents.snapshot import Snapshot
from tidemark_replica.storage.postgres.late_tables import LateTables
from tidemark_replica.storage.postgres.pgoutput import parse_lsn

LOCKED = """
select count(*) from pg_locks join pg_class c on c.oid = relation where relname = 'a' and mode = 'AccessShareLock'
and granted
"""

pytestmark = [pytest.mark.postgres, pytest.mark.broad]


class StoppingHistory(History):
    """Some of the transactions stop the table that they change."""

    identity = "full"

    def _statements(self, n: int, m: int) -> list[str]:
        return [*super()._statements(n, m), *self._stopping(n)]

    def _stopping(self, n: int) -> list[str]:
        return [
            "alter table a replica identity nothing; insert into a (id, part) values"
            f" ({1000 + n + 30 * len(self.states)}, 'stops'); alter table a replica identity {self.identity}"
        ] * 2


class StoppingKeyedHistory(StoppingHistory, KeyedHistory):
    identity = "default"


@contextmanager
def held_copies(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], None]]:
    """Copies of ranges wait until the returned function is called, or until they are given up."""
    go_on, copy = threading.Event(), Snapshot._copy

    def copy_later(self: Snapshot, *args: Any) -> Any:
        while not go_on.wait(0.05):
            self.upstream.check_goes_on()
        return copy(self, *args)

    monkeypatch.setattr(Snapshot, "_copy", copy_later)
    try:
        yield go_on.set
    finally:
        go_on.set()


@contextmanager
def added(database: Database, root: Path, *more: PostgresTable, **options: Any) -> Iterator[Ingester]:
    """`b` is followed, and the others of the source are late from the next tick on."""
    database.run("insert into a values (1, 'x')", "insert into b values (1)")
    spec = database.spec(B, A, *more, **options)
    with ingesting(root, replace(spec, tables=spec.tables[:1])) as one:
        tick(one, 1000)
    with ingesting(root, spec) as one:
        yield one


def late_of(one: Ingester) -> LateTables:
    late = source_of(one)._late
    assert late is not None
    return late


@pytest.mark.parametrize("seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(2, 12))])
def test_oracle_tables_begin_beside_others_with_deaths(
    server: Postgres, tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One table after the other begins, and stops, and begins anew, while transactions change all of them. The process
    dies after random appends."""
    kind, schema = (StoppingKeyedHistory, KEYED_SCHEMA) if seed % 2 else (StoppingHistory, SCHEMA)
    create_database(server, f"late{seed}", schema)
    moments, history = random.Random(seed), kind(server, f"late{seed}", seed)
    for _ in range(10):
        history.step()
    spec = spec_of(server, f"late{seed}", on_gap="resnapshot")
    until_death, copy = die_after(monkeypatch, moments.randrange(20, 40)), Snapshot._copy

    def copy_slowly(self: Snapshot, *args: Any) -> Any:
        sleep(moments.random() * 0.2)
        return copy(self, *args)

    monkeypatch.setattr(Snapshot, "_copy", copy_slowly)
    monkeypatch.setattr(source_module, "RETRY_SECONDS", 0.0)
    monkeypatch.setattr(source_module, "LOOK_SECONDS", 0.2)
    monkeypatch.setattr(copied_tables, "GROUP_BYTES", 0)
    monkeypatch.setattr(tick_module, "FLUSH_BYTES", moments.choice([2_000, 32 << 20]))
    one = ingester(tmp_path, spec)
    one.recover()
    with history.going_on():
        for time in range(1000, 5000, 50):
            try:
                tick(one, time)
            except (KeyboardInterrupt, SourceNotReady):  # a TRUNCATE came between the slot and its snapshot
                source_of(one).close()
                one = ingester(tmp_path, spec)
                one.recover()
            if until_death.left <= 0:
                until_death.left = moments.randrange(10, 60)
            sleep(moments.random() * 0.06)
    until_death.left = 1_000_000
    tick_until_followed(one, 9000)
    tick(one, 20_000)
    tick(one, 20_100)
    assert not source_of(one).stop_reasons()
    source_of(one).close()
    check(tmp_path, history.states, 40)
    followed = list(readable_tables(tmp_path).values())
    assert any(0 < len(names) < 3 for names in followed)
    drop_slots(server)


@pytest.mark.parametrize("kills", [4, pytest.param(60, marks=[pytest.mark.slow, pytest.mark.timeout(1800)])])
def test_crash_kills_while_tables_begin(database: Database, tmp_path: Path, kills: int) -> None:
    """SIGKILL at random moments. Tables are copied one after the other, slowly, and some transactions stop one."""
    draw = random.Random(kills)
    database.run("insert into a select g, 'p', g, repeat('z', 500), now(), true from generate_series(100, 4000) g")
    history = StoppingHistory(database.server, database.name, kills)
    spec = database.spec(on_gap="resnapshot")
    with history.going_on(0.02):
        for _ in range(kills):
            with ingesting_process(tmp_path, spec, "0.3") as process:
                first_line(process)
                sleep(draw.random() * 3)
    finish(tmp_path, spec)
    check(tmp_path, history.states, 40)
    assert {frozenset(names) for names in readable_tables(tmp_path).values()} >= {frozenset({"a", "b", "odd"})}


def test_others_go_on_while_an_added_table_is_copied(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The added one has no time at which it was not complete."""
    with added(database, tmp_path) as one, held_copies(monkeypatch) as go_on:
        tick(one, 1100)
        for number in range(2, 5):
            database.run(f"insert into a values ({number}, 'y')", f"insert into b values ({number})")
            until(lambda number=number: _ticked_rows(one, tmp_path, "b") == number)  # type: ignore[misc]
        assert (upper(tmp_path, "a"), source_of(one).unbound_tables(), dict(source_of(one).stop_reasons())) == (
            0,
            ["a"],
            {},
        )
        assert source_of(one).progress()["a"].snapshot_percent == 0
        go_on()
        begun = tick_until_begun(one, 2000)
        assert not source_of(one).stop_reasons()
        assert rows(tmp_path, "a") == Counter([(1, "x"), (2, "y"), (3, "y"), (4, "y")])
        with pytest.raises(NotReadable):
            ingested_rows(tmp_path, "a", begun - 1)
        database.run("delete from a where id < 4", "delete from b")
        until(lambda: _ticked_rows(one, tmp_path, "b") == 0)
    assert rows(tmp_path, "a") == Counter([(4, "y")])


def _ticked_rows(one: Ingester, root: Path, table: str) -> int:
    tick(one, max(upper(root, name) for name in ("remap", "b")) + 1)
    return sum(rows(root, table).values())


def test_a_large_table_begins_after_the_small_ones(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At the first start, and after a gap, at which the large one keeps its contents."""
    monkeypatch.setattr(copied_tables, "GROUP_BYTES", 1 << 20)
    database.run(
        "insert into a select g, repeat('x', 1000) from generate_series(1, 3000) g", "insert into b values (1)"
    )
    spec = database.spec(A, B, on_gap="resnapshot")
    with ingesting(tmp_path, spec) as one:
        with held_copies(monkeypatch) as go_on:
            thread = threading.Timer(0.2, go_on)
            thread.start()
            tick(one, 1000)  # waits, as there is no other table
            thread.join()
        assert (upper(tmp_path, "a"), rows(tmp_path, "b")) == (0, Counter([(1,)]))
        tick_until_begun(one, 1100)
        assert sum(rows(tmp_path, "a").values()) == 3000
        slot = source_of(one)._slot
    database.drop_slot(slot)
    database.run("delete from a where id > 10", "insert into b values (2)")
    before = upper(tmp_path, "a")
    with ingesting(tmp_path, spec) as one:
        tick(one, 5000)
        assert source_of(one).stop_reasons()["a"].startswith("SlotLost: table a: ")
        assert (upper(tmp_path, "a"), sum(rows(tmp_path, "b").values())) == (before, 2)
    with ingesting(tmp_path, spec) as one:
        begun = tick_until_begun(one, 5100)
        assert not source_of(one).stop_reasons()
    assert sum(ingested_rows(tmp_path, "a", begun - 1).values()) == 3000
    assert sum(rows(tmp_path, "a").values()) == 10


@pytest.mark.parametrize("keyed", [False, True])
def test_changes_and_truncations_while_contents_are_copied(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, keyed: bool
) -> None:
    """The slot of the contents gives them. A TRUNCATE waits until the contents are copied."""
    if keyed:
        database.run("alter table a add primary key (id)", "alter table a replica identity default")
    database.run("insert into a values (1, 'x')", "insert into b values (1)")
    spec = database.spec(A, B, on_gap="resnapshot")
    with ingesting(tmp_path, spec) as one:
        tick(one, 1000)
        _stop(database, one, "a")
        monkeypatch.setattr(source_module, "RETRY_SECONDS", 0.0)
        source_of(one)._due["a"] = 0.0
        with held_copies(monkeypatch) as go_on:
            tick(one, 1500)
            late = late_of(one)
            until(lambda: bool(database.value(LOCKED)))
            database.run("insert into a values (3, 'v')", "update a set part = 'u' where id = 1")
            go_on()
            _read_everything(database, late)
            database.run("truncate a", "insert into a values (5, 'y'), (6, 'z')", "delete from a where id = 6")
            database.run("update a set part = 'w' where id = 5", "insert into b values (2)")
            _read_everything(database, late)
            begun = tick_until_begun(one, 1600)
        assert not source_of(one).stop_reasons()
        assert rows(tmp_path, "a") == Counter([(5, "w")])
        assert ingested_rows(tmp_path, "a", begun - 1)[(1, "x")] == 1
        database.run("update a set part = 'v' where id = 5")
        until(lambda: _ticked(one, begun) and rows(tmp_path, "a") == Counter([(5, "v")]))


def _read_everything(database: Database, late: LateTables) -> None:
    until(lambda: late.position >= parse_lsn(database.value("select pg_current_wal_lsn()::text")))


def _ticked(one: Ingester, time: int) -> bool:
    tick(one, max(time, one._remap.state().upper) + 1)
    return True


def _stop(database: Database, one: Ingester, table: str) -> None:
    identity = database.value(f"select relreplident from pg_class where relname = '{table}'")
    back = "full" if identity == "f" else "default"
    database.run(
        f"alter table {table} replica identity nothing",
        f"insert into {table} values (9, 'stops')",
        f"alter table {table} replica identity {back}",
    )
    until(lambda: _ticked(one, 1000) and table in source_of(one).stop_reasons())


def test_a_definition_that_changes_after_the_copy_stops_the_table(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its rows are not those that it has now; the look at the tick in which it would begin tells."""
    with added(database, tmp_path) as one:
        tick(one, 1100)
        late = late_of(one)
        until(lambda: late.is_waiting)
        database.run("alter table a alter part type text using part || '!'")
        until(lambda: _ticked(one, 1100) and "a" in source_of(one).stop_reasons())
        assert source_of(one).stop_reasons()["a"].startswith("ColumnChanged: table a: ")
    assert upper(tmp_path, "a") == 0


def test_copies_end_with_their_source(database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also while they wait for a slot. Nothing stays upstream but the slot of the source."""
    database.run("insert into a values (1, 'x')", "insert into b values (1)")
    spec = database.spec(A, B)
    with ingesting(tmp_path, replace(spec, tables=spec.tables[1:])) as one:
        tick(one, 1000)
    for moment in ("a slot", "copies"):
        with ingesting(tmp_path, spec) as one, held_copies(monkeypatch):
            blocking = connect(database.server, database.name)
            if moment == "a slot":
                blocking.execute("insert into b values (100)")
            tick(one, 2000 if moment == "a slot" else 3000)
            late = late_of(one)
            words = "waiting" if moment == "a slot" else "snapshot"
            until(lambda late=late, words=words: late.activity.startswith(words))  # type: ignore[misc]
            source_of(one).interrupt()
            source_of(one).close()
            assert not late._thread.is_alive()
            blocking.close()
        until(lambda: database.value("select count(*) from pg_replication_slots") == 1)


def test_others_wait_only_a_while_for_the_last_changes(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A late table that was near, and is not any more, is asked again later."""
    monkeypatch.setattr(late_tables, "WAIT_S", 0.05)
    with added(database, tmp_path) as one:
        tick(one, 1100)
        late = late_of(one)
        until(lambda: late.is_waiting)
        waits, go_on, visible = threading.Event(), threading.Event(), late._wait_until_visible

        def wait_until_visible(*args: Any) -> None:
            waits.set()
            go_on.wait(BOUND)
            visible(*args)

        monkeypatch.setattr(late, "_wait_until_visible", wait_until_visible)
        until(waits.is_set)
        database.run("insert into a values (2, 'y')", "insert into b values (2)")
        until(lambda: _ticked(one, 1100) and rows(tmp_path, "b") == Counter([(1,), (2,)]))
        assert upper(tmp_path, "a") == 0
        go_on.set()
        tick_until_begun(one, 5000)
    assert rows(tmp_path, "a") == Counter([(1, "x"), (2, "y")])
