"""A step's runs, read back as ranges of whole keys."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from tests.arrangement.histories import A, Driver
from tidemark_replica.arrangement.rows.layout import Layout
from tidemark_replica.arrangement.rows.updates import make_updates
from tidemark_replica.arrangement.spines import spine
from tidemark_replica.arrangement.spines.manifest import Manifest
from tidemark_replica.arrangement.step_runs import FAN_IN, StepRuns
from tidemark_replica.kernels.arrange import sorted_rows

LAYOUT = Layout.of_rows([pa.int64()], ())
ROWS = spine.RANGE_ROWS * 2 // FAN_IN + 1


def test_a_key_longer_than_a_segment_comes_in_one_range(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Eight chunks of one key become one run of several segments: a reader of groups still sees the group whole."""
    monkeypatch.setattr(spine, "SEGMENT_BYTES", 1)
    driver = Driver(tmp_path, Manifest.empty(A, LAYOUT, 2))
    runs = StepRuns(driver.context(2, 9, hydration=True), A)
    for chunk in range(FAN_IN):
        values = pa.array(np.arange(chunk * ROWS, (chunk + 1) * ROWS))
        rows = make_updates([values], np.full(ROWS, 2), np.ones(ROWS, np.int64))
        runs.add(sorted_rows(rows, LAYOUT))

    assert len(list(runs.segments())) > 1
    assert [part.num_rows for part in runs.consolidated(1 << 16)] == [FAN_IN * ROWS]
