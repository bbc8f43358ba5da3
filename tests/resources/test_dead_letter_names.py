"""Names of tables beside those of dead letters."""

from __future__ import annotations

import pytest

from tests.resources.test_table_edit import pinned
from tidemark_operator.planning.table_edit import table_edit
from tidemark_protocol.plan.ingestion import FilesSource, FilesTable, IngestionDescription


@pytest.mark.parametrize(
    ("before", "wanted"),
    [
        (pinned("a"), (FilesTable("a", "csv", "/in"), FilesTable("a_dead_letter", "csv", "/in"))),
        (pinned("b", removed=("a",)), (FilesTable("b", "csv", "/in"), FilesTable("a_dead_letter", "csv", "/in"))),
        (
            pinned("b", removed=("c_dead_letter",)),
            (FilesTable("b", "csv", "/in"), FilesTable("c", "csv", "/in", on_bad_record="deadLetter")),
        ),
    ],
    ids=["of a table", "of a removed table", "of dead letters"],
)
def test_no_table_has_the_name_that_dead_letters_have_or_had(
    before: IngestionDescription, wanted: tuple[FilesTable, ...]
) -> None:
    edit = table_edit(before, FilesSource(wanted))
    assert edit.added is None
    assert "dead letters" in edit.refused
