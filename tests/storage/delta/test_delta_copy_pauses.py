"""A table whose files are gone as soon as they are read is copied with growing pauses; the other tables go on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable as Table
from deltalake import write_deltalake

from tests.storage.delta.copied_tables import Gapped, ids
from tests.storage.ingestion_samples import oks
from tests.waiting import until
from tidemark_replica.storage.delta.copies import pauses
from tidemark_replica.storage.delta.copies.pauses import PAUSE_SECONDS_MAX, QUIET_SECONDS, CopyPauses
from tidemark_replica.storage.delta.reading import RowReader


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time in seconds, which stands still."""
    now = [1000.0]
    monkeypatch.setattr(pauses, "monotonic", lambda: now[0])
    monkeypatch.setattr(pauses, "PAUSE_SECONDS", 1.0)
    return now


class Vacuuming:
    """A writer that overwrites and vacuums the table `big` when somebody is about to read it. `reads`: how often."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, path: str) -> None:
        self.reads, self.is_on, read = 0, True, RowReader.updates

        def vacuumed(reader: RowReader, *arguments: Any, **more: Any) -> Any:
            if self.is_on and reader.storage.location == path:
                self.reads += 1
                write_deltalake(path, ids(self.reads), mode="overwrite")
                Table(path).vacuum(0, dry_run=False, enforce_retention_duration=False)
            return read(reader, *arguments, **more)

        monkeypatch.setattr(RowReader, "updates", vacuumed)


def test_a_table_that_vacuums_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clock: list[float]) -> None:
    gapped = Gapped(tmp_path, monkeypatch)
    writer, begun, said = Vacuuming(monkeypatch, gapped.big), list[float](), set[str]()
    for _ in range(34):
        before = writer.reads
        gapped.ticks()
        until(lambda: (copy := gapped.copies.find("big")) is None or copy.has_ended)
        gapped.ticks()
        begun += [clock[0] - 1000] * (writer.reads - before)
        said |= {gapped.one._source.warning()} if writer.reads == before else set()
        clock[0] += 1
    assert begun == [0, 1, 3, 7, 15, 31]
    assert all("VersionGone: table big: file" in text and text.endswith(", after a pause") for text in said)
    assert oks(tmp_path, "big") == gapped.before

    writer.is_on = False
    clock[0] += PAUSE_SECONDS_MAX
    gapped.settles()
    gapped.ticks()
    assert oks(tmp_path, "big") == gapped.rows()
    assert gapped.one._source.warning() == ""


def test_pauses_grow_while_copies_follow_one_another(clock: list[float]) -> None:
    """A copy may take long. After a quiet minute the next one begins at once again. Each table has its own."""
    kept, found = CopyPauses(), list[float]()
    for _ in range(8):
        kept.note_begin("a")
        clock[0] += 500
        kept.note_end("a")
        found.append(kept.seconds_left("a"))
        clock[0] += found[-1] + 1
    assert found == [0, 1, 2, 4, 8, 16, 30, 30]
    assert (kept.seconds_left("a"), kept.seconds_left("b")) == (0, 0)
    clock[0] += QUIET_SECONDS
    kept.note_begin("a")
    kept.note_end("a")
    assert kept.seconds_left("a") == 0
