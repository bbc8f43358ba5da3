"""Checks that no version violates the primary key of its table. A version that does is remembered, and not read again.

The values of a key are in the log alone: everybody who sees a DataSource reads its conditions.
"""

from __future__ import annotations

from collections.abc import Sequence
from logging import getLogger

from tidemark_persist import ShardReader, StagedFile
from tidemark_replica.storage.delta.bindings import BoundVersion
from tidemark_replica.storage.delta.followed_table import FollowedTable
from tidemark_replica.storage.delta.stop import KEY_VIOLATED
from tidemark_replica.storage.errors import TableStopped
from tidemark_replica.storage.keyed_rows.unique import KEY_IN_LOG, key_violation

LOG = getLogger(__name__)


KNOWN_MAX = 4
"""The versions of a table that are remembered: the bound one, and those that were tried in its place last."""


class ViolatingVersions:
    """The versions of each table that were found to violate its primary key, and how; those that were asked for last.
    Callable from any thread."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, tuple[str, ...]], list[tuple[BoundVersion, str]]] = {}
        """By the table's name and primary key: a table of another key may have the name by now."""

    def check_known(self, table: FollowedTable, version: BoundVersion) -> None:
        """Raises TableStopped where the version is known to violate the primary key: its log and files, and the
        contents of the shard, which stands still, are what they were."""
        of = table.name, table.primary_key
        known = self._found.get(of, [])
        for found, text in known:
            if found == version:
                self._found[of] = [*(each for each in known if each[0] != version), (version, text)]
                raise TableStopped(KEY_VIOLATED, text)

    def check(
        self, table: FollowedTable, shard: ShardReader, version: BoundVersion, files: Sequence[StagedFile]
    ) -> None:
        """Raises TableStopped where the table would violate its primary key with the staged files of the version."""
        if not table.primary_key:
            return
        violation = key_violation(shard, table.primary_key, files)
        if violation is not None:
            LOG.warning("table %s of a delta source: version %d: %s", table.name, version.version, violation.log_text)
            text = f"in version {version.version}, {violation.text}; {KEY_IN_LOG}"
            of = table.name, table.primary_key
            self._found[of] = [*self._found.get(of, []), (version, text)][-KNOWN_MAX:]
            raise TableStopped(KEY_VIOLATED, text)
