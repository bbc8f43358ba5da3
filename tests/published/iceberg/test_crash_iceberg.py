"""Whenever a publisher dies, the Iceberg table has the rows of one time, and the next publication makes it equal to the
Delta table again. A catalogue that is away holds the Delta table up for moments only.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.exceptions import NoSuchTableError

from tests.published.iceberg.rest_catalogue import RestCatalogue, counted, rest_catalogue
from tests.published.test_oracle_partitions import PartitionedView
from tests.published.test_publication import View, contents
from tidemark_persist import Storage
from tidemark_protocol.ids import GlobalId, ShardId, Time, WriterTerm
from tidemark_protocol.plan.dataflow import ShardMetadata
from tidemark_protocol.plan.sinks.publish import PublishedView
from tidemark_protocol.types import BIGINT, Column
from tidemark_replica.shards.shards import ShardHandles
from tidemark_replica.sinks.published import iceberg_follower
from tidemark_replica.sinks.published.iceberg_catalogue import VARIABLE, StorageCatalogue
from tidemark_replica.sinks.published.iceberg_notes import noted_tables
from tidemark_replica.sinks.published.table_destination import TableDestination
from tidemark_replica.sinks.published.table_removal import remove_published
from tidemark_replica.storage.source_secrets import SourceSecrets

pytestmark = pytest.mark.iceberg
OWNER = "shop.flow.view"
NO_SECRETS = SourceSecrets(None)


class Killed(BaseException):
    """The process dies."""


def use(catalogue: RestCatalogue, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, f'{{"uri": "{catalogue.settings.uri}"}}')


def a_destination(view: View, folder: Path, table: str, by: tuple[str, ...] = ()) -> TableDestination:
    """The destination of a replica that has just started."""
    location = str(folder / "published")
    metadata = ShardMetadata(ShardId("u1"), view.shard.location, (Column("k", BIGINT),))
    published = PublishedView(location, OWNER, 1, 24, iceberg=table, partition_by=by)
    return TableDestination(GlobalId("uid/view/1"), metadata, published, ShardHandles(), NO_SECRETS)


def new_name() -> str:
    return f"sales.c{uuid.uuid4().hex}"


@pytest.mark.parametrize("by", [(), ("name",)], ids=["whole", "partitioned"])
@pytest.mark.parametrize("before", [True, False], ids=["before", "after"])
def test_whenever_it_dies(
    iceberg_catalogue: RestCatalogue,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    before: bool,
    by: tuple[str, ...],
) -> None:
    """It dies just before or after each write to the storage and each commit to the catalogue, one after the other."""
    use(iceberg_catalogue, monkeypatch)
    view, name = PartitionedView(tmp_path, 7), new_name()
    steps = [(Storage, "write"), (Storage, "write_json"), (StorageCatalogue, "commit_table")]
    deaths, seen = 0, set[int]()

    def dying(step: Callable[..., Any], at: int, count: list[int]) -> Callable[..., Any]:
        def run(*arguments: Any) -> Any:
            count[0] += 1
            if count[0] < at:
                return step(*arguments)
            if not before:
                step(*arguments)
            raise Killed

        return run

    for at in range(1, 7):
        time = Time(view.step(15))
        count = [0]
        with monkeypatch.context() as patched:
            for of, method in steps:
                patched.setattr(of, method, dying(getattr(of, method), at, count))
            try:
                a_destination(view, tmp_path, name, by).publish(time, WriterTerm(1))
            except Killed:
                deaths += 1
        try:
            rows = counted(iceberg_catalogue.rows(name))
            assert rows in (view.at[time], *(view.at[each] for each in seen))
        except NoSuchTableError:
            assert not seen
        reached = a_destination(view, tmp_path, name, by).publish(time, WriterTerm(1))
        assert (reached.time, reached.again_seconds) == (time, 0)
        assert counted(iceberg_catalogue.rows(name)) == view.at[time] == contents(tmp_path)
        seen.add(time)
    assert deaths >= 3


def test_a_catalogue_that_is_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The Delta table goes on; the status says what is wrong, and the next look mends it."""
    view, name = View(tmp_path, 8), new_name()
    with rest_catalogue(tmp_path / "catalogue") as catalogue:
        use(catalogue, monkeypatch)
        of = a_destination(view, tmp_path, name)
        first = of.publish(Time(view.step(5)), WriterTerm(1))
        assert first.fields["icebergTime"] == str(first.time)
        assert "problem" not in first.fields
        catalogue.stop()
        began = time.monotonic()
        second = of.publish(Time(view.step(5)), WriterTerm(1))
        third = of.publish(Time(view.step(5)), WriterTerm(1))  # in the pause: the catalogue is not asked
        assert time.monotonic() - began < 20
        assert contents(tmp_path) == view.at[third.time]
        for reached in (second, third):
            assert reached.again_seconds > 0
            assert reached.fields["reason"] == "IcebergFailed"
            assert reached.fields["icebergTime"] == str(first.time)
        catalogue.start()
        of.follower._backoff.end_pause()
        last = of.publish(third.time, WriterTerm(1))
        assert last.fields["icebergTime"] == str(third.time)
        assert last.again_seconds == 0
        assert counted(catalogue.rows(name)) == view.at[third.time]


def test_without_a_catalogue_the_delta_table_is_published(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    view = View(tmp_path, 9)
    reached = a_destination(view, tmp_path, "sales.none").publish(Time(view.step(5)), WriterTerm(1))
    assert "names no Iceberg catalogue" in reached.fields["problem"]
    assert contents(tmp_path) == view.at[reached.time]


def test_an_edit_of_the_name_drops_the_table_of_before(
    iceberg_catalogue: RestCatalogue, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An edit that takes `iceberg` away does so, too: that table's files would go with the next clean-ups."""
    use(iceberg_catalogue, monkeypatch)
    view, first, second = View(tmp_path, 10), new_name(), new_name()
    a_destination(view, tmp_path, first).publish(Time(view.step(5)), WriterTerm(1))
    at = Time(view.step(5))
    a_destination(view, tmp_path, second).publish(at, WriterTerm(2))
    assert counted(iceberg_catalogue.rows(second)) == view.at[at]
    with pytest.raises(NoSuchTableError):
        iceberg_catalogue.load(first)
    a_destination(view, tmp_path, "").publish(Time(view.step(5)), WriterTerm(3))
    with pytest.raises(NoSuchTableError):
        iceberg_catalogue.load(second)
    assert noted_tables(Storage.at(str(tmp_path / "published"))) == ()


def test_the_deletion_of_the_published_table(
    iceberg_catalogue: RestCatalogue, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It dies while it drops the Iceberg table; the next attempt finishes."""
    use(iceberg_catalogue, monkeypatch)
    view, name = View(tmp_path, 11), new_name()
    a_destination(view, tmp_path, name).publish(Time(view.step(5)), WriterTerm(1))

    def die(*_: object) -> None:
        raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(StorageCatalogue, "drop_table", die)
        with pytest.raises(Killed):
            remove_published(str(tmp_path / "published"), OWNER)
    assert counted(iceberg_catalogue.rows(name)) == view.at[0]
    remove_published(str(tmp_path / "published"), OWNER)
    with pytest.raises(NoSuchTableError):
        iceberg_catalogue.load(name)
    assert not (tmp_path / "published").exists()


def test_the_status_names_no_secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A catalogue that repeats the token in its answer."""
    folder = tmp_path / "secrets/catalogue"
    folder.mkdir(parents=True)
    (folder / "token").write_text("very-secret-token")
    monkeypatch.setenv(VARIABLE, '{"uri": "https://127.0.0.1:1/very-secret-token", "secret": "catalogue"}')
    view = View(tmp_path, 12)
    secrets = SourceSecrets(tmp_path / "secrets")
    of = replace(a_destination(view, tmp_path, "sales.none"), secrets=secrets)
    reached = of.publish(Time(view.step(5)), WriterTerm(1))
    assert reached.fields["reason"] == "IcebergFailed"
    assert "very-secret" not in reached.fields["problem"]
    assert iceberg_follower.SHARE_OF_TIME > 1
