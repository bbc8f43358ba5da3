"""The staged files of appends that failed. Whether such an append has landed is not known at first: its files stay.

    an append from upper u fails     its files are noted
    an append from upper u lands     the one that failed has not, and never will: its files are deleted
    the upper has gone beyond u      it has landed, or another process came first: vacuum knows better

Otherwise the files of failed appends stay until vacuum takes them, a day later. While no commit lands, no file is
deleted, and of more than NOTED_MAX files vacuum takes the rest.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from tidemark_persist import PersistError, Shard, StagedFile

FilesOf = Sequence[tuple[Shard, StagedFile]]
"""Staged files, each with the shard that it is beside."""
NOTED_MAX = 10_000
"""The files that are remembered for each shard, at most."""


class Leftovers:
    """The files of one ingestion in this process, for each shard that it appends to."""

    def __init__(self) -> None:
        self._noted: dict[str, tuple[int, list[tuple[Shard, StagedFile]]]] = {}

    def note(self, shard: Shard, lower: int, files: FilesOf) -> None:
        """An append to the shard from this upper, with the files or with bindings that name them, has failed."""
        known = self._noted.get(shard.location)
        before = known[1] if known is not None and known[0] == lower else []
        self._noted[shard.location] = lower, [*before, *files][:NOTED_MAX]

    def settle(self, shard: Shard, lower: int, files: FilesOf) -> None:
        """An append to the shard from this upper has landed, with these files. Raises nothing."""
        at, noted = self._noted.pop(shard.location, (lower, []))
        if at != lower:
            return
        landed = {file.path for _, file in files}
        left: dict[str, tuple[Shard, list[StagedFile]]] = {}
        for beside, file in noted:
            if file.path not in landed:
                left.setdefault(beside.location, (beside, []))[1].append(file)
        for beside, dead in left.values():
            with suppress(PersistError):
                beside.discard(dead)
