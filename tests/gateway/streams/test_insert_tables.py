"""Calls of several tables, through the gateway to the tables of a real ingester."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.pgwire.served import TOKEN
from tests.pgwire.writes.written import MAY_INSERT, Written, written
from tests.waiting import BOUND, until
from tidemark_operator.errors import QueryRefused
from tidemark_operator.gateway.streams import insert
from tidemark_operator.gateway.streams.insert import Inserts
from tidemark_pgwire.errors import WireError
from tidemark_protocol.pb import gateway_pb2 as pb

BODIES = {"plain": b"id,name\n7,x\n", "orders": b"id,name\n1,a\n2,b\n"}


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Written]:
    with written(tmp_path_factory.mktemp("tables"), (MAY_INSERT,)) as made:
        yield made


def header(key: str, **changed: Any) -> pb.InsertHeader:
    parts = [pb.WriteTable(table=name, operation="insert", size=len(body)) for name, body in BODIES.items()]
    return pb.InsertHeader(
        **{"namespace": "ns", "source": "shop", "format": "csv", "key": key, "tables": parts} | changed
    )


def call(tables: Written, asked: pb.InsertHeader, body: bytes = b"".join(BODIES.values())) -> Any:
    return tables.server.loop.run(tables.server.link.insert(TOKEN, asked, lambda: iter([body]), len(body)))


def test_a_call_is_in_all_its_tables_once(tables: Written) -> None:
    answers = [call(tables, header("k")) for _ in range(2)]
    assert [(each.rows, each.repeated, each.table) for each in answers] == [
        (3, False, "plain, orders"),
        (3, True, "plain, orders"),
    ]
    assert (tables.rows("plain"), tables.rows("orders")) == ([(7, "x")], [(1, "a"), (2, "b")])
    with pytest.raises(WireError, match="is there already"):
        call(tables, header("other"))
    assert len(tables.rows("plain")) == 1


@pytest.mark.parametrize(("place", "changed", "text"), [
    (0, {"operation": "delete"}, "may not"),
    (1, {"operation": "", "sections": [pb.WriteSection(operation="delete", rows=2)]}, "may not"),
    (1, {"sections": [pb.WriteSection(operation="insert", rows=2)]}, "one operation, or sections"),
    (1, {"table_id": "another"}, "TABLE_CHANGED|made anew"),
    (1, {"table": "absent"}, "has no table absent"),
    (1, {"table": ""}, "each with its name"),
    (1, {"table": "plain"}, "names each once"),
    (1, {"size": 0}, "the size of its body"),
    (1, {"size": 4 << 20}, "at most 4194304 bytes"),
    (0, {"size": 5}, "cannot be read"),
])  # fmt: skip
def test_each_table_of_a_call_is_checked(tables: Written, place: int, changed: dict[str, Any], text: str) -> None:
    before = tables.rows("plain"), tables.rows("orders")
    asked = header("checked")
    part = asked.tables[place]
    for name, value in changed.items():
        part.sections.extend(value) if name == "sections" else setattr(part, name, value)
    with pytest.raises(WireError, match=text):
        call(tables, asked)
    assert (tables.rows("plain"), tables.rows("orders")) == before


def _refuse_lookup(*_: object) -> Any:
    raise QueryRefused("a table was looked for")


@pytest.mark.parametrize(("names", "text", "sqlstate"), [
    (["plain"] * 100_000, "at most 16 tables", "54000"),
    ([f"t{number}" for number in range(17)], "at most 16 tables", "54000"),
    (["plain", "orders", "plain"], "names each once", "42000"),
])  # fmt: skip
def test_a_list_of_tables_is_looked_at_before_its_tables(
    tables: Written, names: list[str], text: str, sqlstate: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The search for them takes time of all callers."""

    monkeypatch.setattr(Inserts, "_resolve", _refuse_lookup)
    asked = header("k", tables=[pb.WriteTable(table=name, operation="insert", size=1) for name in names])
    with pytest.raises(WireError, match=text) as refused:
        call(tables, asked)
    assert refused.value.sqlstate == sqlstate


def test_sections_are_counted_before_tables_are_looked_at(tables: Written, monkeypatch: pytest.MonkeyPatch) -> None:
    """In all tables together."""
    monkeypatch.setattr(Inserts, "_resolve", _refuse_lookup)
    sections = [pb.WriteSection(operation="insert", rows=1)] * 5_001
    parts = [pb.WriteTable(table=name, sections=sections, size=1) for name in ("plain", "orders")]
    for asked in (header("k", tables=[], table="plain", sections=sections * 2), header("k", tables=parts)):
        with pytest.raises(WireError, match="10000 sections") as refused:
            call(tables, asked)
        assert refused.value.sqlstate == "54000"


def _wide_and_deep(id: int) -> tuple[pb.InsertHeader, bytes]:
    """A call, and its body."""
    body = f"id\n{id}\n".encode()
    parts = [pb.WriteTable(table=name, operation="insert", size=len(body)) for name in ("wide", "deep")]
    return header(f"k{id}", tables=parts), body * 2


def test_the_answer_waits_until_all_tables_have_the_rows(tables: Written, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first table has the rows at once, and the other one later."""
    shards, waited, free = tables.server.running.shards, list[str](), asyncio.Event()

    async def wait_beyond(id: str, time: int) -> None:
        waited.append(id)
        if len(waited) > 1:
            await free.wait()

    monkeypatch.setattr(shards, "wait_beyond", wait_beyond)
    monkeypatch.setattr(insert, "VISIBLE_SECONDS", 100 * BOUND)
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(call, tables, *_wide_and_deep(1))
        until(lambda: len(waited) == 2 or answer.done())
        assert not answer.done()
        tables.server.loop.call(free.set)
        assert answer.result(BOUND).rows == 2
    assert len(set(waited)) == 2


def test_the_answer_waits_for_all_tables_as_long_as_for_one(tables: Written, monkeypatch: pytest.MonkeyPatch) -> None:
    waited = list[str]()

    async def wait_beyond(id: str, time: int) -> None:
        waited.append(id)
        await asyncio.Event().wait()

    monkeypatch.setattr(tables.server.running.shards, "wait_beyond", wait_beyond)
    monkeypatch.setattr(insert, "VISIBLE_SECONDS", 0.1)
    assert call(tables, *_wide_and_deep(2)).rows == 2
    assert len(waited) == 1  # the time is over


def test_a_header_is_of_one_table_or_of_several(tables: Written) -> None:
    for changed in ({"table": "plain"}, {"operation": "insert"}, {"must_find": 1}, {"tables": header("k").tables[:1]}):
        with pytest.raises(WireError, match=r"each of its tables|has several"):
            call(tables, header("one", **changed))
