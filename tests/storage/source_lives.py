"""DataSources of one name one after the other, as an operator makes them: tables come and go, and are adopted.

    life 1   a, b             the tables of a life have different names; each is another shard
    life 2   a (adopted), b   this b is another table, under the bindings of life 1

The functions of the operator say which shards a life has. `Kind` is what differs between kinds of sources.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol, cast

from tests.storage.dying_appends import MomentsUntilDeath
from tests.storage.ingestion_samples import oks
from tidemark_operator.handlers.reconcile.source_pinning import ingested_table, pinned_ingestion, with_columns
from tidemark_operator.planning.adoption import newest_source
from tidemark_operator.planning.shards import REMAP, ShardLocations, free_version
from tidemark_operator.planning.table_edit import edited
from tidemark_operator.resources.manifest.data_source import DataSource
from tidemark_operator.resources.manifest.meta import Meta, Namespace, Uid
from tidemark_persist import ShardWriters
from tidemark_protocol.ids import ShardId, Time, WriterTerm
from tidemark_protocol.messages.responses import DescribedShard
from tidemark_protocol.plan.ingestion import IngestedTable, IngestionDescription, SourceSpec, SourceTable
from tidemark_replica.shards.shards import ShardHandles, with_owner
from tidemark_replica.storage.ingester import Ingester
from tidemark_replica.storage.source import Source

Rows = Counter[tuple[object, ...]]


class Kind(Protocol):
    """A kind of sources. A table of a spec has the place upstream, of which there are few."""

    def table(self, name: str) -> Any:
        """A table of a spec with this name, at any of the places."""

    def write(self) -> None:
        """One change upstream, at any of the places."""

    def forget(self) -> None:
        """Upstream forgets some of what it had when the tables had all of it last."""

    def spec(self, tables: Sequence[Any]) -> SourceSpec: ...

    def found(self, spec: Any) -> tuple[SourceTable, ...]:
        """The tables, as an inspection finds them."""

    def source(self, spec: Any) -> Source: ...

    def is_read(self, source: Any, spec: Any) -> bool:
        """Whether the tables have all that is upstream. It is asked after each tick."""

    def rows(self, table: Any, before: Rows) -> Rows:
        """The rows that the table has to have now. `before`: those that it had to have last."""


class Lives:
    """The DataSource that lives now, and its ingester. `expected`: the rows of shards at times, by location."""

    def __init__(self, root: Path, kind: Kind) -> None:
        self._root, self._kind = root, kind
        self._life, self._term, self._time = 0, 0, 0
        self._specs: dict[str, Any] = {}
        """Tables of specs by their shards' locations."""
        self.pinned: IngestionDescription | None = None
        self.expected: dict[str, dict[int, Rows]] = {}
        self.one: Ingester | None = None

    @property
    def _uid(self) -> str:
        assert self.pinned is not None
        return self.pinned.id

    @property
    def tables(self) -> dict[str, IngestedTable]:
        """The tables of this life, by name."""
        return {table.table.name: table for table in self.pinned.tables} if self.pinned else {}

    def adoptable(self) -> list[Any]:
        """The tables of specs of which one is where a new life would look, though it may lack bindings by now."""
        assert self.pinned is not None
        version = self.pinned.remap_location.rpartition("/")[2]
        return [spec for at, spec in self._specs.items() if at.endswith(f"/{spec.name}/{version}")]

    def begin(self, tables: Sequence[Any]) -> str:
        """The next life, with these tables, adopted if there are some to adopt. Returns why it cannot be."""
        spec = self._kind.spec(tables)
        found = self._kind.found(spec)
        self._life += 1
        uid = f"life-{self._life}"
        locations, version, why = asyncio.run(self._locations(uid, found))
        if not why:
            self.close()
            meta = Meta(Namespace("ns"), "s", Uid(uid), 1, "1", False, ())
            source = cast(DataSource, _Manifest(meta, spec))
            self.pinned = pinned_ingestion(source, locations, version, found)
            self._remember(tables)
        return why

    async def _locations(self, uid: str, found: Sequence[SourceTable]) -> tuple[ShardLocations, int, str]:
        names = [table.name for table in found]
        locations = ShardLocations.of(str(self._root), "ns", "s", uid)
        there = await newest_source(locations, names, look_up)
        if not there.version:
            return locations, await free_version(locations, [REMAP, *names], 1, look_up), ""
        why = there.misfit(locations, {table.name: table.columns for table in found})
        return there.adopting(locations), there.version, why

    def edit(self, added: Sequence[Any], removed: Sequence[str]) -> None:
        """The next revision of this life."""
        self.close()
        assert self.pinned is not None
        gone = [self.tables[name] for name in removed]
        spec, new = None, tuple[IngestedTable, ...]()
        if added:
            found = self._kind.found(self._kind.spec(added))
            spec = with_columns(self._kind.spec(added), found)
            locations = ShardLocations.of(str(self._root), "ns", "s", self._uid)
            version = asyncio.run(free_version(locations, [table.name for table in found], 1, look_up))
            remap = self.pinned.remap_id
            new = tuple(ingested_table(self._uid, locations, version, table, remap) for table in found)
        self.pinned = edited(self.pinned, gone, spec, new)
        self._remember(added)

    def _remember(self, specs: Sequence[Any]) -> None:
        for spec in specs:
            location = self.tables[spec.name].shard.location
            self._specs[location] = spec  # another one, where the last table for this location was never made
            self.expected.setdefault(location, {})

    def settle(self) -> None:
        """Another process ingests, or this one goes on, until all is read; what is there then is expected at the last
        time from now on."""
        source = self._opened()
        for _ in range(400):
            self._time += 100
            assert self.one is not None
            assert self.one.tick(Time(self._time))
            if not source.stop_reasons() and self._kind.is_read(source, self.pinned and self.pinned.source):
                break
        else:
            raise AssertionError(f"not read: {source.warning()} {dict(source.stop_reasons())}")
        for table in self.tables.values():
            location, expected = table.shard.location, self.expected[table.shard.location]
            before = expected[max(expected)] if expected else Rows()
            expected[self._time] = self._kind.rows(self._specs[location], before)

    def _opened(self) -> Any:
        if self.one is None:
            assert self.pinned is not None
            self._term += 1
            source = self._kind.source(self.pinned.source)
            self.one = Ingester(self.pinned, WriterTerm(self._term), source, ShardWriters())
            self.one.recover()
        return self.one._source

    def compact(self) -> None:
        """The remap forgets what all tables have."""
        if self.one is not None:
            self.one.compact_remap()

    def close(self) -> None:
        """The process ends."""
        if self.one is not None:
            self.one._source.close()
        self.one = None

    def check(self) -> None:
        """Each table, of any life, has at each time what it had to have."""
        for location, times in self.expected.items():
            for at, rows in times.items():
                root, version = location.rsplit("/", 1)
                assert Counter(oks(Path(root), version, at)) == rows, (location, at)


class _Manifest:
    def __init__(self, meta: Meta, source: SourceSpec) -> None:
        self.meta, self.source, self.tick_ms = meta, source, 100


async def look_up(shards: Sequence[tuple[ShardId, str]]) -> list[DescribedShard]:
    """Look the tables up as a replica describes them."""
    handles = ShardHandles()
    seen = [(handles.describe(id, location), location) for id, location in shards]
    return [with_owner(handles.reader(at), shard) if shard.exists else shard for shard, at in seen]


def random_lives(lives: Lives, kind: Kind, seed: int, steps: int, until_death: MomentsUntilDeath) -> Counter[str]:
    """A history; returns how often what happened."""
    draw, done = random.Random(seed), Counter[str]()
    names = "abc"
    assert not lives.begin([kind.table(name) for name in names[:2]])
    lives.settle()

    def add() -> bool:
        assert lives.pinned is not None
        free = [name for name in names if name not in lives.tables and name not in lives.pinned.removed]
        if free:
            lives.edit([kind.table(draw.choice(free))], [])
        return bool(free)

    def remove() -> bool:
        if len(lives.tables) > 1:
            lives.edit([], [draw.choice(sorted(lives.tables))])
        return len(lives.tables) > 1

    def adopt() -> bool:
        """Some of the tables, perhaps with one that was removed before: that one may be refused."""
        found = lives.adoptable()
        for _ in range(5):
            if not lives.begin(draw.sample(found, draw.randrange(1, len(found) + 1))):
                return True
            done["refused"] += 1
        return False

    def crash() -> bool:
        until_death.left = draw.randrange(1, 8)
        try:
            kind.write()
            lives.settle()
        except KeyboardInterrupt:
            lives.close()
            return True
        finally:
            until_death.left = 1_000_000
        return False

    moves: dict[str, Any] = {"add": add, "remove": remove, "adopt": adopt, "crash": crash}
    for _ in range(steps):
        name = draw.choice(["add", "add", "remove", "adopt", "crash", "write", "write", "forget", "compact", "settle"])
        if name in moves:
            done[name] += moves[name]()
        elif name in ("write", "forget"):
            getattr(kind, name)()
        else:
            getattr(lives, name)()
        if draw.random() < 0.3:
            lives.settle()
    lives.settle()
    lives.close()
    return done
