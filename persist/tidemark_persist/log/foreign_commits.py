"""Foreign commits: what other programs add to a shard or remove from it, until one of its writers takes it back.

    version        7        8 foreign             9 taken back
    ours           a b      a b                   a b
    the table's    a b      a   c   (DELETE)      a b             add b, remove c

A handle that follows the log leaves foreign commits out of its state, so its readers never see them. The next commit of
a writer is preceded by one that gives the table our files again. Commits of other programs that only rewrite files
(OPTIMIZE) are none of these.
"""

from __future__ import annotations

import logging
import uuid

from tidemark_persist.errors import FilesLost
from tidemark_persist.log.delta_log import DeltaLog
from tidemark_persist.log.entry import Change
from tidemark_persist.log.state import TableState
from tidemark_persist.log.transact import transact
from tidemark_persist.times import DELETED

LOG = logging.getLogger(__name__)
NAMED = 3
"""Files in a message."""


def take_back(log: DeltaLog) -> tuple[int, ...]:
    """Commits our files again where another program has added or removed some. Returns the versions that it takes back,
    the last of many.

    Raises:
        FilesLost: a file that the other program removed from the table does not exist any more.
    """
    if not log.state.foreign:
        return ()
    lost = [path for path in log.state.foreign.removed if log.state.holds(path) and log.storage.stat(path) is None]
    if lost:
        more = f" and {len(lost) - NAMED} more" if len(lost) > NAMED else ""
        raise FilesLost(
            f"shard {log.storage.location}: another program has removed files from the table, and they do not exist "
            f"any more: {', '.join(lost[:NAMED])}{more}. Bring them back, or delete the object and create it again"
        )
    versions = tuple(log.state.foreign.versions)
    commit_id = uuid.uuid4().hex

    def decide(state: TableState) -> Change | None:
        adds, removes = state.foreign_files()
        if state.frontiers.term == DELETED or not (adds or removes):
            return None
        return Change(commit_id, adds=adds, removes=removes, takes_back=True)

    transact(log, decide)
    LOG.warning("shard %s: versions %s are another program's, and were taken back", log.storage.location, versions)
    return versions
