"""Calls of several tables, through the gateway to the tables of a real ingester."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.pgwire.served import TOKEN
from tests.pgwire.written import MAY_INSERT, Written, written
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


def call(tables: Written, asked: pb.InsertHeader) -> Any:
    body = b"".join(BODIES.values())
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


def test_a_header_is_of_one_table_or_of_several(tables: Written) -> None:
    for changed in ({"table": "plain"}, {"operation": "insert"}, {"must_find": 1}, {"tables": header("k").tables[:1]}):
        with pytest.raises(WireError, match=r"each of its tables|has several"):
            call(tables, header("one", **changed))
