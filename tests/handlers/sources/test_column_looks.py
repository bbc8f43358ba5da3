"""Looks for columns that come upstream (`evolve: addColumns`): a table that cannot be read, or that somebody edits in
vain, holds up no other, and costs few questions."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any, cast

import pytest

from tests.handlers.sources.test_table_edits import KEY, Edited, Lake, edited, followed
from tests.handlers.sources.test_whole_publications import COLUMNS, Followed, Upstream, follow
from tidemark_operator.handlers.reconcile import readable_tables, source_inspection_queue, table_edits
from tidemark_operator.handlers.reconcile.readable_tables import READ_SECONDS, find_readable
from tidemark_operator.handlers.reconcile.source_inspection_queue import PAUSE_SECONDS_MAX
from tidemark_operator.handlers.reconcile.table_edits import EVOLVE_SECONDS
from tidemark_operator.kube.client import Body
from tidemark_operator.resources.conditions.data_source import IngestionFailure
from tidemark_protocol.pb import compute_pb2
from tidemark_protocol.plan import codec
from tidemark_protocol.plan.ingestion import DeltaSource, DeltaTable, PostgresSource, SourceTable
from tidemark_protocol.types import BIGINT, Column

TABLES = 64
VIP = (*COLUMNS, Column("vip", BIGINT))


def test_a_table_that_left_its_publication_costs_one_question_a_minute(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Columns of the others are taken by the look that finds it gone, however slow the database is. The condition names
    it until it is back."""
    upstream = Upstream(*(f"t{n}" for n in range(TABLES)))

    async def scenario(source: Followed) -> None:
        monkeypatch.setattr(readable_tables, "monotonic", lambda: source.now)

        async def inspect(asked: PostgresSource, pinned: object = None) -> compute_pb2.InspectSourceResponse:
            source.now += READ_SECONDS / 20
            return await upstream.inspect(asked, pinned)

        cast(Any, source.edited.running).inspect = inspect
        source.spec |= {"evolve": "addColumns"}
        assert len(await source.reconcile(2)) == TABLES
        upstream.gone.add("t3")
        del upstream.published["t3"]
        upstream.inspected.clear()
        upstream.columns["t9"] = VIP
        assert "t9.2" in await source.reconcile()
        assert len(upstream.inspected) < 20
        for name in ("t10", "t11"):
            upstream.inspected.clear()
            upstream.columns[name] = VIP
            assert f"{name}.2" in await source.reconcile()
            assert sorted(map(len, upstream.inspected)) == [1, 1, TABLES - 1]
            assert source.failure == IngestionFailure("SourceUnreadable", "table t3: TableMissing")
        upstream.gone.clear()
        upstream.columns["t3"] = VIP
        assert "t3.2" in await source.reconcile(2)
        await source.reconcile(2)
        assert source.failure is None

    follow(tmp_path, monkeypatch, upstream, scenario)


@pytest.mark.parametrize("edit", ["columns that are not there", "a table that is not there"])
def test_an_edit_that_cannot_be_read_stops_no_look(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, edit: str) -> None:
    """Columns of another table are taken meanwhile. The condition is that of the edit until it is taken back."""
    now, lake = 1000.0, Lake()
    for module in (table_edits, source_inspection_queue):
        monkeypatch.setattr(module, "monotonic", lambda: now)
    a, b, wrong = ({"name": n, "path": f"/lake/{n}", "evolve": "addColumns"} for n in ("a", "b", "wrong"))
    lake.columns["wrong"] = ["n"]
    lake.unreadable = {"a.2", "wrong"}

    async def scenario(source: Edited) -> None:
        nonlocal now
        cast(Any, source.running).inspect = lake.inspect

        async def reconcile(*tables: Body) -> list[str]:
            document = followed("delta", {"tables": list(tables)})
            source.harness.cache.put(KEY, document)
            await source.reconciler.reconcile(KEY, document)
            return sorted(source.ingested)

        assert await reconcile(a, b) == ["a", "b"]
        state = source.harness.context.registry.source(KEY)
        assert state is not None
        asked = [a, b, wrong]
        if edit == "columns that are not there":
            asked = [{"name": "a", "path": "/lake/a", "columns": ["n", "x"]}, b]
        named = "a.2" if len(asked) == 2 else "wrong"
        failure = IngestionFailure("SourceUnreadable", f"table {named}: column 'm': has no counterpart")
        assert await reconcile(*asked) == ["a", "b"]
        assert state.edit == failure
        lake.columns["b"].append("m")
        now += EVOLVE_SECONDS
        seen = set[str]()
        for _ in range(4):
            seen |= set(await reconcile(*asked))
            assert state.edit == failure
        assert "b.2" in seen
        assert await reconcile(a, b) == ["a", "b.2"]
        assert state.edit is None
        lake.unreadable.clear()
        now += PAUSE_SECONDS_MAX
        for _ in range(2):
            found = await reconcile(*asked)
        assert found == (["a.2", "b.2"] if len(asked) == 2 else ["a", "b.2", "wrong"])

    lake.columns["a"] = ["n", "x"] if edit == "columns that are not there" else ["n"]
    edited(tmp_path, scenario)


class Asked:
    """A replica that is asked for tables of Delta, some of which cannot be read. A question takes so many seconds."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, seconds: float, *unreadable: str) -> None:
        self.unreadable, self.sizes, self.now, self.seconds = set(unreadable), list[int](), 0.0, seconds
        monkeypatch.setattr(readable_tables, "monotonic", lambda: self.now)

    async def inspect(self, source: DeltaSource, _: object = None) -> compute_pb2.InspectSourceResponse:
        self.now += self.seconds
        self.sizes.append(len(source.tables))
        names = [table.name for table in source.tables]
        if wrong := sorted(self.unreadable.intersection(names)):
            return compute_pb2.InspectSourceResponse(error=f"table {wrong[0]}")
        return compute_pb2.InspectSourceResponse(tables=[codec.encode(SourceTable(name, COLUMNS)) for name in names])


def source_of(count: int) -> DeltaSource:
    return DeltaSource(tuple(DeltaTable(f"t{n:02}", f"/lake/{n}") for n in range(count)))


def run(asks: Callable[[], Awaitable[Any]]) -> Any:
    async def wait() -> Any:
        return await asks()

    return asyncio.run(wait())


@pytest.mark.parametrize("gone", [0, 1, 3])
def test_tables_that_cannot_be_read_are_found_by_halves(monkeypatch: pytest.MonkeyPatch, gone: int) -> None:
    names = [f"t{n:02}" for n in range(0, 5 * gone, 5)]
    replica: Any = Asked(monkeypatch, 0.1, *names)
    found = run(lambda: find_readable(source_of(32), cast(Any, None), replica))
    assert len(found.found) == 32 - gone
    assert (found.unreadable, found.error) == (frozenset(names), "; ".join(f"table {name}" for name in names))
    assert len(replica.sizes) <= 1 + 10 * gone


def test_where_none_can_be_read_the_time_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    replica: Any = Asked(monkeypatch, 1, *(f"t{n:02}" for n in range(64)))
    found = run(lambda: find_readable(source_of(64), cast(Any, None), replica))
    assert (found.found, replica.now) == ((), READ_SECONDS)
    assert found.error.startswith("table t")
    again = run(lambda: find_readable(source_of(64), cast(Any, None), replica, apart=found.unreadable))
    assert again.error
    replica.unreadable.clear()
    assert len(run(lambda: find_readable(source_of(64), cast(Any, None), replica)).found) == 64


def test_tables_that_can_be_read_again_are_asked_for_in_bounded_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """After an outage, in which all tables were unreadable, each look asks for some, and all are found in the end."""
    replica: Any = Asked(monkeypatch, 1)
    apart = frozenset(table.name for table in source_of(64).tables)
    while apart:
        begin, before = replica.now, apart
        found = run(partial(find_readable, source_of(64), cast(Any, None), replica, before))
        apart = found.unreadable
        assert replica.now - begin <= READ_SECONDS
        assert found.error == ""
        assert apart < before


def test_each_look_finds_more_tables_that_cannot_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """However slow the questions are: in the end the readable ones need one question."""
    replica: Any = Asked(monkeypatch, 1, *(f"t{n:02}" for n in range(8)))
    found = run(lambda: find_readable(source_of(64), cast(Any, None), replica))
    for _ in range(8):
        before = found.unreadable
        found = run(partial(find_readable, source_of(64), cast(Any, None), replica, before))
        assert before <= found.unreadable
    assert (len(found.found), len(found.unreadable)) == (56, 8)
