"""The version of a table that a revision gets, by the active and pending revisions and the stored tables."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

import pytest

from tests.handlers.revised_dataflows import rev
from tests.protocol.samples import A
from tidemark_operator.planning.revision import WrittenShard
from tidemark_operator.planning.shards import ShardLocations, given_before, unless_finished, version_of, view_shard
from tidemark_protocol.frontier import Frontier
from tidemark_protocol.ids import GlobalId, ShardId, WriterTerm
from tidemark_protocol.messages.planning import PlannedExport
from tidemark_protocol.messages.responses import DescribedShard
from tidemark_protocol.types import STRING, Column

PLACE = ShardLocations("/data/ns/d", "uid")
B = Column("b", STRING)
EXPORT = PlannedExport("v", "materializedView", GlobalId("o"), (B,), ())


def written(version: int, column: Column = A) -> WrittenShard:
    return WrittenShard("materializedView", PLACE.shard("v", version, (column,)))


class Storage:
    """Versions that have a shard, all finished."""

    def __init__(self, *there: int) -> None:
        self._there = {PLACE.address("v", version)[0] for version in there}

    async def look(self, wanted: Sequence[tuple[ShardId, str]]) -> list[DescribedShard]:
        since = Frontier.minimum()
        return [DescribedShard(id, id in self._there, Frontier.empty(), since, WriterTerm(1)) for id, _ in wanted]


@pytest.mark.parametrize(
    ("before", "pending", "there", "given"),
    [
        (None, None, (), 1),
        (None, None, (1, 2), 3),
        (written(1, B), None, (1,), 1),
        (written(1, replace(B, nullable=False)), None, (1,), 2),
        (written(1), None, (1,), 2),
        (written(1), written(2, B), (1, 2), 3),
        (written(1), written(2, B), (1,), 3),
        (written(1, B), written(2), (1,), 1),
    ],
    ids=[
        "the first",
        "retained tables",
        "the same columns",
        "a column that has NULL now",
        "other columns",
        "a pending one has begun its table",
        "a pending one may begin its table yet",
        "back to the columns that serve",
    ],
)
def test_the_version_that_a_revision_is_given(
    before: WrittenShard | None, pending: WrittenShard | None, there: tuple[int, ...], given: int
) -> None:
    """The version is that of the serving revision, or one that nobody ever had."""
    shard = asyncio.run(view_shard(PLACE, EXPORT, before, Storage(*there).look, [pending] if pending else []))
    assert version_of(shard) == given


@pytest.mark.parametrize(("pending", "given"), [(None, 2), (written(2, B), 3)])
def test_a_finished_table_is_followed_by_an_unused_version(pending: WrittenShard | None, given: int) -> None:
    """Also where the pending revision has not begun its own."""
    shard = asyncio.run(
        unless_finished(PLACE, EXPORT, written(1, B).shard, Storage(1).look, lambda: True, [pending] if pending else [])
    )
    assert version_of(shard) == given


@pytest.mark.parametrize(
    ("pending", "stored", "given"),
    [
        (None, [(1, 1, "spec 1")], [1]),
        (None, [(1, 1, "spec 1"), (2, 2, "reverted")], [1, 2]),
        (None, [(1, 1, "spec 1"), (2, 2, "wanted")], [1]),
        (2, [(1, 1, "spec 1"), (2, 2, "wanted")], [2, 1]),
    ],
    ids=["it serves", "its edit was reverted", "the operator died before it was marked", "it is to serve no more"],
)
def test_the_version_of_a_revision_that_never_served_is_not_reused(
    pending: int | None, stored: list[tuple[int, int, str]], given: list[int]
) -> None:
    """A replica that has not heard of its end may begin the table yet."""
    export = PlannedExport("v", "materializedView", GlobalId("o"), (A,), ())
    revisions = [rev("d", number, view=view, spec=spec).revision for number, view, spec in stored]
    until_now = rev("d", pending, view=pending).revision if pending else None

    found = given_before(export, until_now, revisions, "wanted")

    assert [version_of(written.shard) for written in found] == given
