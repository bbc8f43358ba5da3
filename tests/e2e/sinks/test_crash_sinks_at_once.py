"""Database, broker, ingester, computing replica and operator are killed at one moment while views are published and
written to PostgreSQL and Kafka: each state that is read there is one that the view had (bank_with_sinks.py)."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.sinks.bank_with_sinks import survive
from tests.e2e.sources.bank import Bank
from tidemark_devcluster.control_plane.control_plane import ControlPlane

pytestmark = [pytest.mark.e2e, pytest.mark.spark, pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(3600)]


@pytest.mark.parametrize("seed", [0, 1])
def test_crash_all_at_one_moment(control_plane: ControlPlane, tmp_path: Path, seed: int) -> None:
    survive(control_plane, tmp_path, seed, Bank.kill_at_once, rounds=6, each=6)
