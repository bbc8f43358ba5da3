"""A peek during merges, compaction and the end of its index reads its first version, each row once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.oracle.harness import INDEX
from tests.oracle.histories import random_history
from tests.oracle.plans import GET_T
from tests.oracle.tables import T
from tests.oracle.variants.in_process import InProcessHarness, in_process
from tests.stored_files import stored_files
from tidemark_protocol.frontier import Frontier
from tidemark_protocol.ids import Time
from tidemark_protocol.messages.commands import IndexTarget, Peek
from tidemark_protocol.messages.planning import Finishing
from tidemark_protocol.plan.lir import MapFilterProject
from tidemark_replica.arrangement.spines.trace import Trace
from tidemark_replica.peek.collection_reader import ReadContext, read_index
from tidemark_replica.render.dataflow import RenderedDataflow

HISTORY = random_history({"t": T}, 8, times=14, changes=6)
BEFORE, END = HISTORY.times[9], HISTORY.last + 1


def go_on(of: InProcessHarness, exporter: RenderedDataflow) -> None:
    """Steps that merge, all compaction there can be, and then the index is gone."""
    for upper in (*HISTORY.times[10:], END):
        of.step(exporter, upper).release()
        exporter.compact(INDEX, Frontier.at(upper - 1))
    exporter.drop()
    of.store.sweep(())


def test_crash_a_peek_reads_on_while_its_index_is_merged_and_dropped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Errors have been read, rows have not: everything happens in between; then the files go."""
    with in_process(tmp_path, {"t": T}, HISTORY) as of:
        exporter = of.build(of.describe(GET_T))
        for upper in HISTORY.times[1:10]:
            of.step(exporter, upper).release()
        index = exporter.indexes[INDEX]
        began = set(index.manifest.files)
        rows_at = Trace.rows_at
        left: list[set[str]] = []

        def interrupted(trace: Trace, as_of: int, *share: Any, **options: Any) -> Iterator[Any]:
            go_on(of, exporter)
            left.append(files(of))
            yield from rows_at(trace, as_of, *share, **options)

        monkeypatch.setattr(Trace, "rows_at", interrupted)
        peek = Peek(
            "u", IndexTarget(INDEX), Time(BEFORE - 1), MapFilterProject.identity(T.schema), Finishing(), index.columns
        )
        found = pa.Table.from_batches(list(read_index(ReadContext(lambda: None, 1 << 20), index, peek)))

        expected = Counter(HISTORY.rows_at("t", BEFORE - 1))
        assert expected
        assert Counter(zip(*(c.to_pylist() for c in found.columns), strict=True)) == expected
        assert left == [began]
        assert files(of) == set()


def files(of: InProcessHarness) -> set[str]:
    return stored_files(of.store.directory)
