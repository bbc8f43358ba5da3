"""Database, broker, ingester, computing replica and operator are killed at one moment: each answer
is a state that the ledger had, at the end each row is there once (bank.py)."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.sources.bank import Bank, survive
from tidemark_devcluster.control_plane.control_plane import ControlPlane

pytestmark = [pytest.mark.e2e, pytest.mark.spark, pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(3600)]


@pytest.mark.parametrize("seed", [2, 3])
def test_crash_all_at_one_moment(control_plane: ControlPlane, tmp_path: Path, seed: int) -> None:
    survive(control_plane, tmp_path, seed, Bank.kill_at_once, rounds=5, each=5)
