"""Tables that are added to a source that has been ingested for long, wherever the ingester ends."""

from __future__ import annotations

import shutil
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from tests.storage.delta.delta_tables import ingester, spec_of
from tests.storage.ingestion_samples import oks
from tidemark_persist import open_shard
from tidemark_protocol.ids import Time
from tidemark_protocol.plan.ingestion import DeltaSource, DeltaTable
from tidemark_replica.storage import ingester as module
from tidemark_replica.storage.delta.source import DeltaIngestion
from tidemark_replica.storage.errors import SourceUnusable


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    for name in ("a", "b"):
        write_deltalake(str(tmp_path / name), pa.table({"n": [1]}))
    return tmp_path


@pytest.fixture
def shards(tmp_path: Path) -> Path:
    return tmp_path / "shards"


def spec(lake: Path, *names: str) -> DeltaSource:
    return spec_of(*(DeltaTable(name, str(lake / name)) for name in names))


def upper(shards: Path, table: str) -> int:
    return int(open_shard(f"{shards}/{table}").state().upper)


@pytest.fixture
def old(lake: Path, shards: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A source of table a whose bindings were compacted, up to time 3000."""
    monkeypatch.setattr(module, "REMAP_SINCE_LAG_MS", 100)
    made = ingester(shards, spec(lake, "a"))
    made.recover()
    for time in range(1000, 3001, 100):
        write_deltalake(str(lake / "a"), pa.table({"n": [time]}), mode="append")
        made.tick(Time(time))
    made.compact_remap()
    assert open_shard(f"{shards}/remap").state().since > 2000


@pytest.mark.usefixtures("old")
def test_a_new_table_begins_with_its_first_binding(lake: Path, shards: Path) -> None:
    """At no time is the new table readable and empty. The other table goes on."""
    now = ingester(shards, spec(lake, "a", "b"), term=1)
    now.recover()
    assert (upper(shards, "a"), upper(shards, "b")) == (3001, 0)
    write_deltalake(str(lake / "a"), pa.table({"n": [7]}), mode="append")
    now.tick(Time(3100))

    assert oks(shards, "b") == [(1,)]
    assert len(oks(shards, "a")) == 23
    assert upper(shards, "a") == upper(shards, "b") == 3101


def test_recovery_of_the_others_does_not_make_it_readable(lake: Path, shards: Path) -> None:
    """It has none of the bindings that it is led through with the others."""
    one = ingester(shards, spec(lake, "a"))
    one.recover()
    for time in (1000, 1100):
        write_deltalake(str(lake / "a"), pa.table({"n": [time]}), mode="append")
        one.tick(Time(time))
    now = ingester(shards, spec(lake, "a", "b"), term=1)
    now.recover()
    assert (upper(shards, "a"), upper(shards, "b")) == (1101, 0)
    now.tick(Time(1200))
    assert oks(shards, "b") == [(1,)]


@pytest.mark.usefixtures("old")
def test_crash_between_the_first_binding_and_its_rows(
    lake: Path, shards: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process gives the table rows, of a newer version at a later time: nobody could read it before."""
    now = ingester(shards, spec(lake, "a", "b"), term=1)
    now.recover()
    with monkeypatch.context() as patch:
        patch.setattr(now, "_apply", lambda *_: None)
        now.tick(Time(3100))
        now.compact_remap()
    write_deltalake(str(lake / "b"), pa.table({"n": [2]}), mode="append")

    again = ingester(shards, spec(lake, "a", "b"), term=2)
    again.recover()
    assert (upper(shards, "a"), upper(shards, "b")) == (3101, 0)
    again.tick(Time(3200))
    assert oks(shards, "b", as_of=3200) == [(1,), (2,)]
    assert open_shard(f"{shards}/b").state().since == 3200


@pytest.mark.usefixtures("old")
@pytest.mark.parametrize("begins_anew", [False, True])
def test_a_table_that_lacks_its_first_rows_does_not_go_on(
    lake: Path, shards: Path, monkeypatch: pytest.MonkeyPatch, begins_anew: bool
) -> None:
    """It was removed between its first binding and its rows. Later it comes back, as another DataSource adopts it. Of a
    kind whose next binding has all rows, as Delta's, it goes on."""
    monkeypatch.setattr(DeltaIngestion, "begins_anew", lambda _: begins_anew)
    both = ingester(shards, spec(lake, "a", "b"), term=1)
    both.recover()
    with monkeypatch.context() as patch:
        patch.setattr(both, "_apply", lambda *_: None)
        both.tick(Time(3100))
    alone = ingester(shards, spec(lake, "a"), term=1)
    alone.recover()
    for time in range(3200, 3601, 100):
        write_deltalake(str(lake / "a"), pa.table({"n": [time]}), mode="append")
        alone.tick(Time(time))
    alone.compact_remap()
    if begins_anew:
        adopting = ingester(shards, spec(lake, "a", "b"), term=2)
        adopting.recover()
        adopting.tick(Time(3700))
        assert oks(shards, "b") == [(1,)]
        return

    with pytest.raises(SourceUnusable, match=r"table b lacks bindings that are gone: .* Move .*/b away"):
        ingester(shards, spec(lake, "a", "b"), term=2).recover()
    assert upper(shards, "b") == 0


@pytest.mark.usefixtures("old")
def test_a_removed_table_stands_still_while_the_other_goes_on(lake: Path, shards: Path) -> None:
    both = ingester(shards, spec(lake, "a", "b"), term=1)
    both.recover()
    both.tick(Time(3100))
    now = ingester(shards, spec(lake, "b"), term=1)
    now.recover()
    write_deltalake(str(lake / "b"), pa.table({"n": [2]}), mode="append")
    now.tick(Time(3200))

    assert upper(shards, "a") == 3101
    assert oks(shards, "b") == [(1,), (2,)]


@pytest.mark.usefixtures("old")
def test_a_stopped_table_does_not_make_the_others_read_its_bindings(
    lake: Path, shards: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may have stood still for days, and the ingestion begins anew every half minute."""
    both = ingester(shards, spec(lake, "a", "b"), term=1)
    both.recover()
    both.tick(Time(3100))
    spec_of_both = spec(lake, "a", "b")
    shutil.rmtree(lake / "b")
    for time in range(3200, 3601, 100):
        both.tick(Time(time))
    assert upper(shards, "b") == 3101

    now = ingester(shards, spec_of_both, term=1)
    monkeypatch.setattr(now, "_bindings", lambda *_: pytest.fail("no table lacks a binding that it can take"))
    now.recover()
    assert (upper(shards, "a"), upper(shards, "b")) == (3601, 3101)
