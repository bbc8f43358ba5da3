"""SQL in, LIR out: each file in plans/ holds cases of one topic, with their plans."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.planner.catalogue import CATALOGUE, one_view
from tests.planner.fixture_files import HERE, cases, check
from tests.render.sharing.test_shared_subplans import reads_views
from tidemark_planner.catalyst.analyser import Catalyst
from tidemark_planner.lir.shared_subplans import share_subplans
from tidemark_planner.planning import assemble
from tidemark_planner.planning.dataflow import plan
from tidemark_protocol.explain import explain, explain_planned
from tidemark_protocol.functions.sql_text import to_sql
from tidemark_protocol.ids import GlobalId
from tidemark_protocol.messages.planning import Planned
from tidemark_protocol.plan.dataflow import BuildDesc
from tidemark_protocol.types import ColumnType

pytestmark = pytest.mark.spark


@pytest.fixture(autouse=True)
def plans_without_equal_parts_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    """The search for equal parts changes no plan that has none."""

    def checked(objects: Sequence[BuildDesc], tables: frozenset[GlobalId], id_prefix: str) -> tuple[BuildDesc, ...]:
        made = share_subplans(objects, tables, id_prefix)
        if len(made) == len(objects) and not reads_views(made, objects):
            assert made == tuple(objects)
        return made

    monkeypatch.setattr(assemble, "share_subplans", checked)


def outcome(catalyst: Catalyst, sql: str) -> str:
    planned = plan(catalyst, one_view(sql))
    assert isinstance(planned, Planned), planned
    check_printed_with_names(planned)
    imports = (f"import {i.id} {list(i.columns)}{' monotonic' if i.monotonic else ''}" for i in planned.source_imports)
    indexes = (f"import index {i.id} by {list(map(to_sql, i.key))}" for i in planned.index_imports)
    export = planned.exports[0]
    assert planned.objects[-1].plan.schema == tuple(ColumnType(c.type, c.nullable) for c in export.columns)
    columns = ", ".join(f"{c.name} {c.type}{'' if c.nullable else '!'}" for c in export.columns)
    marks = (" unique" if export.unique else "") + (" monotonic" if export.monotonic else "")
    last = f"export key={list(export.key)}{marks} ({columns})"
    return "\n".join([*imports, *indexes, planned.explain.replace("\n\n", "\n").strip("\n"), last])


def check_printed_with_names(planned: Planned) -> None:
    """The plan prints with the names of columns as it does by position, in as many lines but for
    their upkeep: no operator is unknown."""
    names = {r.id: tuple(c.name for c in r.columns) for r in CATALOGUE.relations}
    lines = re.sub(
        r"^ +(incremental|computed anew).*\n", "", explain_planned(planned, names).text(), flags=re.MULTILINE
    )
    body = lines[lines.index(f"{planned.objects[0].id} =") :]
    by_position = "\n".join(f"x\n{explain(o.plan)}" for o in planned.objects)
    assert len(body.split("\n")) == len(by_position.split("\n"))


@pytest.mark.parametrize("file", sorted((HERE / "plans").glob("*.txt")), ids=lambda file: file.stem)
def test_sql_becomes_this_plan(catalyst: Catalyst, file: Path) -> None:
    """The tree, the columns read of each import, the export's key and columns; and it prints with names."""
    check(file, [(case, outcome(catalyst, case.sql)) for case in cases(file)])
