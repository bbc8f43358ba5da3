"""Columns that come upstream while a source runs are in a further table of it, a successor, which the same stream feeds
as the first one: both are together as the upstream was between two transactions, each with columns of its own."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from time import sleep
from typing import Any

import psycopg
import pytest

from tests.dialects.postgres import Postgres
from tests.postgres.databases import (
    KEYED_SCHEMA,
    SCHEMA,
    TABLES,
    History,
    KeyedHistory,
    bound_until,
    check,
    connect,
    create_database,
    drop_slots,
    ingester,
    readable_tables,
    source_of,
    spec_of,
    tick,
)
from tests.postgres.test_crash_processes import first_line, ingesting_process
from tests.storage.dying_appends import die_after
from tests.waiting import until
from tidemark_protocol.plan.ingestion import PostgresSource, PostgresTable
from tidemark_replica.storage.errors import IngestionError
from tidemark_replica.storage.postgres import source as source_module
from tidemark_replica.storage.postgres import tick as tick_module
from tidemark_replica.storage.postgres.contents import copied_tables
from tidemark_replica.storage.postgres.contents.snapshot import Snapshot

pytestmark = [pytest.mark.postgres, pytest.mark.broad]

MORE_SCHEMA = """
alter table a add extra text default 'old';
drop publication everything;
create publication everything for table a, b, "Odd Name";
"""
FIRST = "id", "part", "amount", "note", "at", "ok"
DEFAULTS = (
    "int default 7",
    "int",
    "bigint default (random() * 1e9)::bigint",
    "text default md5(random()::text)",
    "timestamptz default '2020-01-01'",
    "double precision not null default random()",
    "numeric(8,3) default 1.5",
    "text default repeat('d', 3000)",
    "int[] default '{1,2}'",
)
"""The defaults of added columns: constants, nothing, and values that each row has for itself."""


class GrowingHistory(History):
    """Transactions, and definitions of `a` that change between them. `changed`: how many definitions did."""

    def __init__(self, server: Postgres, database: str, seed: int) -> None:
        self.shown: dict[str, tuple[str, str]] = {**History.shown}
        self._show("a", (*FIRST, "extra"))
        self.changed, self.added, self._has_failed = 0, list[str](), False
        self._changes: list[Callable[[], None]] = []
        super().__init__(server, database, seed)

    def change(self, statement: str = "", show: tuple[str, tuple[str, ...]] | None = None, gone: str = "") -> None:
        """Runs a statement; from then on a table of this name and columns is expected, and none with the column `gone`.
        Returns once that is done."""
        before = self.changed

        def run() -> None:
            if statement:
                self._alter(statement)
            self.shown = {n: each for n, each in self.shown.items() if not gone or f'"{gone}"' not in each[1]}
            self.added = [name for name in self.added if name != gone]
            if show is not None:
                self._show(*show)
            self.states.append(self.now())
            self.changed += 1

        self._changes.append(run)
        until(lambda: self.changed > before or self._has_failed)
        assert not self._has_failed

    def step(self) -> None:
        try:
            self._changes.pop(0)() if self._changes else super().step()
        except BaseException:
            self._has_failed = True
            raise

    def _alter(self, statement: str) -> None:
        """Beside transactions that are open, where they leave the table alone; after a copy of the table."""

        def is_altered() -> bool:
            try:
                with connect(self._server, self._database) as connection:
                    connection.execute("set lock_timeout = '50ms'")
                    connection.execute(statement)
                return True
            except psycopg.errors.LockNotAvailable:
                for one in list(self._open):
                    self._end(one, True)
                return False

        until(is_altered)

    def _statements(self, n: int, m: int) -> list[str]:
        more = [f'update a set "{name}" = default where id % 5 = {n % 5}' for name in self.added]
        more += [f"update a set \"{name}\" = default, part = part || '+' where id = {m}" for name in self.added]
        return [*super()._statements(n, m), *more]

    def _show(self, name: str, columns: tuple[str, ...]) -> None:
        texts = {column: f'"{column}"' for column in columns}
        texts |= {"amount": "nullif(amount, 'NaN')", "at": "case when isfinite(at) then at end"}
        wrong = "case when amount = 'NaN' then 'amount' when not isfinite(at) then 'at' end"
        self.shown[name] = ("a", ", ".join([*(texts[column] for column in columns), wrong]))


class GrowingKeyedHistory(GrowingHistory, KeyedHistory):
    """With a key, and values that are stored apart."""


class Growth:
    """The changes of the columns of `a`, one after the other, and the tables of the source that follow it."""

    def __init__(self, server: Postgres, name: str, seed: int) -> None:
        kind, schema = (GrowingKeyedHistory, KEYED_SCHEMA) if seed % 2 else (GrowingHistory, SCHEMA)
        create_database(server, name, schema + MORE_SCHEMA)
        self.random, self._server, self._database = random.Random(seed), server, name
        self.history = kind(server, name, seed)
        for _ in range(10):
            self.history.step()
        self.tables = list(spec_of(server, name, *TABLES).tables)
        self._numbers = iter(range(2, 100))
        self._columns = [*FIRST, "extra"]

    @property
    def spec(self) -> PostgresSource:
        found = spec_of(self._server, self._database, TABLES[1], on_gap="resnapshot")
        return replace(found, tables=tuple(self.tables))

    def steps(self) -> list[Callable[[], None]]:
        """Columns come, one or two at a time, an old one goes, one of those that came gets another type; tables follow.
        In some order."""
        others = [self._dropped, self._retyped, self._with_new_column]
        self.random.shuffle(others)
        return [self._with_new_column, others[0], self._with_new_column, *others[1:], self._with_new_column]

    def _with_new_column(self) -> None:
        """A column comes, and a successor has it, and all others or some of them."""
        name = f"c {len(self._columns)} {next(self._numbers)}"
        default = self.random.choice(DEFAULTS)
        self.history.change(f'alter table a add "{name}" {default}')
        self._columns.append(name)
        self.history.added.append(name)
        self._succeed(name if self.random.random() < 0.7 else "")

    def _dropped(self) -> None:
        self.history.change("alter table a drop extra", gone="extra")
        self._columns.remove("extra")
        if self.random.random() < 0.5:
            self._succeed("")

    def _retyped(self) -> None:
        """The tables that have it stop; a successor has it as it is now."""
        name = self._columns[-1]
        if name in FIRST or name == "extra":
            return
        new = f"{name} text"
        without = f'alter "{name}" drop default, alter "{name}" drop not null'
        self.history.change(
            f'alter table a {without}, alter "{name}" type text using \'t\' || "{name}"::text', gone=name
        )
        self.history.change(f'alter table a rename "{name}" to "{new}"')
        self._columns[-1] = new
        self.history.added.append(new)
        self._succeed(new)

    def _succeed(self, wanted: str) -> None:
        """A successor with the column, and perhaps without others; "": with all columns."""
        keep = [c for c in self._columns if c in FIRST or c == wanted or self.random.random() < 0.5]
        names = tuple(keep) if wanted else ()
        [found] = spec_of(
            self._server, self._database, PostgresTable(f"a.{next(self._numbers)}", "public", "a", names)
        ).tables
        self.tables.append(found)
        self.history.change(show=(found.name, tuple(column.name for column in found.columns or ())))


def is_followed(one: Any, names: set[str]) -> bool:
    source = source_of(one)
    late = names & (source.stop_reasons().keys() | set(source.unbound_tables()))
    source._due = {name: 0.0 for name in source._due if name in late}
    return not late


@pytest.mark.parametrize("seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(2, 20))])
def test_oracle_successors_of_tables_whose_columns_change(
    server: Postgres, tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process dies after random appends, and each change of columns makes it begin with another spec."""
    growth = Growth(server, f"columns{seed}", seed)
    moments, history = random.Random(seed), growth.history
    until_death, copy = die_after(monkeypatch, moments.randrange(20, 40)), Snapshot._copy

    def copy_slowly(self: Snapshot, *args: Any) -> Any:
        sleep(moments.random() * 0.1)
        return copy(self, *args)

    monkeypatch.setattr(Snapshot, "_copy", copy_slowly)
    monkeypatch.setattr(source_module, "RETRY_SECONDS", 0.0)
    monkeypatch.setattr(source_module, "LOOK_SECONDS", 0.2)
    monkeypatch.setattr(copied_tables, "GROUP_BYTES", moments.choice([0, 512 << 20]))
    monkeypatch.setattr(tick_module, "FLUSH_BYTES", moments.choice([2_000, 32 << 20]))
    one = ingester(tmp_path, growth.spec)
    one.recover()
    time = 1000

    def go_on(anew: bool = False) -> None:
        """An ingestion that fails begins anew, too: a slot is in use for a while after its process ended."""
        nonlocal one, time
        time += 50
        try:
            if not anew:
                tick(one, time)
        except (KeyboardInterrupt, IngestionError):
            anew = True
        if anew:
            source_of(one).close()
            one = ingester(tmp_path, growth.spec)
            one.recover()
        if until_death.left <= 0:
            until_death.left = moments.randrange(10, 60)
        sleep(moments.random() * 0.04)

    with history.going_on():
        for step in growth.steps():
            for _ in range(moments.randrange(1, 20)):
                go_on()
            step()
            go_on(anew=True)
        for _ in range(20):
            go_on()
    until_death.left = 1_000_000
    source_of(one).close()
    finish(tmp_path, growth)
    drop_slots(server)


def finish(root: Path, growth: Growth) -> None:
    """Goes on until all tables are followed, and compares them with the history. A process that was killed just now may
    have the slot still."""

    def is_finished() -> bool:
        one = ingester(root, growth.spec)
        try:
            one.recover()
            go_on_for_a_while(one, set(growth.history.shown), bound_until(root) + 1000)
            return True
        except IngestionError:
            return False
        finally:
            source_of(one).close()

    until(is_finished)
    check(root, growth.history.states, 25)
    assert max(sum(n.startswith("a") for n in names) for names in readable_tables(root).values()) > 1


def go_on_for_a_while(one: Any, names: set[str], time: int) -> None:
    """Ticks until the tables are followed, and some ticks more."""
    times = iter(range(time, time + 20_000, 50))

    def ticked() -> bool:
        source = source_of(one)
        at = next(times, None)
        assert at is not None, (names, source.stop_reasons(), source.unbound_tables())
        tick(one, at)
        return is_followed(one, names)

    until(ticked)
    for _ in range(20):
        ticked()
        sleep(0.02)
    assert ticked()


@pytest.mark.parametrize("kills", [6, pytest.param(60, marks=[pytest.mark.slow, pytest.mark.timeout(1800)])])
def test_crash_kills_while_columns_come(server: Postgres, tmp_path: Path, kills: int) -> None:
    """SIGKILL at random moments, and each change of columns."""
    growth, draw = Growth(server, f"killed{kills}", kills), random.Random(kills)
    steps = iter(growth.steps())
    with growth.history.going_on(0.02):
        for number in range(kills):
            with ingesting_process(tmp_path, growth.spec, "0.1") as process:
                if number % 3 < 2:
                    first_line(process)
                sleep(draw.random() * 2)
                if number % max(1, kills // 6) == 0 and (step := next(steps, None)) is not None:
                    step()
    finish(tmp_path, growth)
    drop_slots(server)
