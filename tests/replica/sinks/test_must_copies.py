"""The copy sink against contents made by hand: complete or absent, one winner, one answer."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import pyarrow.parquet as pq
import pytest

from tests.replica.plans import COLUMNS
from tests.replica.sinks.deltas import Update, staged
from tests.replica.worker_loop import Loop
from tests.waiting import BOUND
from tidemark_protocol.ids import GlobalId
from tidemark_protocol.messages.responses import CopyToDone, CopyToDropped, CopyToFailed, CopyToResponse
from tidemark_protocol.plan.dataflow import CopyToSink as CopyToExport
from tidemark_replica.sinks.copy.copy_sink import CopyToSink
from tidemark_replica.sinks.copy.files import MANIFEST, Copy, CopyFailed, write_copy
from tidemark_replica.sinks.copy.staging import attempt
from tidemark_replica.values import row_repeat

ID, AS_OF = GlobalId("copy-1"), 10
FAILS = '{"code":"EXPRESSION_FAILED","expression":"1 / n"}'
CONTENTS: list[Update] = [((1, "a"), 10, 1), ((2, None), 10, 3), ((4, "x"), 10, 1), ((4, "x"), 10, -1)]
ROWS = [{"n": 1, "s": "a"}, *[{"n": 2, "s": None}] * 3]


def copy_of(folder: Path, to: str = "day/one", id: str = ID, format: str = "parquet") -> Copy:
    location = f"{folder}/store/ns/_copies/{to}"
    return Copy(GlobalId(id), CopyToExport(COLUMNS, location, format), AS_OF, f"{folder}/store")


def written(folder: Path, copy: Copy, contents: list[Update], stopped: Callable[[], bool] = lambda: False) -> int:
    return write_copy(copy, staged(folder, COLUMNS, AS_OF, AS_OF + 1, contents).delta, no_session, stopped)


def no_session() -> NoReturn:
    raise AssertionError("Parquet needs no Spark")


def leftovers(folder: Path) -> list[str]:
    return sorted(p.name for p in (folder / "store/ns/_copies/.staging").glob("*"))


def rows_at(place: Path) -> list[dict[str, Any]]:
    found = [r for f in sorted(place.glob("*.parquet")) for r in pq.read_table(f).to_pylist()]
    return sorted(found, key=lambda r: (r["n"], r["s"] or ""))


def test_a_copy_holds_each_row_as_often_as_it_is_there(tmp_path: Path) -> None:
    """And says what it is; nothing else is left."""
    copy = copy_of(tmp_path)
    assert written(tmp_path, copy, CONTENTS) == 4

    place = Path(copy.sink.location)
    assert rows_at(place) == ROWS
    manifest = {"copy": ID, "as_of": 10, "format": "parquet", "rows": 4, "files": ["part-00000.parquet"]}
    assert json.loads((place / MANIFEST).read_text()) == manifest
    assert leftovers(tmp_path) == []


def test_split_a_large_copy_is_divided_on_disk_and_has_the_same_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Several files, the same rows; what the division needed is gone."""
    monkeypatch.setattr("tidemark_replica.sinks.table.shard_updates.SHARE_BYTES", 20_000)
    monkeypatch.setattr(row_repeat, "ROWS_MAX", 100)
    contents: list[Update] = [((n % 500, f"r{n % 500}"), 10, 1) for n in range(3000)]
    copy = copy_of(tmp_path)
    assert written(tmp_path, copy, contents) == 3000

    place = Path(copy.sink.location)
    assert len(list(place.glob("*.parquet"))) > 2
    expected = [{"n": n % 500, "s": f"r{n % 500}"} for n in range(3000)]
    assert rows_at(place) == sorted(expected, key=lambda r: r["n"])  # type: ignore[arg-type, return-value]
    assert list(tmp_path.glob("tidemark-shares-*")) == []


def test_a_copy_of_nothing_tells_its_columns(tmp_path: Path) -> None:
    """One file without rows."""
    copy = copy_of(tmp_path)
    assert written(tmp_path, copy, []) == 0

    (file,) = Path(copy.sink.location).glob("*.parquet")
    assert pq.read_schema(file).names == ["n", "s"]


@pytest.mark.parametrize(
    ("contents", "message"),
    [([*CONTENTS, (FAILS, 10, 1)], "EXPRESSION_FAILED in 1 / n"), ([((1, "a"), 10, -1)], "NEGATIVE_MULTIPLICITY")],
)
def test_must_refuse_to_copy_a_collection_in_error(tmp_path: Path, contents: list[Update], message: str) -> None:
    """Nothing is there afterwards."""
    copy = copy_of(tmp_path)
    with pytest.raises(CopyFailed, match=message):
        written(tmp_path, copy, contents)

    assert not Path(copy.sink.location).exists()
    assert leftovers(tmp_path) == []


def test_an_existing_copy_is_never_touched(tmp_path: Path) -> None:
    """Another copy's folder, or anybody's."""
    copy = copy_of(tmp_path)
    written(tmp_path, copy, CONTENTS)
    with pytest.raises(CopyFailed, match="exists"):
        written(tmp_path, copy_of(tmp_path, id="copy-2"), [])
    mine = tmp_path / "store/ns/_copies/mine"
    mine.mkdir()
    (mine / "notes.txt").write_text("keep")
    with pytest.raises(CopyFailed, match="exists"):
        written(tmp_path, copy_of(tmp_path, to="mine"), CONTENTS)

    assert rows_at(Path(copy.sink.location)) == ROWS
    assert [p.name for p in mine.iterdir()] == ["notes.txt"]


def test_nothing_is_added_to_a_copy_that_is_there(tmp_path: Path) -> None:
    """Whoever reads its folder finds what the manifest says, and no other copy inside."""
    copy = copy_of(tmp_path, to="day")
    written(tmp_path, copy, CONTENTS)
    with pytest.raises(CopyFailed, match=r"inside .*/_copies/day, which is another copy"):
        written(tmp_path, copy_of(tmp_path, to="day/n=1/more", id="copy-2"), CONTENTS)

    assert sorted(p.name for p in Path(copy.sink.location).iterdir()) == ["_manifest.json", "part-00000.parquet"]


def test_must_have_one_winner_among_replicas_and_the_same_answer_of_all(tmp_path: Path) -> None:
    """One that comes to the end while another has ended finds the very copy that it was to make."""
    copy = copy_of(tmp_path)
    others = [1, 0]

    def meanwhile() -> bool:
        if others and others.pop():
            written(tmp_path, copy, CONTENTS)
        return False

    assert written(tmp_path, copy, CONTENTS, meanwhile) == 4
    assert others == []
    assert written(tmp_path, copy, CONTENTS, meanwhile) == 4
    assert rows_at(Path(copy.sink.location)) == ROWS
    assert leftovers(tmp_path) == []


@pytest.mark.parametrize(
    "location",
    [
        "/etc/x",
        "{store}/ns/_copies",
        "{store}/ns/tpch/orders/v1",
        "{store}/ns/_copies/../../x",
        "{store}/ns/_copies/.staging/x",
        "{store}/a/b/_copies/x",
    ],
)
def test_a_place_outside_is_refused_by_the_replica_too(tmp_path: Path, location: str) -> None:
    """Whatever a frame brings."""
    sink = CopyToExport(COLUMNS, location.format(store=f"{tmp_path}/store"), "parquet")
    with pytest.raises(CopyFailed):
        written(tmp_path, Copy(ID, sink, AS_OF, f"{tmp_path}/store"), CONTENTS)
    assert not (tmp_path / "store").exists()


def test_a_symbolic_link_does_not_lead_out(tmp_path: Path) -> None:
    """A folder for copies that is a link to somewhere else."""
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "store/ns").mkdir(parents=True)
    (tmp_path / "store/ns/_copies").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(CopyFailed, match="symbolic link"):
        written(tmp_path, copy_of(tmp_path), CONTENTS)
    assert list((tmp_path / "elsewhere").iterdir()) == []


DIES = """
import os, signal, sys
from pathlib import Path
sys.path.insert(0, {checkout!r})
from tests.replica.sinks import test_must_copies as t
from tidemark_replica.sinks.copy import files
die = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
publish = files.publish
if {when!r} == "before": files.publish = die
elif {when!r} == "after": files.publish = lambda *a: (publish(*a), die())
else: files._write_file = die
t.written(Path({folder!r}), t.copy_of(Path({folder!r})), t.CONTENTS)
"""


@pytest.mark.parametrize("when", ["while it is written", "before", "after"])
def test_crash_a_copy_is_complete_or_absent_and_can_be_made_again(tmp_path: Path, when: str) -> None:
    """SIGKILL in the middle, just before the rename, just after it: the next attempt ends as the first would have."""
    checkout = str(Path(__file__).parents[3])
    code = DIES.format(checkout=checkout, when=when, folder=str(tmp_path))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=BOUND, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr
    copy = copy_of(tmp_path)
    place = Path(copy.sink.location)
    assert place.exists() == (when == "after")
    assert leftovers(tmp_path) != []

    assert written(tmp_path, copy, CONTENTS) == 4
    assert rows_at(place) == ROWS
    with attempt(tmp_path / "store/ns/_copies/.staging") as folder:
        assert leftovers(tmp_path) == sorted([folder.name, f"{folder.name}.lock"])


def test_attempts_that_live_are_left_alone(tmp_path: Path) -> None:
    """Also by a process that sweeps at the same time."""
    with attempt(tmp_path) as mine, attempt(tmp_path) as others:
        assert mine != others
        assert {p.name for p in tmp_path.iterdir() if p.is_dir()} == {mine.name, others.name}
    assert os.listdir(tmp_path) == []


class Scene:
    def __init__(self, folder: Path) -> None:
        self.folder, self.loop, self.hold = folder, Loop(), False
        self.sink = CopyToSink(
            copy_of(folder),
            lambda copy, staged, stopped: write_copy(copy, staged.delta, no_session, stopped),
            self.loop.jobs,
            self.loop.said.append,
        )

    def stage(self, contents: list[Update]) -> None:
        self.sink.stage(staged(self.folder, COLUMNS, AS_OF, AS_OF + 1, contents))

    def answer(self) -> None:
        self.loop.run_until(lambda: self.loop.said, self.sink.advance)


@pytest.mark.parametrize("contents", [CONTENTS, [(FAILS, 10, 1)]], ids=["done", "failed"])
def test_must_answer_a_copy_once_and_say_nothing_when_it_is_dropped_later(
    tmp_path: Path, contents: list[Update]
) -> None:
    """Whatever comes after the answer."""
    scene = Scene(tmp_path)
    scene.stage(contents)
    assert scene.sink.is_full
    scene.answer()
    scene.stage(CONTENTS)
    scene.sink.advance()
    assert scene.sink.drop() is None

    (answer,) = scene.loop.said
    assert isinstance(answer, CopyToResponse)
    assert isinstance(answer.result, CopyToDone if contents is CONTENTS else CopyToFailed)
    assert answer.id == ID


def test_must_answer_dropped_to_a_copy_that_had_no_answer(tmp_path: Path) -> None:
    """Whether it has begun or not; and then nothing is at its place."""
    scene = Scene(tmp_path)
    scene.stage(CONTENTS)
    assert scene.sink.drop() == CopyToResponse(ID, CopyToDropped())
    scene.sink.advance()
    assert scene.sink.drop() is None
    assert scene.loop.said == []
    assert not Path(copy_of(tmp_path).sink.location).exists()
