"""Files that are let go, or read again: their rows and errors change at one time, whoever dies meanwhile."""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.storage.files.directory import Directory
from tests.storage.ingestion_samples import contents, oks
from tidemark_persist import DIFF, ERROR
from tidemark_protocol.messages.commands import RELEASE, REREAD, FileRequest

pytestmark = pytest.mark.spark
BAD_HEADER, BAD_RECORDS = "b,a\nx,1\n", "a,b\n1,x\nnot-a-number,y\n3\n"


@pytest.fixture
def directory(spark: SparkSession, tmp_path: Path) -> Callable[..., Directory]:
    return lambda **table: Directory(spark, tmp_path, **table)


def states(d: Directory) -> dict[str, str]:
    return {f.file: f.state for f in d.source.files()}


def test_a_file_that_is_let_go_takes_its_rows_and_errors_with_it(directory: Callable[..., Directory]) -> None:
    """At one time, and for good: it is not bound again as it is, also by an ingester that starts later."""
    d = directory()
    d.put("1.csv", "a,b\n1,x\n")
    d.put("2.csv", BAD_RECORDS)
    d.put("3.csv", BAD_HEADER)
    d.ticks()
    before = d.now
    assert (d.rows(), len(d.errors())) == ([(1, "x"), (1, "x")], 2)

    assert d.ask(RELEASE, "2.csv") == ""
    assert (d.rows(), list(d.errors())) == ([(1, "x")], ['{"code":"SCHEMA_MISMATCH","expression":"3.csv"}'])
    assert contents(d.root, "t", d.now - 1).num_rows == contents(d.root, "t", before).num_rows
    assert d.ask(RELEASE, "3.csv") == ""
    for _ in range(2):
        d.ticks()
        assert (d.rows(), d.errors()) == ([(1, "x")], {})
        assert states(d) == {"1.csv": "read", "2.csv": "released", "3.csv": "released"}
        assert d.source.counters()["bad_files"] == 0
        d.restart()


def test_a_released_file_comes_again_in_another_version_or_when_it_is_read_again(
    directory: Callable[..., Directory],
) -> None:
    """A name is free once its file was let go."""
    d = directory()
    d.put("1.csv", BAD_HEADER)
    d.put("2.csv", "a,b\n2,y\n")
    d.ticks()
    assert (d.ask(RELEASE, "1.csv"), d.ask(RELEASE, "2.csv")) == ("", "")
    d.put("1.csv", "a,b\n1,mended\n")
    d.ticks()
    assert (d.rows(), d.errors()) == ([(1, "mended")], {})
    assert d.ask(REREAD, "2.csv") == ""
    assert d.rows() == [(1, "mended"), (2, "y")]
    assert [(f.file, f.state) for f in d.source.files()] == [("2.csv", "read"), ("1.csv", "read")]


def test_a_mended_file_is_read_again_at_one_tick(directory: Callable[..., Directory]) -> None:
    """Old out and new in at the same time; a file that is still bad changes nothing."""
    d = directory()
    d.put("1.csv", BAD_HEADER)
    d.ticks()
    assert d.ask(REREAD, "1.csv").startswith("SCHEMA_MISMATCH: file 1.csv still cannot be read")
    d.put("1.csv", "a,b\n1,x\n2,y")
    assert d.ask(REREAD, "1.csv").startswith("INCOMPLETE")
    assert list(d.errors()) == ['{"code":"SCHEMA_MISMATCH","expression":"1.csv"}']

    d.put("1.csv", "a,b\n1,x\n2,y\nbad,z\n")
    assert d.ask(REREAD, "1.csv") == ""
    assert d.rows() == [(1, "x"), (2, "y")]
    assert d.errors() == {'{"code":"MALFORMED_RECORD","expression":"1.csv"}': 1}
    old = {r[ERROR]: r[DIFF] for r in contents(d.root, "t", d.now - 1).to_pylist()}
    assert old == {'{"code":"SCHEMA_MISMATCH","expression":"1.csv"}': 1}
    assert (d.file("1.csv").rows, d.file("1.csv").errors, d.file("1.csv").time) == (2, 1, d.now)


def test_a_request_that_comes_again_is_done(directory: Callable[..., Directory]) -> None:
    """Also where the version did not change, so that the binding looks the same: the remap has the last request."""
    d = directory()
    d.put("1.csv", "a,b\n1,x\n")
    d.ticks()
    assert d.ask(REREAD, "1.csv") == ""
    remap = contents(d.root, "remap").column("table").to_pylist()
    assert sorted(remap) == ["t", "t/reread/1", "t/staged", "t/staged"]
    d.restart()
    d.source.ask((FileRequest(1, REREAD, "t", "1.csv"),))
    d.ticks()
    assert [o.refusal for o in d.source.outcomes()] == [""]
    assert d.rows() == [(1, "x")]
    assert sorted(contents(d.root, "remap").column("table").to_pylist()) == ["t", "t/reread/1"]


@pytest.mark.parametrize("change", ["rewrite", "remove"])
def test_rows_that_are_not_known_any_more_are_not_taken_back(directory: Callable[..., Directory], change: str) -> None:
    """FILE_CHANGED; with the bytes and their time put back, it goes."""
    d = directory()
    path = d.put("1.csv", "a,b\n1,x\n")
    d.ticks()
    stat = path.stat()
    path.unlink()
    if change == "rewrite":
        d.put("1.csv", "a,b\n7,other\n")
    assert d.ask(RELEASE, "1.csv").startswith("FILE_CHANGED: file 1.csv is gone, or is another than was read")
    assert d.rows() == [(1, "x")]
    d.put("1.csv", "a,b\n1,x\n")
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert d.ask(RELEASE, "1.csv") == ""
    assert d.rows() == []


def test_requests_that_cannot_be_done_are_refused(directory: Callable[..., Directory]) -> None:
    """A file that is not bound, one that is gone, and one of a table that only grows."""
    d = directory(append_only=True)
    d.put("1.csv", "a,b\n1,x\n")
    bad = d.put("2.csv", BAD_HEADER)
    d.ticks()
    assert d.ask(RELEASE, "none.csv").startswith("NOT_BOUND")
    assert d.ask(RELEASE, "1.csv").startswith("APPEND_ONLY")
    bad.unlink()
    assert d.ask(REREAD, "2.csv").startswith("FILE_MISSING")
    assert d.ask(RELEASE, "2.csv") == ""
    assert (d.rows(), d.errors()) == ([(1, "x")], {})


def test_dead_letters_go_with_their_file(directory: Callable[..., Directory]) -> None:
    """The dead letters are of records, and of files that could not be read."""
    d = directory(on_bad_record="deadLetter")
    d.put("1.csv", BAD_RECORDS)
    d.put("2.csv", BAD_HEADER)
    d.put("3.csv", "a,b\n3,z\nbad,3\n")
    d.ticks()
    assert len(oks(d.root, "t_dead_letter")) == 4
    d.put("2.csv", "a,b\n2,y\n")
    assert (d.ask(RELEASE, "1.csv"), d.ask(REREAD, "2.csv")) == ("", "")
    assert d.rows() == [(2, "y"), (3, "z")]
    assert oks(d.root, "t_dead_letter") == [("3.csv", "bad,3")]


def test_a_record_that_looks_like_an_error_is_a_record(directory: Callable[..., Directory]) -> None:
    """Its file gave rows, which go with it."""
    d = directory(format="json", options=(), on_bad_record="deadLetter")
    d.put("1.json", '{"a": 1, "b": "x"}\n{"code":"SCHEMA_MISMATCH","expression":"1.json","a":"no number"}\n')
    d.ticks()
    assert len(oks(d.root, "t_dead_letter")) == 1
    assert d.file("1.json").state == "read"
    assert d.ask(RELEASE, "1.json") == ""
    assert (d.rows(), oks(d.root, "t_dead_letter")) == ([], [])


@pytest.mark.parametrize("died_before", range(1, 4))
@pytest.mark.parametrize("action", [RELEASE, REREAD])
def test_crash_in_a_request_needs_nothing_but_what_was_staged(
    directory: Callable[..., Directory], action: str, died_before: int
) -> None:
    """It dies before the binding, before the table and before the dead letters, and the file is deleted then."""
    d = directory(on_bad_record="deadLetter")
    path = d.put("1.csv", BAD_RECORDS)
    d.ticks()
    append, done = d.ingester._append, []

    def die_before(*args: object) -> None:
        done.append(args)
        if len(done) == died_before:
            raise KeyboardInterrupt
        append(*args)  # type: ignore[arg-type]

    d.ingester._append = die_before  # type: ignore[method-assign, assignment]
    with pytest.raises(KeyboardInterrupt):
        d.ask(action, "1.csv")
    path.unlink()
    d.restart()
    d.source.ask((FileRequest(d.requests, action, "t", "1.csv"),))
    d.ticks()

    (outcome,) = d.source.outcomes()
    is_minted = died_before > 1
    assert (outcome.refusal == "") == is_minted
    gone = is_minted and action == RELEASE
    assert d.rows() == ([] if gone else [(1, "x")])
    assert len(oks(d.root, "t_dead_letter")) == (0 if gone else 2)
    remap = contents(d.root, "remap").column("table").to_pylist()
    assert remap == [f"t/release/{d.requests}"] if gone else "t/staged" not in remap


class Model:
    """A history of a directory. The expected rows follow from the bindings and from what the files held."""

    def __init__(self, d: Directory, seed: int) -> None:
        self.d, self.random = d, random.Random(seed)
        self.texts: dict[tuple[str, int, int], str] = {}
        self.versions = 0
        self.pending: tuple[FileRequest, ...] = ()

    def write(self, name: str) -> None:
        """A version is the size and the time, so each has a time of its own."""
        rows = [f"{self.random.randrange(5)},{self.random.choice('xyz')}" for _ in range(self.random.randrange(6))]
        text = "\n".join(["a,b", *rows, *["bad,1"] * self.random.randrange(3)]) + "\n"
        if self.random.random() < 0.2:
            text = BAD_HEADER
        self.versions += 1
        modified_ns = self.versions * 10**9
        os.utime(self.d.put(name, text), ns=(modified_ns, modified_ns))
        self.texts[(name, len(text), modified_ns)] = text

    def act(self) -> None:
        name = f"{self.random.randrange(6)}.csv"
        match self.random.randrange(6):
            case 0 | 1:
                self.write(name)
            case 2:
                (self.d.folder / name).unlink(missing_ok=True)
            case _ if not self.pending:
                self.d.requests += 1
                action = self.random.choice([RELEASE, REREAD])
                self.pending = (FileRequest(self.d.requests, action, "t", name),)

    def ticks(self) -> list[str]:
        """Two ticks, in which the ingester may die before any of its appends; returns the outcomes of requests."""
        ingester, die_at, done = self.d.ingester, self.random.randrange(12), 0
        append = ingester._append

        def maybe_die(*args: object) -> None:
            nonlocal done
            done += 1
            if done == die_at:
                raise KeyboardInterrupt
            append(*args)  # type: ignore[arg-type]

        ingester._append = maybe_die  # type: ignore[method-assign, assignment]
        self.d.source.ask(self.pending)
        try:
            self.d.ticks()
        except KeyboardInterrupt:
            self.d.restart()
            self.d.source.ask(self.pending)
            self.d.ticks(1)
        ingester._append = append  # type: ignore[method-assign]
        outcomes = self.d.source.outcomes()
        self.pending = tuple(r for r in self.pending if r.id not in {o.id for o in outcomes})
        return [o.refusal.partition(":")[0] for o in outcomes]

    def expected(self) -> tuple[list[tuple[object, ...]], dict[str, int]]:
        """A batch over the files that are bound."""
        rows: list[tuple[object, ...]] = []
        bad: Counter[str] = Counter()
        for row in contents(self.d.root, "remap").to_pylist():
            if row["table"] != "t":
                continue
            text = self.texts[(row["file"], row["size"], row["modified_ns"])]
            if text == BAD_HEADER:
                bad[f'{{"code":"SCHEMA_MISMATCH","expression":"{row["file"]}"}}'] += 1
                continue
            for line in text.splitlines()[1:]:
                a, b = line.split(",")
                if a == "bad":
                    bad[f'{{"code":"MALFORMED_RECORD","expression":"{row["file"]}"}}'] += 1
                else:
                    rows.append((int(a), b))
        return sorted(rows, key=repr), dict(bad)


@pytest.mark.parametrize("seed", range(3))
def test_oracle_the_table_is_a_batch_over_the_bound_files(directory: Callable[..., Directory], seed: int) -> None:
    """After each step of a random history of files, requests and deaths."""
    d = directory()
    model = Model(d, seed)
    for number in range(6):
        model.write(f"{number}.csv")
    model.ticks()
    outcomes: Counter[str] = Counter()
    for _ in range(14):
        model.act()
        model.act()
        outcomes.update(model.ticks())
        assert (d.rows(), d.errors()) == model.expected()
    assert outcomes[""], outcomes
