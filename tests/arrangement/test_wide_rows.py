"""Rows of long texts: an Arrow column of texts ends at 2 GiB, so wide rows are handled fewer at a time."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from tests.arrangement.histories import A, Driver
from tests.arrangement.histories import updates as updates_of
from tidemark_replica.arrangement.batches.batch import Segment
from tidemark_replica.arrangement.rows import updates
from tidemark_replica.arrangement.rows.layout import Layout
from tidemark_replica.arrangement.rows.updates import rechunk
from tidemark_replica.arrangement.spines.manifest import ArrangementId, Manifest
from tidemark_replica.arrangement.spines.spine import merge_segments
from tidemark_replica.kernels.arrange import sorted_rows
from tidemark_replica.kernels.joins.join import JoinInput, JoinSide, JoinSpec, join

B = ArrangementId("b")
LAYOUT = Layout.of_rows([pa.int64(), pa.string()], [0])
WIDE, ROOM = 1000, 10_000


def wide(rows: int, key: int | None = None) -> pa.RecordBatch:
    """Rows of a thousand bytes each, of one key or of many."""
    texts = [((i if key is None else key, f"{i:04}" * (WIDE // 4)), 5, 1) for i in range(rows)]
    return updates_of(list(LAYOUT.types), texts)


@pytest.fixture(autouse=True)
def little_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(updates, "CHUNK_BYTES", ROOM)


def test_chunks_end_where_they_would_be_too_large() -> None:
    """Both many small batches and one large one; no row is lost."""
    for stream in ([wide(1)] * 40, [wide(40)]):
        chunks = [chunk for _, chunk in rechunk(((None, b) for b in stream), 1000)]

        assert sum(c.num_rows for c in chunks) == 40
        assert max(c.nbytes for c in chunks) <= ROOM
        assert len(chunks) < 10


def test_merges_hold_fewer_of_them() -> None:
    """The rows are of many keys, and of one that is cut by the rows themselves."""
    for key in (None, 7):
        runs = [Segment.of(sorted_rows(wide(40, key), LAYOUT)) for _ in range(3)]
        merged = list(merge_segments(runs, LAYOUT, 5))

        assert sum(m.num_rows for m in merged) == 40
        assert max(m.nbytes for m in merged) <= 3 * ROOM


@pytest.mark.parametrize("long_side", list(JoinSide))
def test_a_wide_row_that_meets_many_is_copied_a_few_times_at_once(tmp_path: Path, long_side: JoinSide) -> None:
    """One wide row on either side, and a hundred narrow ones of its key."""
    driver = Driver(tmp_path, Manifest.empty(A, LAYOUT, 2), Manifest.empty(B, LAYOUT, 2))
    spec = JoinSpec(JoinInput(A, (1,)), JoinInput(B, (1,)))
    narrow = updates_of(list(LAYOUT.types), [((1, str(i)), 5, 1) for i in range(100)])
    sides = {long_side: wide(1, 1), long_side.other: narrow}
    made = list(join(driver.context(2, 9, hydration=True), spec, [(side, sides[side]) for side in JoinSide]))

    assert sum(m.num_rows for m in made) == 100
    assert max(m.nbytes for m in made) <= ROOM + WIDE
