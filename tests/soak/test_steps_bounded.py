"""Dataflows under many steps: their disk use follows the live data, not the number of steps.

tick, tick, tick, ...  (forced, without waiting)  ──►  files, rows and folders of scratch, counted
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from tests.oracle.harness import INDEX, DataflowHarness, harness
from tests.oracle.histories import random_history
from tests.oracle.plans import GET_T, GET_U, counted, joined
from tests.oracle.tables import TU
from tests.stored_files import live_files, stored_files
from tidemark_protocol.frontier import Frontier
from tidemark_replica.arrangement.spines.manifest import Manifest
from tidemark_replica.arrangement.spines.spine import FAN_IN, SMALL_ROWS

pytestmark = pytest.mark.spark

TICKS = 60
# what is read of an index: so many times before its upper
READABLE = 20
HISTORY = random_history(TU, 11, times=TICKS)


def on_disk(made: DataflowHarness) -> set[str]:
    """Every file of the arrangement store."""
    root = made.store.directory
    return stored_files(root)


def batches_at_most(manifest: Manifest) -> int:
    """Sizes at least double along a spine, but for small ones, of which eight are merged."""
    return FAN_IN + math.ceil(math.log2(1 + manifest.rows / SMALL_ROWS))


def test_a_dataflow_stepped_for_long_keeps_live_rows_alone(spark: Any, tmp_path: Path) -> None:
    """After every tick scratch holds the manifests' files and no others, with nothing swept; they stay few."""
    with harness(spark, tmp_path, TU, HISTORY) as made:
        dataflow = made.build(made.describe(joined(counted(GET_T), counted(GET_U))))
        for time in HISTORY.times:
            made.step(dataflow, time + 1).release()
            dataflow.compact(INDEX, Frontier.at(max(time - READABLE, HISTORY.as_of)))

            manifests = made.store.arrangements()
            assert on_disk(made) == live_files(manifests)
            assert all(len(m.batches) <= batches_at_most(m) for m in manifests)
        assert list((tmp_path / "scratch").glob("*/steps/*")) == []
