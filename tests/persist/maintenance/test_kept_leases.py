"""A reader of hours keeps a short lease, also while its store is away for a moment."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.persist.maintenance.test_vacuum import Clock
from tidemark_persist.errors import StorageError
from tidemark_persist.maintenance import lease as leases
from tidemark_persist.maintenance.lease import Lease
from tidemark_persist.storage.storage import Storage


def test_a_renewal_that_fails_is_tried_again_while_the_lease_lasts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()
    monkeypatch.setattr(leases, "time", clock)

    def fail(self: Storage, path: str, value: Any) -> None:
        raise StorageError("away")

    with Lease(Storage.at(str(tmp_path)), 3, seconds=30) as lease:
        (file,) = (tmp_path / leases.LEASE_DIR).iterdir()
        with monkeypatch.context() as away:
            away.setattr(Storage, "write_json", fail)
            clock.now += 11
            lease.keep()
            clock.now += 10
            with pytest.raises(StorageError):
                lease.keep()
        lease.keep()
        assert json.loads(file.read_text())["expires_ms"] == int((clock.now + 30) * 1000)
