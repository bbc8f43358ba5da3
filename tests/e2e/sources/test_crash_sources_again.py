"""Database, broker, ingester, computing replica and operator are killed again while they start: each answer
is a state that the ledger had, at the end each row is there once (bank.py)."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.sources.bank import Bank, survive
from tidemark_devcluster.control_plane.control_plane import ControlPlane

pytestmark = [pytest.mark.e2e, pytest.mark.spark, pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(3600)]


@pytest.mark.parametrize("seed", [4, 5])
def test_crash_again_while_they_start(control_plane: ControlPlane, tmp_path: Path, seed: int) -> None:
    survive(control_plane, tmp_path, seed, Bank.kill_again, rounds=6, each=12)
