"""Copies to a real S3 server: complete or absent, one winner, one answer, though nothing can be renamed there."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.persist.stores.s3_proxy import middleman
from tests.replica.plans import COLUMNS
from tests.replica.sinks.deltas import Update, staged
from tests.replica.sinks.test_must_copies import AS_OF, CONTENTS, FAILS, ROWS, no_session, rows_at
from tests.s3_server import S3Server
from tidemark_persist import Storage
from tidemark_protocol.ids import GlobalId
from tidemark_protocol.plan.dataflow import CopyToSink
from tidemark_replica.sinks.copy import objects as copy_objects
from tidemark_replica.sinks.copy.files import MANIFEST, Copy, CopyFailed
from tidemark_replica.sinks.copy.objects import write_objects


class Bucket:
    """A storage of its own in the session's bucket."""

    def __init__(self, server: S3Server, folder: Path) -> None:
        self.server, self.folder = server, folder
        self.storage = server.location(f"copies-{folder.name}")

    def copy(self, to: str = "day/one", id: str = "copy-1", format: str = "parquet") -> Copy:
        location = f"{self.storage}/ns/_copies/{to}"
        return Copy(GlobalId(id), CopyToSink(COLUMNS, location, format), AS_OF, self.storage)

    def written(self, copy: Copy, contents: list[Update], stopped: Callable[[], bool] = lambda: False) -> int:
        delta = staged(self.folder, COLUMNS, AS_OF, AS_OF + 1, contents).delta
        return write_objects(copy, delta, no_session, stopped, self.folder / "scratch")

    def place(self, copy: Copy) -> Path:
        return self.server.on_disk(copy.sink.location)

    def objects(self) -> list[str]:
        """All that is there, by names without what attempts add to theirs."""
        root = self.server.on_disk(f"{self.storage}/ns/_copies")
        found = (path.relative_to(root) for path in root.rglob("*") if path.is_file())
        return sorted(str(path).split("-00000-")[0] for path in found)


@pytest.fixture
def bucket(s3: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bucket]:
    for name, value in s3.environ.items():
        monkeypatch.setenv(name, value)
    yield Bucket(s3, tmp_path)
    assert list((tmp_path / "scratch").glob("*")) == [] or "crash" in os.environ["PYTEST_CURRENT_TEST"]


WHOLE = ["day/one/_manifest.json", "day/one/_winner/_delta_log/00000000000000000000.json", "day/one/part"]


def test_a_copy_holds_each_row_as_often_as_it_is_there(bucket: Bucket) -> None:
    """And says what it is; nothing else is left."""
    copy = bucket.copy()
    assert bucket.written(copy, CONTENTS) == 4

    manifest = json.loads((bucket.place(copy) / MANIFEST).read_text())
    (file,) = manifest.pop("files")
    assert file == f"part-00000-{manifest.pop('attempt')}.parquet"
    assert manifest == {"copy": "copy-1", "as_of": 10, "format": "parquet", "rows": 4}
    assert rows_at(bucket.place(copy)) == ROWS
    assert bucket.objects() == WHOLE


@pytest.mark.parametrize(
    ("contents", "message"),
    [([*CONTENTS, (FAILS, 10, 1)], "EXPRESSION_FAILED in 1 / n"), ([((1, "a"), 10, -1)], "NEGATIVE_MULTIPLICITY")],
)
def test_must_refuse_to_copy_a_collection_in_error(bucket: Bucket, contents: list[Update], message: str) -> None:
    """Nothing is there afterwards."""
    with pytest.raises(CopyFailed, match=message):
        bucket.written(bucket.copy(), contents)
    assert bucket.objects() == []


def test_an_existing_copy_is_never_touched(bucket: Bucket) -> None:
    """Another copy's place, anybody's, or one that has a copy below it; and nothing is added to a copy."""
    copy = bucket.copy()
    bucket.written(copy, CONTENTS)
    Storage.at(f"{bucket.storage}/ns/_copies/mine").write("notes.txt", b"keep")
    for to, message in [
        ("day/one", "exists"),
        ("mine", "exists"),
        ("day", "exists"),
        ("day/one/n=1/more", "inside .*/day/one, which is another copy"),
    ]:
        with pytest.raises(CopyFailed, match=message):
            bucket.written(bucket.copy(to, id="copy-2"), [])

    assert rows_at(bucket.place(copy)) == ROWS
    assert bucket.objects() == [*WHOLE, "mine/notes.txt"]


def test_must_have_one_winner_among_replicas_and_the_same_answer_of_all(bucket: Bucket) -> None:
    """One whose files are all there when another wins takes them away, and answers as that one did."""
    copy, looks = bucket.copy(), iter(range(100))

    def meanwhile() -> bool:
        if next(looks) == 2:  # its own files are written, and it is about to claim the place
            assert bucket.written(copy, CONTENTS) == 4
        return False

    assert bucket.written(copy, CONTENTS, meanwhile) == 4
    assert next(looks) > 2
    assert bucket.written(copy, CONTENTS) == 4
    assert rows_at(bucket.place(copy)) == ROWS
    assert bucket.objects() == WHOLE


def test_a_copy_that_is_dropped_before_the_end_leaves_nothing(bucket: Bucket) -> None:
    """At each of its looks but the last, which is before the claim."""
    for last in range(3):
        looks = iter(range(100))
        with pytest.raises(CopyFailed, match="was dropped"):
            bucket.written(bucket.copy(), CONTENTS, lambda looks=looks, last=last: next(looks) >= last)  # type: ignore[misc]
        assert bucket.objects() == []


@pytest.mark.parametrize("fault", ["reply_lost", "request_lost", "refused", "lied"])
def test_crash_of_the_winning_request_leaves_one_copy(
    bucket: Bucket, s3: S3Server, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    """The object tells whose it is."""
    with middleman(s3.port) as between:
        monkeypatch.setenv("AWS_ENDPOINT_URL", s3.through(between.port)["AWS_ENDPOINT_URL"])
        between.meet("commits", fault)
        assert bucket.written(bucket.copy(), CONTENTS) == 4
        assert between.left() == 0
    assert rows_at(bucket.place(bucket.copy())) == ROWS
    assert bucket.objects() == WHOLE


DIES = """
import os, signal, sys
from pathlib import Path
sys.path.insert(0, {checkout!r})
from tests.replica.sinks import test_copies_in_object_stores as t
from tests.s3_server import S3Server
from tidemark_replica.sinks.copy import objects as c
die = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
put_if_absent, finish = c.put_if_absent, c.CopyTarget.finish
if {when!r} == "while it is sent": c._upload = die
elif {when!r} == "before it wins": c.put_if_absent = die
elif {when!r} == "when it has won": c.put_if_absent = lambda *a: (put_if_absent(*a), die())
else: c.CopyTarget.finish = lambda *a: (finish(*a), die())
bucket = t.Bucket(S3Server(Path({objects!r}), {port}, {bucket!r}), Path({folder!r}))
bucket.written(bucket.copy(), t.CONTENTS)
"""


@pytest.mark.parametrize("when", ["while it is sent", "before it wins", "when it has won", "when all is there"])
def test_crash_a_copy_is_complete_or_absent_and_can_be_made_again(bucket: Bucket, s3: S3Server, when: str) -> None:
    """SIGKILL anywhere: the manifest is there when all is; the next attempt ends as the first would have."""
    checkout = str(Path(__file__).parents[3])
    where = {"objects": str(s3.folder), "port": s3.port, "bucket": s3.bucket, "folder": str(bucket.folder)}
    code = DIES.format(checkout=checkout, when=when, **where)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr
    copy = bucket.copy()
    assert (bucket.place(copy) / MANIFEST).exists() == (when == "when all is there")

    assert bucket.written(copy, CONTENTS) == 4
    assert rows_at(bucket.place(copy)) == ROWS
    assert [name for name in bucket.objects() if ".staging" not in name] == WHOLE


def test_crash_files_of_a_dead_attempt_elsewhere_go_a_day_later(
    bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not before: it may be alive. Of a winner, only the note goes."""
    won = bucket.copy("won")
    bucket.written(won, CONTENTS)
    attempt = json.loads((bucket.place(won) / MANIFEST).read_text())["attempt"]
    root = Storage.at(f"{bucket.storage}/ns/_copies")
    for name, place in [(attempt, "won"), ("f" * 32, "lost")]:
        root.write(f".staging/{name}.json", json.dumps({"place": f"{root.location}/{place}"}).encode())
    root.write(f"lost/part-00000-{'f' * 32}.parquet", b"half")
    root.write(f".staging/{'e' * 32}.json", json.dumps({"place": f"{bucket.storage}/ns/tpch/orders/v1"}).encode())
    kept = bucket.objects()
    bucket.written(bucket.copy("a"), CONTENTS)
    assert set(kept) < set(bucket.objects())

    monkeypatch.setattr(copy_objects, "ATTEMPT_AGE_MAX_MS", -1_000_000)
    bucket.written(bucket.copy("b"), CONTENTS)
    left = bucket.objects()
    assert not any(name.startswith((".staging", "lost")) for name in left)
    assert rows_at(bucket.place(won)) == ROWS


@pytest.mark.parametrize("location", ["s3://other/x", "{store}/ns/_copies", "{store}/ns/tpch/orders/v1", "/etc/x"])
def test_a_place_outside_is_refused_by_the_replica_too(bucket: Bucket, location: str) -> None:
    """Whatever a frame brings."""
    sink = CopyToSink(COLUMNS, location.format(store=bucket.storage), "parquet")
    with pytest.raises(CopyFailed):
        bucket.written(Copy(GlobalId("copy-1"), sink, AS_OF, bucket.storage), CONTENTS)
    assert bucket.objects() == []


def test_a_copy_of_nothing_tells_its_columns(bucket: Bucket) -> None:
    """One file without rows."""
    copy = bucket.copy()
    assert bucket.written(copy, []) == 0
    assert bucket.objects() == WHOLE
