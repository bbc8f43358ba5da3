"""The runner of `make test`: its counts, its resumption, and that its lanes leave no test out."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from dataclasses import replace
from itertools import chain, combinations
from pathlib import Path

import pytest
from _pytest.mark.expression import Expression

from tests.lanes.__main__ import LANES, SLOW, with_share
from tests.lanes.ledger import CHECKOUT, TOO_LATE, Entry, append, entries
from tests.lanes.memory_folder import place_in_memory
from tests.lanes.runner import Lane, Round
from tests.lanes.shares import main as record
from tests.lanes.shares import recorded, share_of_files, turn_of
from tests.waiting import BOUND

MARKS = ("spark", "cluster", "e2e", "slow", "node")
TESTS = """
import os, pytest

@pytest.mark.parametrize("n", range(3))
def test_passes(n): pass

def test_fails(): assert "MENDED" in os.environ

@pytest.fixture
def broken():
    yield
    assert "MENDED" in os.environ

def test_whose_fixture_fails(broken): pass

def test_is_skipped(): pytest.skip("not here")
"""

BROAD_TESTS = """
import pytest

pytestmark = []

@pytest.mark.broad
@pytest.mark.parametrize("n", range(6))
def test_broad(n): pass

def test_always(): pass
"""

SLOW_TESTS = """
import pytest

@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("n", range(3))
def test_slow(n, request):
    assert request.node.get_closest_marker("timeout").args[0] < 3600

def test_always(): pass
"""

ORPHAN = """
import os, subprocess, sys
from tests.lanes.processor_time import adopt_orphans, of_children, reap_orphans

adopt_orphans()
busy = "import os, time; os.write(1, b'x'); d = [None for _ in iter(lambda: time.process_time() < 1, False)]"
parent = "import subprocess, sys; subprocess.run([sys.executable, '-c', sys.argv[1]])"
process = subprocess.Popen([sys.executable, "-c", parent, busy], stdout=subprocess.PIPE)
process.stdout.read(1)
process.kill()
process.wait()
assert of_children() < 1
process.stdout.read()
while of_children() < 1:
    reap_orphans([])
"""
"""A process that is busy for a second, and whose parent is killed meanwhile, as a replica above its JVM is."""


@pytest.mark.parametrize("marks", list(chain.from_iterable(combinations(MARKS, n) for n in range(len(MARKS) + 1))))
def test_every_test_is_in_one_lane(marks: tuple[str, ...]) -> None:
    """But those that other targets of the Makefile run."""
    lanes = [lane for lane in LANES if Expression.compile(lane.arguments[1]).evaluate(lambda name: name in marks)]
    elsewhere = "slow" in marks or marks == ("node",)
    assert len(lanes) == (0 if elsewhere else 1)


def test_every_end_to_end_test_is_where_its_lane_looks() -> None:
    """The lane collects one folder. Files elsewhere may have slow ones."""
    texts = {path: path.read_text() for path in (CHECKOUT / "tests").rglob("test_*.py") if path != Path(__file__)}
    marked = {path for path, text in texts.items() if "mark.e2e" in text and "mark.slow" not in text}
    assert len(marked) > 20
    assert [path for path in marked if not path.is_relative_to(CHECKOUT / "tests" / "e2e")] == []


@pytest.fixture
def lane(tmp_path: Path) -> Lane:
    """Two workers, and a few tests that end in all ways."""
    (tmp_path / "test_some.py").write_text(TESTS)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    return Lane("some", ("-c", str(tmp_path / "pytest.ini"), str(tmp_path)), workers=2)


def test_failures_are_counted_and_run_again(
    lane: Lane, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """A resumed run leaves out tests that passed or were skipped, at the same commit."""
    ledger = tmp_path / "state" / "ledger.jsonl"
    ledger.parent.mkdir()
    assert not Round([lane], ledger, "c1").run()
    output = capfd.readouterr().out
    assert output.splitlines()[-1] == "3 passed, 2 failed, 1 skipped"
    assert output.count("AssertionError") >= 2
    assert Counter(e.outcome for e in entries(ledger)) == {"passed": 3, "failed": 2, "skipped": 1}

    monkeypatch.setenv("MENDED", "yes")
    assert Round([lane], ledger, "c1", resumed=True).run()
    assert capfd.readouterr().out.splitlines()[-1] == "2 passed, 0 failed, 0 skipped"
    assert Round([lane], ledger, "c1", resumed=True).run()
    assert capfd.readouterr().out.splitlines()[-1] == "0 passed, 0 failed, 0 skipped"
    assert Round([lane], ledger, "c2", resumed=True).run()
    assert capfd.readouterr().out.splitlines()[-1] == "5 passed, 0 failed, 1 skipped"


def test_a_run_has_one_share_of_the_broad_tests(lane: Lane, tmp_path: Path) -> None:
    """The others are as many as always, and all shares together have each broad test once."""
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers =\n broad\n e2e\n")
    (tmp_path / "test_some.py").write_text(BROAD_TESTS)
    for name in ("a", "b"):
        (tmp_path / f"test_of_system_{name}.py").write_text(BROAD_TESTS + "pytestmark.append(pytest.mark.e2e)\n")
    shares = []
    for number in (1, 2):
        ledger = tmp_path / str(number) / "ledger.jsonl"
        ledger.parent.mkdir()
        assert Round([replace(lane, workers=0, arguments=(*lane.arguments, f"--broad={number}/2"))], ledger, "c").run()
        shares.append([e.test.rpartition("/")[2] for e in entries(ledger)])
    assert all(sum("test_always" in test for test in share) == 3 for share in shares)
    broad = [[test for test in share if "test_broad" in test] for share in shares]
    alone = [sum(test.startswith("test_some.py") for test in share) for share in broad]
    systems = [{test.partition("::")[0] for test in share} - {"test_some.py"} for share in broad]
    assert len(list(chain.from_iterable(broad))) == len(set(chain.from_iterable(broad))) == 18
    assert max(alone) - min(alone) <= 1
    assert sorted(chain.from_iterable(systems)) == ["test_of_system_a.py", "test_of_system_b.py"]


def test_slow_tests_are_no_part_of_the_shares_of_broad_tests() -> None:
    """A test may be both. `make test-slow` runs it at each commit, however late it begins."""
    assert all("--broad=3/8" in with_share(lane, "3/8").arguments for lane in LANES)
    assert with_share(SLOW, "3/8") == SLOW
    assert all(with_share(lane, "all") == lane for lane in LANES)


def test_no_broad_test_begins_after_its_minutes(lane: Lane, tmp_path: Path) -> None:
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers =\n broad\n")
    (tmp_path / "test_some.py").write_text(BROAD_TESTS)
    ledger = tmp_path / "ledger.jsonl"
    assert Round([replace(lane, workers=0, arguments=(*lane.arguments, "--broad-minutes=0"))], ledger, "c").run()
    assert Counter(e.outcome for e in entries(ledger)) == {TOO_LATE: 6, "passed": 1}


@pytest.mark.parametrize("workers", [0, 2])
def test_slow_tests_that_begin_too_late_are_counted_and_resumed(
    lane: Lane, tmp_path: Path, workers: int, capfd: pytest.CaptureFixture[str]
) -> None:
    """They are no failures. Tests that have begun end, at last by a limit of their own."""
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers =\n slow\n")
    (tmp_path / "test_some.py").write_text(SLOW_TESTS)
    ledger, lane = tmp_path / "ledger.jsonl", replace(lane, workers=workers)
    bounded = [replace(lane, arguments=(*lane.arguments, f"--slow-minutes={minutes}")) for minutes in (0, 100)]
    assert Round(bounded[:1], ledger, "c").run()
    assert capfd.readouterr().out.splitlines()[-1] == "1 passed, 0 failed, 0 skipped, 3 left out as too late"
    assert Round(bounded[1:], ledger, "c", resumed=True).run()
    assert capfd.readouterr().out.splitlines()[-1] == "3 passed, 0 failed, 0 skipped"


def test_the_longest_files_of_a_share_begin_first(lane: Lane, tmp_path: Path) -> None:
    """A file that is not recorded counts by its tests."""
    for name, tests in (("one", 1), ("three", 3), ("two", 2)):
        (tmp_path / f"test_{name}.py").write_text("".join(f"def test_{n}(): pass\n" for n in range(tests)))
    (tmp_path / "test_some.py").unlink()
    ledger = tmp_path / "ledger.jsonl"
    assert Round([replace(lane, workers=0, arguments=(*lane.arguments, "--share=1/1"))], ledger, "c").run()
    files = [e.file.rpartition("_")[2] for e in entries(ledger)]
    assert files == ["three.py"] * 3 + ["two.py"] * 2 + ["one.py"]


def test_a_file_whose_tests_were_left_out_keeps_its_recorded_seconds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file keeps its earlier time until the others have passed, too."""
    monkeypatch.setattr("tests.lanes.shares.RECORDED", tmp_path / "seconds.json")
    (tmp_path / "seconds.json").write_text('{"a": 9.0, "b": 9.0}')
    for test, outcome in (("a::x", "passed"), ("a::y", TOO_LATE), ("b::x", "passed")):
        append(tmp_path / "ledger.jsonl", Entry("c", 1, "slow", test, outcome, 2.0))
    record(tmp_path / "ledger.jsonl")
    assert recorded() == {"a": 9.0, "b": 2.0}
    append(tmp_path / "ledger.jsonl", Entry("c", 1, "slow", "a::y", "passed", 3.0))
    record(tmp_path / "ledger.jsonl")
    assert recorded() == {"a": 5.0, "b": 2.0}


def test_the_share_of_a_commit_is_that_of_its_digits() -> None:
    assert turn_of("0008" + "f" * 36, 8) == 1
    assert {turn_of(f"{n:04x}", 8) for n in range(16)} == set(range(1, 9))


def test_a_lane_that_breaks_off_is_an_error(lane: Lane, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """A module that cannot be imported has no test that could fail."""
    (tmp_path / "test_more.py").write_text("import nothing_of_that_name\n")
    assert not Round([lane], tmp_path / "ledger.jsonl", "c").run()
    output = capfd.readouterr().out
    assert output.splitlines()[-1].endswith(", 1 errors")
    assert "nothing_of_that_name" in output


def test_a_failing_hook_is_an_error(lane: Lane, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Also where both workers end before the session asks them for tests."""
    (tmp_path / "conftest.py").write_text("def pytest_itemcollected(item): raise ValueError('broken hook')\n")
    assert not Round([lane], tmp_path / "ledger.jsonl", "c").run()
    assert "ValueError: broken hook" in capfd.readouterr().out


def test_a_ledger_outside_the_checkout_leaves_the_settings_of_pytest_alone(tmp_path: Path) -> None:
    """The lane `fast` names no paths of its own, above which pytest would find pyproject.toml."""
    assert Round([Lane("none", ("--ignore-glob=*",))], tmp_path / "ledger.jsonl", "c").run()
    (log,) = tmp_path.glob("*/none.log")
    assert "configfile: pyproject.toml" in log.read_text()


def test_a_mark_that_a_file_does_not_name_is_an_error(
    lane: Lane, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Its tests would be in no lane: the lane of that mark does not collect the file."""
    (tmp_path / "test_more.py").write_text("from marks import pytestmark\n\ndef test_passes(): pass\n")
    (tmp_path / "marks.py").write_text("import pytest\n\npytestmark = pytest.mark.spark\n")
    assert not Round([lane], tmp_path / "ledger.jsonl", "c").run()
    output = capfd.readouterr().out
    assert output.splitlines()[-1].endswith(", 1 errors")
    assert "test_more.py::test_passes has the mark spark, which its file does not name" in output


def test_a_lane_collects_the_files_that_name_its_marks() -> None:
    """Unless its arguments name paths."""
    spark = next(lane for lane in LANES if lane.name == "spark")
    assert "tests/oracle/test_oracle.py" in spark.command()
    assert "tests/cli/test_help.py" not in spark.command()
    narrowed = replace(spark, arguments=(*spark.arguments, "tests/oracle/test_oracle.py::test_x"))
    assert "tests/tpch/test_tpch.py" not in narrowed.command()


def test_the_cpu_time_of_orphans_is_counted() -> None:
    """In a process of its own, whose children the test's process does not reap."""
    subprocess.run([sys.executable, "-c", ORPHAN], cwd=CHECKOUT, check=True, timeout=BOUND)


def test_files_of_a_lane_are_in_memory(lane: Lane, tmp_path: Path) -> None:
    """In a folder that nobody else sees."""
    (place := tmp_path / "here").mkdir()
    if place_in_memory([place], free_bytes=0) is None:
        pytest.skip("this process may not mount a folder in memory")
    (tmp_path / "test_some.py").write_text(f"def test_x(tmp_path): assert tmp_path.is_relative_to({str(place)!r})")
    assert Round([lane], tmp_path / "ledger.jsonl", "c", memory=place).run()
    assert not list(place.iterdir())


def test_files_are_on_disk_where_memory_is_short_or_no_folder_is_empty(tmp_path: Path) -> None:
    (place := tmp_path / "here").mkdir()
    assert place_in_memory([place], free_bytes=1 << 60) is None
    assert place_in_memory([tmp_path, tmp_path / "none"], free_bytes=0) is None


def test_a_line_that_was_cut_off_is_passed_over(tmp_path: Path) -> None:
    """The process that wrote it was killed."""
    ledger, entry = tmp_path / "ledger.jsonl", Entry("c", 1, "fast", "t", "passed", 0.5)
    append(ledger, entry)
    with ledger.open("a") as file:
        file.write('{"commit": "c", "rou')
    assert list(entries(ledger)) == [entry]


def test_each_file_is_in_one_share(monkeypatch: pytest.MonkeyPatch) -> None:
    """And shares take about as long as each other."""
    seconds = {f"f{n}": 10.0 * (n % 7 + 1) for n in range(40)}
    monkeypatch.setattr("tests.lanes.shares.recorded", lambda: seconds)
    shares = [share_of_files({**dict.fromkeys(seconds, 1), "unknown": 2}, n, 8) for n in range(1, 9)]
    assert sorted(chain.from_iterable(shares)) == sorted([*seconds, "unknown"])
    loads = [sum(seconds.get(file, 20.0) for file in share) for share in shares]
    assert max(loads) - min(loads) <= 70
