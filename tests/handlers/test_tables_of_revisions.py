"""Which version of a table a revision is given, by what serves, what is pending, and what stands in storage."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from tests.protocol.samples import A
from tidemark_operator.planning.revision import Written
from tidemark_operator.planning.shards import Place, unless_finished, version_of, view_shard
from tidemark_protocol.frontier import Frontier
from tidemark_protocol.ids import GlobalId, ShardId, WriterTerm
from tidemark_protocol.planning import PlannedExport
from tidemark_protocol.responses import DescribedShard
from tidemark_protocol.types import STRING, Column

PLACE = Place("/data/ns/d", "uid")
B = Column("b", STRING)
EXPORT = PlannedExport("v", "materializedView", GlobalId("o"), (B,), ())


def written(version: int, column: Column = A) -> Written:
    return Written("materializedView", PLACE.shard("v", version, (column,)))


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
        (written(1), None, (1,), 2),
        (written(1), written(2, B), (1, 2), 3),
        (written(1), written(2, B), (1,), 3),
        (written(1, B), written(2), (1,), 1),
    ],
    ids=[
        "the first",
        "retained tables",
        "the same columns",
        "other columns",
        "a pending one has begun its table",
        "a pending one may begin its table yet",
        "back to the columns that serve",
    ],
)
def test_the_version_that_a_revision_is_given(
    before: Written | None, pending: Written | None, there: tuple[int, ...], given: int
) -> None:
    """That of what serves, or one that nobody was ever given."""
    shard = asyncio.run(view_shard(PLACE, EXPORT, before, Storage(*there).look, pending))
    assert version_of(shard) == given


@pytest.mark.parametrize(("pending", "given"), [(None, 2), (written(2, B), 3)])
def test_a_finished_table_is_followed_by_one_that_nobody_was_given(pending: Written | None, given: int) -> None:
    """Also where the pending revision has not begun its own."""
    shard = asyncio.run(unless_finished(PLACE, EXPORT, written(1, B).shard, Storage(1).look, pending))
    assert version_of(shard) == given
