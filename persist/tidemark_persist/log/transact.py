"""The retry loop around one commit: decide, try the slot, decide again.

`decide` looks at the state and returns the change to commit, or ends the loop by another value or an error. It is pure,
and called again whenever another commit took the slot: a since or a compaction that came first costs one retry.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import TypeVar

from tidemark_persist.errors import Contention, IndeterminateCommit
from tidemark_persist.log.delta_log import DeltaLog, SlotUnknown
from tidemark_persist.log.entry import Change
from tidemark_persist.log.state import TableState

Verdict = TypeVar("Verdict")

RACES_MAX = 200  # every lost race is another writer's success
UNKNOWNS_MAX = 4
PAUSE_SECONDS = 0.05


def transact(log: DeltaLog, decide: Callable[[TableState], Change | Verdict]) -> Change | Verdict:
    """The change that landed, or the verdict that ended the attempts."""
    races = unknowns = 0
    while True:
        decision = decide(log.state)
        if not isinstance(decision, Change):
            return decision
        try:
            if log.attempt(decision):
                return decision
        except SlotUnknown as unknown:
            unknowns += 1
            if unknowns >= UNKNOWNS_MAX:
                raise _indeterminate(log, decision, unknown) from unknown
            time.sleep(PAUSE_SECONDS * 2**unknowns)
            continue
        races += 1
        if races >= RACES_MAX:
            raise Contention(f"shard {log.storage.location}: lost {races} races in a row; try again later")
        if races > 3:
            time.sleep(random.uniform(0, PAUSE_SECONDS))  # let the others through, out of step


def _indeterminate(log: DeltaLog, change: Change, unknown: SlotUnknown) -> IndeterminateCommit:
    return IndeterminateCommit(
        f"shard {log.storage.location}: version {log.version + 1} may or may not hold commit "
        f"{change.commit_id} ({unknown}); retry with the same commit id",
        commit_id=change.commit_id,
    )
