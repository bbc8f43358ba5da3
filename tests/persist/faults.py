"""Faults at the call that commits, as an unreliable network causes them.

The commits are real; the wrapper only decides when they happen and what their caller hears.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from tidemark_persist import Shard

Commit = Callable[[], None]


class Lost(OSError):
    """The connection broke; nobody knows when."""


class FaultyTable:
    """Stands between a shard and its Delta table. Each commit consults the next fault; then all is well."""

    def __init__(self, table: Any, faults: Iterable[Callable[[Commit], None]]) -> None:
        self._real = table
        self._faults = iter(faults)

    def create_write_transaction(self, *args: Any, **kwargs: Any) -> None:
        """Commit, through the next fault."""
        fault = next(self._faults, None)
        commit = lambda: self._real.create_write_transaction(*args, **kwargs)  # noqa: E731
        commit() if fault is None else fault(commit)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)


def reply_lost(commit: Commit) -> None:
    """The commit lands; its reply does not arrive."""
    commit()
    raise Lost("connection reset after the request was sent")


def request_lost(commit: Commit) -> None:
    """The commit never arrives."""
    raise Lost("connection reset before the request was sent")


def inject(shard: Shard, *faults: Callable[[Commit], None]) -> None:
    """The next commits of this handle meet these faults."""
    shard._log.table = FaultyTable(shard._log.table, faults)  # type: ignore[assignment]
