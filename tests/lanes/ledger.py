"""The ledger of a run: one JSON line for each test that ended, appended by the lanes.

    {"commit": "1f2e…", "round": 1, "lane": "spark", "test": "tests/…::test_…", "outcome": "passed", "seconds": 1.25,
     "cpu": 0.75}

`outcome` is passed, failed, or skipped; error, for a module that could not be collected; too late, for a test that was
left out because it would have begun too late (plugin.py). `seconds` are wall time, with
the fixtures that the test was the first to use; `cpu` is the CPU time, in seconds, of the lane's process and all below
it. The entry of a failure has the end of pytest's report as its `reason`.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

CHECKOUT = Path(__file__).parents[2]
TOO_LATE = "too late"


@dataclass(frozen=True)
class Entry:
    """One test of one round."""

    commit: str
    round: int
    lane: str
    test: str
    outcome: str
    seconds: float
    reason: str = ""
    cpu: float = 0.0

    @property
    def file(self) -> str:
        return self.test.partition("::")[0]


def append(ledger: Path, entry: Entry) -> None:
    """Several processes append at the same time: a line is one write."""
    with ledger.open("ab", buffering=0) as file:
        file.write((json.dumps(asdict(entry)) + "\n").encode())


def entries(ledger: Path) -> Iterator[Entry]:
    """All entries, in the order in which tests ended; a line that a killed process left unfinished is passed over."""
    if not ledger.exists():
        return
    for line in ledger.read_text().splitlines():
        try:
            yield Entry(**json.loads(line))
        except (ValueError, TypeError):
            continue


def commit_of_checkout() -> str:
    """The commit that is checked out; with a digest of what is changed, where something is."""
    head = _git("rev-parse", "HEAD").decode().strip()
    changed = _git("diff", "HEAD") + _git("ls-files", "--others", "--exclude-standard")
    return f"{head}+{hashlib.sha256(changed).hexdigest()[:12]}" if changed else head


def _git(*arguments: str) -> bytes:
    return subprocess.run(["git", *arguments], cwd=CHECKOUT, check=True, capture_output=True).stdout
