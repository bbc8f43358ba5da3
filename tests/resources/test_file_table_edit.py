"""Columns that are added to tables of files: a successor has them, or the reason why not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.protocol.samples import INGESTION
from tests.resources.test_table_edit import COLUMNS, ingested, names_of
from tidemark_operator.planning.table_edit import TableEdit, removable, table_edit, with_more_columns
from tidemark_protocol.plan.ingestion import FilesSource, FilesTable, IngestionDescription, Option, SourceTable
from tidemark_protocol.plan.successors import dead_letters
from tidemark_protocol.types import BIGINT, DOUBLE, Column


def of_files(*tables: FilesTable, removed: tuple[str, ...] = ()) -> IngestionDescription:
    names = [name for t in tables for name in (t.name, dead_letters(t.name))[: 1 + (t.on_bad_record != "error")]]
    return replace(INGESTION, source=FilesSource(tables), tables=tuple(map(ingested, names)), removed=removed)


HEADER = (Option("header", "true"),)
MORE = (Column("m", BIGINT), *COLUMNS)


def test_columns_are_added_to_a_table_of_files() -> None:
    """A successor has them, and knows which they are. The order is no edit."""
    spec = FilesTable("d", "json", "/in")
    first = replace(spec, columns=COLUMNS)
    for same in (spec, first, replace(first, columns=COLUMNS[::-1])):
        assert table_edit(of_files(first), FilesSource((same,))).is_empty
    wanted = FilesSource((replace(spec, columns=MORE),))
    second = replace(spec, name="d.2", columns=MORE, added=("m",))
    assert table_edit(of_files(first), wanted) == TableEdit(added=FilesSource((second,)))
    edit = table_edit(of_files(first, second), wanted)
    assert (edit.added, names_of(edit), edit.refused) == (None, ["d"], "")
    for same in (wanted, FilesSource((spec,))):
        assert table_edit(of_files(second, removed=("d",)), same).is_empty
    csv = replace(first, format="csv", options=HEADER)
    edit = table_edit(of_files(csv), FilesSource((replace(csv, columns=MORE),)))
    assert edit.added == FilesSource((replace(csv, name="d.2", columns=MORE, added=("m",)),))
    last = (*MORE, Column("l", BIGINT))
    edit = table_edit(of_files(first, second), FilesSource((replace(spec, columns=last),)))
    assert edit.added == FilesSource((replace(spec, name="d.3", columns=last, added=("m", "l")),))


def test_a_table_of_files_evolves() -> None:
    """Columns that were there stay in their places, for nothing is inferred again."""
    first = FilesTable("d", "parquet", "/in", columns=COLUMNS)
    found = [SourceTable("d", MORE)]
    second = replace(first, name="d.2", columns=(*COLUMNS, MORE[0]), added=("m",))
    assert with_more_columns(of_files(first), found, ["d"]) == [second]
    assert table_edit(of_files(second, removed=("d",)), FilesSource((replace(first, columns=None),))).is_empty
    assert with_more_columns(of_files(first, second), found, ["d"]) == []
    assert with_more_columns(of_files(first), [SourceTable("d", (Column("m", BIGINT),))], ["d"]) == []
    assert with_more_columns(of_files(first), [], ["d"]) == []


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"columns": (Column("m", BIGINT),)}, "column n is another one, or gone"),
        ({"columns": (Column("n", DOUBLE), Column("m", BIGINT))}, "column n is another one, or gone"),
        ({"columns": MORE, "format": "csv"}, "columns of csv without a header are known by their places"),
        ({"columns": (), "format": "csv", "options": HEADER}, "the columns of csv stay in their order"),
    ],
)
def test_other_edits_of_columns_of_files_are_refused(changes: dict[str, Any], why: str) -> None:
    first = replace(FilesTable("d", "json", "/in"), **{**changes, "columns": COLUMNS})
    edit = table_edit(of_files(first), FilesSource((replace(first, **changes),)))
    assert (edit.added, edit.reason) == (None, "ColumnsNotAdded")
    assert edit.refused.startswith(f"table d: {why}")
    edit = table_edit(of_files(first), FilesSource((replace(first, columns=MORE, pattern="*.json"),)))
    assert (edit.added, edit.reason) == (None, "TableNameUsed")


def test_a_table_of_files_and_its_dead_letters_go_once_both_successors_have_begun() -> None:
    tables = (FilesTable(name, "json", "/in", columns=COLUMNS, on_bad_record="deadLetter") for name in ("d", "d.2"))
    now = of_files(*tables)
    assert [table.table.name for table in now.tables] == ["d", "d_dead_letter", "d.2", "d_dead_letter.2"]

    def gone(read: str, *begun: str) -> list[str]:
        found = removable(now, now.tables[:2], read.split(), lambda table: table.table.name in begun)
        return [table.table.name for table in found]

    assert gone("") == gone("", "d.2") == gone("", "d_dead_letter.2") == gone("d", "d.2", "d_dead_letter.2") == []
    assert gone("", "d.2", "d_dead_letter.2") == ["d", "d_dead_letter"]
