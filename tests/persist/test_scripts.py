"""Scenarios as text: a directive, perhaps updates, a line of dashes, and what is expected.

    append HANDLE LOWER UPPER term=N [id=C]     the updates follow, one per line:  ROW @TIME DIFF
    fence HANDLE TERM     since HANDLE TIME     compact HANDLE
    contents HANDLE AS_OF     listen HANDLE LOWER UPPER     updates HANDLE

Each handle is opened on its own when it is first named, as if in another process. A row is `fruit number`, or
`error message`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from tests.persist.model import Row, Update, batch, changes, contents
from tests.s3_fixtures import Place
from tidemark_persist import (
    EMPTY,
    Appended,
    FilePart,
    MaintenancePolicy,
    PersistError,
    Shard,
    create_or_open,
)
from tidemark_persist.maintenance.maintenance import Compact
from tidemark_persist.times import Time, show

SCRIPTS = sorted((Path(__file__).parent / "scripts").glob("*.txt"))
COLUMNS = pa.schema([("k", pa.string()), ("v", pa.int64())])


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_script_ends_every_directive_as_written(script: Path, place: Place) -> None:
    """The whole script is compared, so that a difference shows where it is."""
    runner = ScriptRunner(place.location)
    steps = list(parse(script.read_text()))

    found = "\n\n".join(render(given, runner.run(given)) for given, _ in steps)
    assert found == "\n\n".join(render(given, expected) for given, expected in steps)


def parse(text: str) -> Iterator[tuple[list[str], list[str]]]:
    """The directives with their updates, and the lines expected of each."""
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    for block in "\n".join(lines).split("\n\n"):
        if block.strip():
            given, expected = block.strip("\n").split("----")
            yield given.strip().splitlines(), expected.strip().splitlines()


def render(given: list[str], answer: list[str]) -> str:
    """The value as it stands in a script."""
    return "\n".join([*given, "----", *answer])


class ScriptRunner:
    """One shard, and a handle per name."""

    def __init__(self, location: str) -> None:
        self.location = location
        self.handles: dict[str, Shard] = {}

    def run(self, given: list[str]) -> list[str]:
        """The answer to a directive, in lines."""
        directive, name, *words = given[0].split()
        if name not in self.handles:
            policy = MaintenancePolicy(compact_runs=2)
            self.handles[name] = create_or_open(self.location, COLUMNS, shard_id="s", policy=policy)
        try:
            return getattr(self, directive)(self.handles[name], words, given[1:])  # type: ignore[no-any-return]
        except PersistError as error:
            reason = str(error).removeprefix(f"shard {self.location}: ").split("; ")[0]
            return [f"{type(error).__name__}: {shorten(reason)}"]

    def append(self, shard: Shard, words: list[str], lines: list[str]) -> list[str]:
        """Compare-and-append."""
        options = dict(word.split("=") for word in words[2:])
        outcome = shard.compare_and_append(
            batch(map(update, lines)),
            expected_upper=time(words[0]),
            new_upper=time(words[1]),
            term=int(options["term"]),
            commit_id=options.get("id"),
        )
        if isinstance(outcome, Appended):
            return [f"appended upper={show(outcome.upper)} version={outcome.version}"]
        return [f"mismatch current_upper={show(outcome.current_upper)}"]

    def fence(self, shard: Shard, words: list[str], lines: list[str]) -> list[str]:
        """Raise the term."""
        shard.fence(int(words[0]))
        return [str(shard.state())]

    def since(self, shard: Shard, words: list[str], lines: list[str]) -> list[str]:
        """Downgrade the since."""
        shard.downgrade_since(time(words[0]))
        return [str(shard.state())]

    def compact(self, shard: Shard, words: list[str], lines: list[str]) -> list[str]:
        """Merge all files."""
        before = tuple(shard._log.state.files())
        shard.run_maintenance(Compact(before))
        return [f"{len(before)} files to {shard._log.state.file_count()}"]

    def contents(self, shard: Shard, words: list[str], lines: list[str]) -> list[str]:
        """The snapshot, by row."""
        found = contents(shard.snapshot(time(words[0])))
        return sorted(f"{text(row)} {diff:+}" for row, diff in found.items())

    def listen(self, shard: Shard, words: list[str], lines: list[str]) -> list[str]:
        """The updates between two times."""
        return listed(shard.listen(time(words[0]), time(words[1])))

    def updates(self, shard: Shard, words: list[str], lines: list[str]) -> list[str]:
        """All that is stored, as it is stored."""
        return listed(shard.snapshot_parts(shard.refresh().upper - 1))


def listed(parts: list[FilePart]) -> list[str]:
    """Updates, by row."""
    return sorted(f"{text(row)} @{at} {diff:+}" for (row, at), diff in changes(parts).items())


def update(line: str) -> Update:
    """`apple 3 @5 +1` or `error overflow @5 +1`."""
    name, value, at, diff = line.split()
    row: Row = (None, None, value) if name == "error" else (name, int(value))
    return row, int(at.removeprefix("@")), int(diff)


def text(row: Row) -> str:
    """The row in a script's words."""
    return f"error {row[2]}" if len(row) == 3 else f"{row[0]} {row[1]}"


def time(word: str) -> Time:
    """A frontier in a script's words."""
    return EMPTY if word == "empty" else Time(int(word))


def shorten(reason: str) -> str:
    """Without what depends on the machine, and without the advice."""
    return reason.split(": ")[-1].split(" and leave")[0].split(" (need")[0]
