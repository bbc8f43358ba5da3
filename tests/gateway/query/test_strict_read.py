"""Strict queries: the source tables of a statement, and the earliest time of its answer."""

from __future__ import annotations

import pytest

from tests.controller.harness import at
from tests.gateway.registries import add_dataflow, registry
from tidemark_operator.errors import NoCompleteTime
from tidemark_operator.gateway.query.read_time import ReadableTimes, TimeRequest, choose_time
from tidemark_operator.gateway.query.strict_read import source_tables_of
from tidemark_protocol.ids import GlobalId, Time


def locations(reads: GlobalId, known: object) -> list[str]:
    return sorted(s.location for s in source_tables_of(known, "ns", [reads]))  # type: ignore[arg-type]


def test_the_tables_behind_a_relation_are_found_through_views_and_indexes() -> None:
    """A table itself; a view over a table; an index over a view and an index; nothing for constants."""
    known = registry()
    view = add_dataflow(known, "view-a", shards=("s.a",))
    index = add_dataflow(known, "i", shards=("s.b",))
    top = add_dataflow(known, "top", shards=("view-a",), indexes=(index,))

    assert locations(GlobalId("s.a"), known) == ["/data/s.a"]
    assert locations(view, known) == ["/data/s.a"]
    assert locations(index, known) == ["/data/s.b"]
    assert locations(top, known) == ["/data/s.a", "/data/s.b"]
    assert locations(GlobalId("gone"), known) == []


def test_a_task_that_reads_its_own_table_comes_to_an_end() -> None:
    """The tables that it watches are those behind it."""
    known = registry()
    task = add_dataflow(known, "view-log", shards=("s.a", "view-log"))
    assert locations(task, known) == ["/data/s.a"]


def test_a_strict_query_waits_until_all_that_was_ingested_is_complete() -> None:
    """Complete before 100 has everything up to 99; the freshest time is taken, not the least."""
    spans = [ReadableTimes("d.d", at(10), at(100))]

    assert choose_time(spans, TimeRequest(earliest=Time(99))) == 99
    assert choose_time(spans, TimeRequest(earliest=Time(50))) == 99
    with pytest.raises(NoCompleteTime, match=r"d\.d is complete before 100 .* why d\.d"):
        choose_time(spans, TimeRequest(earliest=Time(100)))
