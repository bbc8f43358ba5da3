"""A replica's reports on its object store: a real one that answers, refuses, or is away."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest

from tests.persist.stores.test_mounted_settings import mount
from tests.replica.worker_loop import Loop
from tests.s3_server import S3Server
from tidemark_persist.storage import mounted_settings
from tidemark_protocol.ids import INSTANCE
from tidemark_protocol.messages.responses import Status
from tidemark_replica.shards import store_watch
from tidemark_replica.shards.store_watch import StoreWatch
from tidemark_replica.telemetry.status_repeater import StatusRepeater


class Scene:
    """A watch whose clock is put forward past every pause."""

    def __init__(self) -> None:
        self.loop, self.now = Loop(), 0.0
        self.repeater = StatusRepeater(self.loop.said.append)
        self.watch = StoreWatch(self.loop.jobs, self.repeater, lambda: self.now)

    def said(self, reason: str | None, text: str = "") -> Status:
        """Looks until this is what was told last: on a busy machine a look may time out before."""

        def step() -> None:
            self.now += store_watch.POLL_SECONDS
            self.watch.maintain()

        self.loop.run_until(lambda: self._says(reason, text), step)
        reported = self.loop.said[-1]
        assert isinstance(reported, Status)
        assert (reported.id, reported.kind) == (INSTANCE, "storage")
        return reported

    def _says(self, reason: str | None, text: str) -> bool:
        reported = self.loop.said[-1] if self.loop.said else None
        return isinstance(reported, Status) and reported.fields.get("reason") == reason and text in str(reported.fields)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(mounted_settings.VARIABLE, str(tmp_path / "store"))
    return tmp_path / "store"


def test_each_trouble_is_told_once_and_its_end_too(folder: Path, s3: S3Server) -> None:
    """No credentials yet, wrong ones, no server; then right ones, which count without a restart."""
    scene = Scene()
    scene.watch.set_location(s3.location("watched"))
    scene.said("AccessDenied")
    mount(folder, "1", {**s3.environ, "AWS_SECRET_ACCESS_KEY": "x" * 40})
    scene.said("AccessDenied", "SignatureDoesNotMatch")
    mount(folder, "2", {**s3.environ, "AWS_ENDPOINT_URL": "http://127.0.0.1:1"})
    scene.said("Unreachable")
    mount(folder, "3", s3.environ)
    assert scene.said(None).fields == {}
    reported = [str(each) for each in scene.loop.said]
    assert all(a != b for a, b in pairwise(reported)), "nothing is told twice"


def test_a_bucket_that_is_not_there_is_told_and_again_to_a_new_client(folder: Path, s3: S3Server) -> None:
    """A later client hears the same, and nothing once all is well."""
    mount(folder, "1", s3.environ)
    scene = Scene()
    scene.watch.set_location("s3://no-such-bucket/x")
    reported = scene.said("BucketNotFound")
    scene.repeater.report_again()
    assert scene.loop.said[-1] == reported
    assert not any(s3.secret_key in str(each) for each in scene.loop.said)


@pytest.mark.parametrize("location", ["/var/lib/shards", "file:///var/lib/shards"])
def test_a_disk_is_not_watched(location: str) -> None:
    """It is always there, or its dataflows say what is wrong."""
    scene = Scene()
    scene.watch.set_location(location)
    scene.watch.maintain()
    scene.repeater.report_again()
    scene.loop.run_until(lambda: True)
    assert scene.loop.said == []


def test_a_setting_that_delta_rs_panics_at_is_told_and_those_that_come_after_it_count(
    folder: Path, s3: S3Server
) -> None:
    """A look that never ended would be the last one."""
    mount(folder, "1", {**s3.environ, "AWS_ENDPOINT_URL": "http://127.0.0.1:1 x"})
    scene = Scene()
    scene.watch.set_location(s3.location("watched"))
    scene.said("Failed", "settings")
    mount(folder, "2", s3.environ)
    assert scene.said(None).fields == {}
