"""`adopt`: tables that an earlier object of the name has left are gone on with, under the ids that they have."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest

from tests.protocol.samples import A
from tidemark_operator.controller.frontiers.shards import ShardBook
from tidemark_operator.errors import Rejected, Waiting
from tidemark_operator.planning.adoption import adopted_shard, newest_source
from tidemark_operator.planning.revision import WrittenShard
from tidemark_operator.planning.shards import ShardLocations, ShardLookup, view_shard
from tidemark_protocol.frontier import Frontier
from tidemark_protocol.ids import GlobalId, ShardId, WriterTerm
from tidemark_protocol.messages.planning import PlannedExport, PlannedTask
from tidemark_protocol.messages.responses import DescribedShard
from tidemark_protocol.types import STRING, Column

PLACE = ShardLocations.of("/data", "ns", "revenue", "new")
B = Column("b", STRING)
VIEW = PlannedExport("v", "materializedView", GlobalId("v"), (A,), (0,))
Tables = Mapping[str, tuple[tuple[Column, ...], Frontier]]


def looking(tables: Tables, owner: bool = True, makers: Mapping[str, str] | None = None) -> ShardLookup:
    """A replica's answers, where tables stand at these parts and versions; `makers`: ids that they have."""
    makers = makers or {}

    async def look(shards: Sequence[tuple[ShardId, str]]) -> list[DescribedShard]:
        described = []
        for id, location in shards:
            at = location.removeprefix("/data/ns/revenue/")
            columns, upper = tables.get(at, ((), Frontier.minimum()))
            whose = ShardId(makers.get(at, f"old/{at}")) if owner and at in tables else None
            details = (upper, Frontier.minimum(), WriterTerm(7), None, whose, columns)
            described.append(DescribedShard(id, at in tables, *details))
        return described

    return look


def goes_on() -> bool:
    """There is more to come of it."""
    return False


@pytest.mark.parametrize(
    ("tables", "location", "id"),
    [
        pytest.param({}, "v/v1", "new/v/v1", id="nothing is there: the first"),
        pytest.param({"v/v1": ((A,), 9)}, "v/v1", "old/v/v1", id="the one that is there"),
        pytest.param({"v/v1": ((A,), 9), "v/v3": ((A,), 9)}, "v/v3", "old/v/v3", id="the newest, past a gap"),
        pytest.param({f"v/v{n}": ((A,), 9) for n in range(1, 12)}, "v/v11", "old/v/v11", id="many"),
        pytest.param({"v/v10": ((A,), 9)}, "v/v10", "old/v/v10", id="far up"),
        pytest.param({"v/v1": ((A,), 9), "v/v9": ((A,), 9), "v/v18": ((A,), 9)}, "v/v18", "old/v/v18", id="gaps"),
        pytest.param({"v/v1": ((A,), 9), "v/v2": ((B,), 0)}, "v/v1", "old/v/v1", id="the newest was never written"),
        pytest.param({"v/v2": ((B,), 0)}, "v/v3", "new/v/v3", id="others' columns, and nothing is in it: the next"),
        pytest.param({"__remap/v2": ((), 9), "v/v2": ((A,), 9)}, "v/v3", "new/v/v3", id="a source's: the next"),
        pytest.param(
            {"__remap/v2": ((), 9), "v/v2": ((A,), 9), "v/v1": ((A,), 9)}, "v/v1", "old/v/v1", id="beside a source's"
        ),
        pytest.param({"v/v1": ((A,), None)}, "v/v2", "new/v/v2", id="it is finished: the next"),
    ],
)
def test_a_view_goes_on_with_the_newest_table_that_fits(
    tables: Mapping[str, tuple[tuple[Column, ...], int | None]], location: str, id: str
) -> None:
    """Where none does, its own comes after all that are there."""
    there = {at: (c, Frontier.empty() if n is None else Frontier.at(n)) for at, (c, n) in tables.items()}

    shard, found = asyncio.run(adopted_shard(PLACE, VIEW, looking(there), goes_on))

    assert (shard.location, shard.shard_id, shard.columns) == (f"/data/ns/revenue/{location}", id, (A,))
    assert (found is not None) == id.startswith("old/")


def test_terms_are_above_what_the_tables_have_seen() -> None:
    """Whoever wrote to them, and may still be there, is shut out."""
    shard, found = asyncio.run(adopted_shard(PLACE, VIEW, looking({"v/v1": ((A,), Frontier.at(9))}), goes_on))
    assert found is not None
    book = ShardBook()
    book.adopt(shard.shard_id, shard.location, found, 60_000)
    known = book.get(shard.shard_id)

    assert known is not None
    assert (known.term, known.lag_ms) == (7, 60_000)
    assert known.frontiers is not None
    assert known.frontiers.upper == Frontier.at(9)


def test_a_view_that_has_ended_has_the_finished_table() -> None:
    """Nothing can be computed any more of what was before its end."""
    finished = looking({"v/v1": ((A,), Frontier.empty())})
    shard, found = asyncio.run(adopted_shard(PLACE, VIEW, finished, lambda: True))

    assert (shard.shard_id, found is not None) == ("old/v/v1", True)


TASK = replace(VIEW, kind="continualTask", task=PlannedTask(GlobalId("src/a")))


@pytest.mark.parametrize(
    ("export", "tables", "makers", "taken", "why"),
    [
        pytest.param(
            VIEW,
            {"v/v1": ((A,), Frontier.at(9)), "v/v2": ((B,), Frontier.at(9))},
            {},
            {},
            r"v in v2 has columns \(b string\), not \(a bigint\)",
            id="an older one would fit",
        ),
        pytest.param(
            VIEW,
            {"v/v1": ((A,), Frontier.at(9))},
            {"v/v1": "old/v/task/v1"},
            {},
            "v in v1 is a continual task's",
            id="what a task wrote is no view's contents",
        ),
        pytest.param(
            TASK,
            {"v/v1": ((A,), Frontier.at(9))},
            {},
            {},
            "v in v1 is not known to be a continual task's",
            id="what a view holds is no output of a task",
        ),
        pytest.param(
            VIEW,
            {"v/v1": ((A,), Frontier.at(9))},
            {},
            {"/data/ns/revenue/v/v1": "that of DataSource ns/revenue"},
            "v in v1 is that of DataSource ns/revenue",
            id="an object that is there has it",
        ),
    ],
)
def test_no_new_table_is_begun_in_the_place_of_one_that_has_rows(
    export: PlannedExport, tables: Tables, makers: Mapping[str, str], taken: Mapping[str, str], why: str
) -> None:
    """It says which one, and what to do."""
    with pytest.raises(Rejected, match=f"{why}. Set spec.adopt to false") as refused:
        asyncio.run(adopted_shard(replace(PLACE, taken=taken), export, looking(tables, makers=makers), goes_on))
    assert refused.value.reason == "CannotAdopt"


@pytest.mark.parametrize(
    ("upper", "ended", "id"),
    [
        (Frontier.at(9), False, "old/v/task/v1"),
        (Frontier.empty(), True, "old/v/task/v1"),
        (Frontier.empty(), False, "new/v/task/v2"),
    ],
    ids=["it goes on", "both have ended", "it is finished, and the new one goes on: the next"],
)
def test_a_task_goes_on_with_what_a_task_wrote(upper: Frontier, ended: bool, id: str) -> None:
    """Also where that is finished, if it has nothing more to do. Its own first table says whose it is."""
    first, _ = asyncio.run(adopted_shard(PLACE, TASK, looking({}), goes_on))
    there = looking({"v/v1": ((A,), upper)}, makers={"v/v1": "old/v/task/v1"})

    shard, found = asyncio.run(adopted_shard(PLACE, TASK, there, lambda: ended))

    assert (first.shard_id, first.location) == ("new/v/task/v1", "/data/ns/revenue/v/v1")
    assert (shard.shard_id, shard.location) == (id, f"/data/ns/revenue/v/{id[-2:]}")
    assert (found is not None) == id.startswith("old/")


@pytest.mark.parametrize(
    ("makers", "taken", "misfit"),
    [
        ({"t/v1": "a Dataflow's/t/v1"}, {}, "t in v1 was made by another object than the bindings in v1"),
        ({}, {"/data/ns/revenue/t/v1": "that of Dataflow ns/revenue"}, "t in v1 is that of Dataflow ns/revenue"),
        ({}, {"/data/ns/revenue/__remap/v1": "another's"}, "__remap in v1 is another's"),
    ],
)
def test_a_source_does_not_adopt_what_another_made_or_has(
    makers: Mapping[str, str], taken: Mapping[str, str], misfit: str
) -> None:
    """A Dataflow of the same name has its tables below the same address."""
    place = replace(PLACE, taken=taken)
    there = looking({"__remap/v1": ((), Frontier.at(9)), "t/v1": ((A,), Frontier.at(9))}, makers=makers)

    found = asyncio.run(newest_source(place, ("t",), there))

    assert found.misfit(place, {"t": (A,)}) == misfit


@pytest.mark.parametrize(
    ("tables", "misfit"),
    [
        ({"__remap/v1": (), "t/v1": (A,)}, ""),
        ({"__remap/v1": (), "t/v1": (A,), "__remap/v2": (), "t/v2": (A,)}, ""),
        ({"__remap/v1": (), "t/v1": (A,), "t/v2": (A,)}, ""),
        ({"__remap/v1": (), "t/v1": (A,), "__remap/v10": (), "t/v10": (A,)}, ""),
        ({"__remap/v2": ()}, "there is no t in v2"),
        ({"__remap/v1": (), "t/v1": (B,)}, "t in v1 has columns (b string), not (a bigint)"),
    ],
)
def test_a_source_goes_on_with_all_of_its_tables_or_with_none(
    tables: Mapping[str, tuple[Column, ...]], misfit: str
) -> None:
    """Rows of one table belong to a binding for all."""
    there = {at: (columns, Frontier.at(9)) for at, columns in tables.items()}

    found = asyncio.run(newest_source(PLACE, ("t",), looking(there)))

    assert found.misfit(PLACE, {"t": (A,)}) == misfit
    assert found.adopting(PLACE).address("t", 9)[0] == "new/t/v9"
    for part in found.shards:
        assert found.adopting(PLACE).address(part, found.version)[0] == f"old/{part}/v{found.version}"


def test_an_adopted_table_may_have_null_where_its_view_has_none() -> None:
    """The view before may have had NULL there. An edit that brings NULL goes on in the same table."""
    strict = PlannedExport("v", "materializedView", GlobalId("v"), (Column(A.name, A.type, nullable=False),), (0,))
    shard, found = asyncio.run(adopted_shard(PLACE, strict, looking({"v/v1": ((A,), Frontier.at(9))}), goes_on))
    assert found is not None
    assert shard.columns == (Column(A.name, A.type, nullable=True),)

    for export in (strict, replace(strict, columns=shard.columns)):
        assert asyncio.run(view_shard(PLACE, export, WrittenShard(strict.kind, shard), looking({}))) == shard


def test_a_replica_that_does_not_say_whose_a_table_is_adopts_nothing() -> None:
    """An older image: the id must be known, or nothing could be written."""
    with pytest.raises(Waiting, match="its image is too old"):
        asyncio.run(adopted_shard(PLACE, VIEW, looking({"v/v1": ((A,), Frontier.at(9))}, owner=False), goes_on))


def test_without_bindings_a_source_adopts_nothing() -> None:
    """Nobody could tell what its tables have."""
    found = asyncio.run(newest_source(PLACE, ("t",), looking({"t/v1": ((A,), Frontier.at(9))})))
    assert (found.version, found.shards) == (0, {})
