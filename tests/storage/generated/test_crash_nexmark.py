"""An ingester of Nexmark that dies anywhere leaves neither gap nor duplicate, and a tick has the events before it."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from tests.storage.dying_appends import die_after
from tests.storage.ingestion_samples import contents, description
from tidemark_persist import DIFF, TIME, ShardWriters, open_shard, read_part
from tidemark_protocol.ids import Time, WriterTerm
from tidemark_protocol.plan.ingestion import NexmarkSource
from tidemark_replica.storage.errors import NotDefinite
from tidemark_replica.storage.ingester import Ingester
from tidemark_replica.storage.nexmark import source as nexmark
from tidemark_replica.storage.nexmark.events import Auctioneer
from tidemark_replica.storage.nexmark.source import NexmarkIngestion
from tidemark_replica.storage.nexmark.tables import TABLES

SPEC = NexmarkSource(500, 7)
FIRST = 1_700_000_000_000


def ingester(root: Path, term: int = 1, spec: NexmarkSource = SPEC) -> Ingester:
    """A new one, as a new process would make it."""
    of = description(root, spec, tuple(TABLES.values()))
    return Ingester(of, WriterTerm(term), NexmarkIngestion(spec), ShardWriters())


def ticks(root: Path) -> dict[int, dict[str, int]]:
    """The binding that was minted at each time."""
    remap = open_shard(f"{root}/remap")
    parts = remap.listen(0, remap.state().upper)
    return {r[TIME]: r for p in parts for b in read_part(p) for r in b.to_pylist() if r[DIFF] > 0}


def check(root: Path) -> dict[int, int]:
    """Every table, at every binding, has the events of the binding. Returns their numbers by time."""
    bound = ticks(root)
    for name in TABLES:
        for at, row in bound.items():
            rows = Auctioneer(SPEC.seed, SPEC.events_per_second, row["began"]).rows(name, 0, row["events"])
            expected = pa.Table.from_batches([rows]).sort_by([(n, "ascending") for n in rows.schema.names])
            found = contents(root, name, at)
            assert set(found.column(DIFF).to_pylist()) <= {1}
            found = found.select(rows.schema.names).sort_by([(n, "ascending") for n in rows.schema.names])
            assert found.combine_chunks().equals(expected.combine_chunks()), (name, at)
    return {at: row["events"] for at, row in bound.items()}


def test_a_tick_has_the_events_before_it(tmp_path: Path) -> None:
    """The events begin at the first tick; another process goes on with them, and a tick is taken once."""
    one = ingester(tmp_path)
    one.recover()
    assert one.tick(Time(FIRST))
    assert one.tick(Time(FIRST + 500))
    two = ingester(tmp_path, term=2)
    two.recover()
    assert two.tick(Time(FIRST + 1100))
    assert not two.tick(Time(FIRST + 1100))

    assert check(tmp_path) == {FIRST: 0, FIRST + 500: 250, FIRST + 1100: 550}


@pytest.mark.parametrize("died_after", range(1, 13))
def test_crash_after_any_append_the_next_ingester_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, died_after: int
) -> None:
    """Each tick makes four appends (the remap and three tables); the process dies after the n-th."""
    one = ingester(tmp_path)
    one.recover()
    die_after(monkeypatch, died_after)
    with pytest.raises(KeyboardInterrupt):
        _ = [one.tick(Time(FIRST + after)) for after in (0, 500, 1000, 1500)]
    monkeypatch.undo()
    two = ingester(tmp_path, term=died_after % 2 + 1)
    two.recover()
    assert two.tick(Time(FIRST + 2000))

    assert check(tmp_path)[FIRST + 2000] == 1000


def test_after_a_pause_ticks_catch_up_and_say_how_far_they_are_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No event is left out, and a tick has a bounded number of them, made in bounded batches."""
    monkeypatch.setattr(nexmark, "MAX_EVENTS", 700)
    monkeypatch.setattr(nexmark, "BATCH", 300)
    source = NexmarkIngestion(SPEC)
    one = Ingester(description(tmp_path, SPEC, tuple(TABLES.values())), WriterTerm(1), source, ShardWriters())
    one.recover()
    one.tick(Time(FIRST))
    behind = {}
    for after in (2000, 2001, 2002, 4000):
        one.tick(Time(FIRST + after))
        behind[after] = source.progress()["bid"].behind

    assert behind == {2000: 300, 2001: 0, 2002: 0, 4000: 299}
    assert check(tmp_path) == {FIRST: 0, FIRST + 2000: 700, FIRST + 2001: 1001, FIRST + 4000: 1701}


@pytest.mark.parametrize("other", [NexmarkSource(500, 8), NexmarkSource(501, 7)])
def test_other_settings_are_refused_instead_of_changing_history(tmp_path: Path, other: NexmarkSource) -> None:
    """The remap pins what made the data."""
    one = ingester(tmp_path)
    one.recover()
    one.tick(Time(FIRST))

    with pytest.raises(NotDefinite, match="restore the DataSource"):
        ingester(tmp_path, 2, other).recover()
