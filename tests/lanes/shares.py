"""Shares of a suite of about the same length: the same files every time, by recorded seconds.

`seconds.json` maps a test file to the seconds that its tests took; `python -m tests.lanes.shares LEDGER` writes what a
ledger recorded. A file that it does not know counts UNKNOWN_SECONDS for each test.
"""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path

from tests.lanes.ledger import TOO_LATE, entries

RECORDED = Path(__file__).with_name("seconds.json")
UNKNOWN_SECONDS = 10.0


def recorded() -> dict[str, float]:
    found: dict[str, float] = json.loads(RECORDED.read_text())
    return found


def share_of_files(tests: Mapping[str, int], number: int, of: int) -> frozenset[str]:
    """The files of one share (`number` from 1 to `of`); `tests` has the number of tests of each file.

    The longest file first, each to the share that has least to do so far.
    """
    assert 1 <= number <= of, f"share {number} of {of}"
    load = [0.0] * of
    share: dict[str, int] = {}
    for file, seconds in longest_first(tests).items():
        least = load.index(min(load))
        share[file] = least + 1
        load[least] += seconds
    return frozenset(file for file, its in share.items() if its == number)


def longest_first(tests: Mapping[str, int]) -> dict[str, float]:
    """The seconds of each file, in that order; `tests` has the number of tests of each file."""
    known = recorded()
    seconds = {file: known.get(file, UNKNOWN_SECONDS * count) for file, count in tests.items()}
    return dict(sorted(seconds.items(), key=lambda entry: (-entry[1], entry[0])))


def turn_of(commit: str, of: int) -> int:
    """The share (1 to `of`) that is a commit's turn; `commit` begins with hexadecimal digits."""
    return int(commit[:4], 16) % of + 1


def share_of_broad_tests(units: Iterable[str], number: int, of: int) -> frozenset[str]:
    """The units (tests or files) of one share (`number` from 1 to `of`): neighbours in the order of names, as the cases
    of one test, are dealt out one by one."""
    assert 1 <= number <= of, f"share {number} of {of}"
    return frozenset(sorted(set(units))[number - 1 :: of])


def main(ledger: Path) -> None:
    """Record the seconds of the files that the ledger knows; of a test that ran several times, those of the last. A
    file some of whose tests were left out keeps its seconds."""
    last = {entry.test: entry for entry in entries(ledger) if entry.outcome in ("passed", TOO_LATE)}
    partly = {entry.file for entry in last.values() if entry.outcome == TOO_LATE}
    seconds: dict[str, float] = defaultdict(float)
    for entry in last.values():
        if entry.file not in partly:
            seconds[entry.file] += entry.seconds
    found = recorded() | {file: round(took, 1) for file, took in seconds.items()}
    RECORDED.write_text(json.dumps(dict(sorted(found.items())), indent=1) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
