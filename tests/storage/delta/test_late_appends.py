"""An append that had failed lands later, while a thread copies the table: each row is there once.

the store answers an error ──► a copy begins ──► the store takes the append after all ──► the copy must not fit
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.storage.delta.copied_tables import Added, Gapped, Gate
from tests.storage.delta.test_delta_resnapshots import closed, gate
from tests.storage.ingestion_samples import oks
from tests.waiting import until
from tidemark_persist import Shard, StagedFile, StorageError, create_or_open
from tidemark_protocol.ids import Time
from tidemark_replica.storage.errors import SourceUnusable
from tidemark_replica.storage.ingester import Ingester

__all__ = ["gate"]


def test_an_append_during_a_resnapshot_is_withdrawn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gate: Gate
) -> None:
    gapped = Gapped(tmp_path, monkeypatch)
    closed(gate)
    gapped.ticks()
    gate.open()
    until(lambda: (copy := gapped.copies.find("big")) is not None and copy.is_whole)
    store = _of_another_handle(gapped, "big")
    upper = Time(store.state().upper)
    late = pa.table({"id": [5000], "__time": [int(upper)], "__diff": [1]})
    store.compare_and_append(late, expected_upper=upper, new_upper=Time(upper + 1), term=gapped.one._term)
    gapped.settles()
    assert oks(tmp_path, "big") == gapped.rows()


@pytest.mark.parametrize("is_copied", [False, True])
def test_first_rows_that_land_during_the_next_copy_are_there_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gate: Gate, is_copied: bool
) -> None:
    added = Added(tmp_path, monkeypatch)
    gate.open()
    lost = _LostAppend(monkeypatch)
    with pytest.raises(StorageError):
        added.ticks_on()
    closed(gate)
    added.again()
    added.ticks()
    assert added.copies.find("big") is not None
    lost.land(_of_another_handle(added, "big"), added.one._term)
    gate.open()
    if is_copied:
        until(lambda: (copy := added.copies.find("big")) is not None and copy.is_whole)
    with suppress(SourceUnusable):  # another ingester takes the source up
        added.settles()
    added.again()
    added.settles()
    assert set(Counter(oks(tmp_path, "big")).values()) == {1}


def _of_another_handle(tables: Added | Gapped, name: str) -> Shard:
    ((_, shard),) = [each for each in tables.one.table_shards() if each[1].location.endswith(name)]
    return create_or_open(shard.location, shard.schema, shard_id=shard.shard_id)


class _LostAppend:
    """The first append of the table `big`: the store answers an error, and takes it later."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self._kept: list[tuple[Any, Time, Time, Time | None]] = []
        append = Ingester._append

        def fail(
            ingester: Ingester,
            shard: Shard,
            data: Sequence[StagedFile],
            lower: Time,
            upper: Time,
            since: Time | None = None,
            *more: Any,
        ) -> None:
            if shard.location.endswith("big") and data and not self._kept:
                self._kept.append((data, lower, upper, since))
                raise StorageError("the store is away")
            append(ingester, shard, data, lower, upper, since, *more)

        patch.setattr(Ingester, "_append", fail)

    def land(self, shard: Shard, term: Any) -> None:
        ((data, lower, upper, since),) = self._kept
        shard.compare_and_append(data, expected_upper=lower, new_upper=upper, term=term, since=since)
