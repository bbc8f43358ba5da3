"""Writers to run as processes of their own: to race each other, and to be killed.

python -m tests.persist.writer race LOCATION NAME UNTIL      append one row per win until the upper is UNTIL
python -m tests.persist.writer tick LOCATION FAULT NOTE      append one row per tick, for ever
"""

from __future__ import annotations

import json
import os
import signal
import sys
import uuid
from pathlib import Path

from tests.persist.faults import Commit, inject
from tests.persist.model import COLUMNS, batch
from tidemark_persist import Appended, MaintenancePolicy, Shard, create_or_open

BUSY = MaintenancePolicy(
    checkpoint_commits=3, compact_runs=3, vacuum_grace_seconds=0.2, orphan_age_seconds=60, log_retention_seconds=30
)


def race(location: str, name: str, until: str) -> None:
    """Print one line with the times won, once the upper is reached."""
    shard = create_or_open(location, COLUMNS, shard_id="s", policy=BUSY)
    print("ready", flush=True)
    sys.stdin.readline()
    won = []
    while (upper := shard.refresh().upper) < int(until):
        outcome = shard.compare_and_append(
            batch([((name, upper), upper, 1)]), expected_upper=upper, new_upper=upper + 1, term=1
        )
        if isinstance(outcome, Appended):
            won.append(upper)
            shard.downgrade_since(max(0, upper - 5))
            tidy(shard)
    print(json.dumps(won), flush=True)


def tick(location: str, fault: str, noted_at: str) -> None:
    """One row per tick. The append is noted first, and finished first after a restart."""
    shard = create_or_open(location, COLUMNS, shard_id="s", policy=BUSY)
    note = Path(noted_at)
    if note.exists():
        upper, commit_id = json.loads(note.read_text())
        append_tick(shard, upper, commit_id)
    if fault != "none":
        inject(shard, *[lambda commit: commit()] * 2, FAULTS[fault])
    print("ready", flush=True)
    while True:
        upper, commit_id = shard.refresh().upper, uuid.uuid4().hex
        draft = note.with_suffix(".draft")
        draft.write_text(json.dumps([upper, commit_id]))
        draft.replace(note)
        append_tick(shard, upper, commit_id)
        shard.downgrade_since(max(0, upper - 5))
        if fault == "none":  # a checkpoint would reopen the table, without the fault
            tidy(shard)


def append_tick(shard: Shard, upper: int, commit_id: str) -> None:
    """The only writer must always win, or have won."""
    rows = batch([(("tick", upper), upper, 1)])
    outcome = shard.compare_and_append(rows, expected_upper=upper, new_upper=upper + 1, term=1, commit_id=commit_id)
    if not isinstance(outcome, Appended):
        sys.exit(f"append at {upper} ended in {outcome}")


def tidy(shard: Shard) -> None:
    """All maintenance that is due."""
    for work in shard.maintenance_due():
        shard.run_maintenance(work)


def die(commit: Commit | None = None) -> None:
    """Die as by the kernel, with the data file written and, if given, the commit made."""
    if commit is not None:
        commit()
    os.kill(os.getpid(), signal.SIGKILL)


FAULTS = {"before-commit": lambda commit: die(), "after-commit": die}

if __name__ == "__main__":
    {"race": race, "tick": tick}[sys.argv[1]](*sys.argv[2:])
