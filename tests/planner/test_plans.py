"""SQL in, LIR out: each file in plans/ holds cases of one topic, with their plans."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.planner.catalogue import one_view
from tests.planner.fixture_files import HERE, cases, check
from tidemark_planner.catalyst.analyser import Catalyst
from tidemark_planner.planning.dataflow import plan
from tidemark_protocol.functions.sql_text import to_sql
from tidemark_protocol.messages.planning import Planned
from tidemark_protocol.types import ColumnType

pytestmark = pytest.mark.spark


def outcome(catalyst: Catalyst, sql: str) -> str:
    planned = plan(catalyst, one_view(sql))
    assert isinstance(planned, Planned), planned
    imports = (f"import {i.id} {list(i.columns)}{' monotonic' if i.monotonic else ''}" for i in planned.source_imports)
    indexes = (f"import index {i.id} by {list(map(to_sql, i.key))}" for i in planned.index_imports)
    export = planned.exports[0]
    assert planned.objects[-1].plan.schema == tuple(ColumnType(c.type, c.nullable) for c in export.columns)
    columns = ", ".join(f"{c.name} {c.type}{'' if c.nullable else '!'}" for c in export.columns)
    marks = (" unique" if export.unique else "") + (" monotonic" if export.monotonic else "")
    last = f"export key={list(export.key)}{marks} ({columns})"
    return "\n".join([*imports, *indexes, planned.explain.replace("\n\n", "\n").strip("\n"), last])


@pytest.mark.parametrize("file", sorted((HERE / "plans").glob("*.txt")), ids=lambda file: file.stem)
def test_sql_becomes_this_plan(catalyst: Catalyst, file: Path) -> None:
    """The tree, the columns read of each import, and the export's key and columns."""
    check(file, [(case, outcome(catalyst, case.sql)) for case in cases(file)])
