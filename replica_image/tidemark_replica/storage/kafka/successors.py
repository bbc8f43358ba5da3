"""The tables of a source that have one name in the spec, since columns were added (`plan/successors.py`).

    orders      first: it reads the topic                                 from its first tick on
    orders.2    a successor: takes the records that orders reads          once it has read again what orders had

Tables of one name that are at the same place take the same records at the same ticks: the first of them reads. Where
one of them stops, or goes on behind a gap, the others read without it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Set
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tidemark_persist import DIFF, Shard, StagedFile
from tidemark_protocol.ids import GlobalId, Time
from tidemark_protocol.plan.ingestion import IngestedTable
from tidemark_protocol.plan.successors import dead_letters, spec_name, without_dead_letters
from tidemark_replica.storage.errors import TableStopped
from tidemark_replica.storage.kafka.followed_topic import FollowedTopic, TopicProgress
from tidemark_replica.storage.kafka.positions import Position
from tidemark_replica.storage.kafka.read_again import RepeatedRead, check_rows
from tidemark_replica.storage.kafka.stop import TABLE_BEFORE_STOPPED
from tidemark_replica.storage.kafka.topics import Topics
from tidemark_replica.storage.kafka.values.decoding import key_columns
from tidemark_replica.storage.kafka.values.framing import TooManySchemas
from tidemark_replica.storage.source import SourceShards
from tidemark_replica.storage.staged_bindings import Entry, staged_files

BEGUN = "begun"
"""The entry of a table that began with the records of another one: the name of that one."""


class Successors:
    """The tables of one source. `tables`: in the order of their numbers. `again`: what tables that have not begun have
    read, in the order of their turns. `begins`: the positions of those that begin with the binding of this tick."""

    def __init__(self, tables: Mapping[str, FollowedTopic]) -> None:
        self._tables = tables
        self._first: dict[str, str] = {}
        for name in tables:
            self._first.setdefault(spec_name(name), name)
        self.again: dict[str, RepeatedRead] = {}
        self.begins: dict[str, Position] = {}
        self._taken: dict[str, TopicProgress] = {}
        """The rows that tables that have not begun take of this tick's records."""
        self._bound: Mapping[str, Position] = {}
        self._stopped: Mapping[str, str] = {}
        self._uppers: Mapping[str, Shard] = {}
        self._first_times: dict[GlobalId, Time] = {}

    def resume(self, bound: Mapping[str, Position], stopped: Mapping[str, str], shards: SourceShards) -> None:
        """Begins anew at these positions. `stopped`: why tables are."""
        self._stopped = stopped
        self._bound, self.begins, self._taken = bound, {}, {}
        self._uppers = {ingested.table.name: shard for ingested, shard in shards.tables}
        later = (name for name in self._tables if name != self._first[spec_name(name)])
        self.again = {name: RepeatedRead(self._tables[name]) for name in later if name not in bound}

    def lead(self, name: str) -> str | None:
        """The table whose records one that has not begun reads again, a stopped one in the last place; None while there
        is none."""
        begun = [n for n in self._tables if n in self._bound and spec_name(n) == spec_name(name)]
        return next((n for n in begun if n not in self._stopped), begun[0] if begun else None)

    def in_step(self) -> dict[str, list[str]]:
        """By the table that reads, which has begun, those that take the same records."""
        found: dict[str, list[str]] = {}
        readers: dict[tuple[object, ...], str] = {}
        for name in self._tables:
            bound = self._bound.get(name)
            if self._tables[name].follows_transactions:
                continue  # each reads ahead for itself, and all are cut at one transaction
            if bound is not None and name not in self._stopped:
                place = (spec_name(name), bound.topic_id, tuple(sorted(bound.offsets.items())))
                reader = readers.setdefault(place, name)
                if reader != name:
                    found.setdefault(reader, []).append(name)
        for name, again in self.again.items():
            lead = self.lead(name)  # the first one of its place, so it reads
            if lead is None or {name, lead} & self._stopped.keys() or not again.follows or name in self.begins:
                continue
            if again.position is not None and again.position.offsets == self._bound[lead].offsets:
                found.setdefault(lead, []).append(name)
        return found

    def held_back(self) -> dict[str, str]:
        """The tables that cannot begin while the table before them is stopped, and why."""
        held = {}
        for name, again in self.again.items():
            lead = self.lead(name) or self._first[spec_name(name)]
            if lead not in self._stopped or name in self._stopped or name in self.begins:
                continue
            if lead not in self._bound or again.follows:
                reason, what = self._stopped[lead].partition(":")[0], f"table {spec_name(name)}"
                text = f"{what} cannot begin with its further columns: the table before it has to read on first, which"
                mend = f"is stopped ({reason}); mend that one, or give the table another name"
                held[name] = f"{TABLE_BEFORE_STOPPED}: {text} {mend}"
        return held

    def read_again(self, name: str) -> tuple[int, int] | None:
        """The numbers of offsets that a table has read again, and that it lacks; None if it has begun."""
        lead = self.lead(name)
        if name not in self.again or lead is None:
            return None
        bound = self._bound[lead]
        missing = self.again[name].missing(bound)
        return sum(bound.offsets.values()) - sum(bound.begins.values()) - missing, missing

    def read_piece(self, name: str, time: Time, size: int, seconds: float, topics: Topics) -> None:
        """Reads on for a table that has not begun; perhaps it begins with this tick's binding, in which the tables of
        its name take no records. It is the last one of `again` then. Raises as `RepeatedRead.read_piece`."""
        again = self.again[name] = self.again.pop(name)
        lead = self.lead(name)
        if lead is None:
            return
        again.read_piece(self._bound[lead], time, size, seconds, topics)
        letters = self._uppers.get(dead_letters(lead))
        position = again.begin(self._bound[lead], letters, topics)
        if position is not None:
            before, topic = self._tables[lead], self._tables[name]
            if topic.table.envelope != "none":
                keys = [column.name for column in key_columns(before.table)]
                check_rows(before.shard, topic.shard, keys, again.staged()[0], name)
            self.begins[name] = position

    def at(self, name: str) -> Position:
        """Where the table is, whether it has begun or not."""
        position = self._bound.get(name) or self.again[name].position
        assert position is not None
        return position

    def take(self, name: str, progress: TopicProgress) -> bool:
        """Keeps what a table that has not begun takes of this tick's records; False where it has begun."""
        if name not in self.again:
            return False
        self._taken[name] = progress
        return True

    def keep_with(self, reads: Mapping[str, TopicProgress]) -> None:
        """Drops what was taken of records that the binding of this tick does not have."""
        for name, progress in list(self._taken.items()):
            read = reads.get(self.lead(name) or "")
            if read is None or read.position.offsets != progress.position.offsets:
                self._tables[name].discard(self._taken.pop(name))

    def waits(self, name: str) -> bool:
        """Whether the table takes no records in this tick, since another one begins where it is; of tables that follow
        transactions all do so, as none may take one that another does not take."""
        if self._tables[name].follows_transactions:
            return any(self._tables[other].follows_transactions for other in self.begins)
        return any(spec_name(name) == spec_name(other) for other in self.begins)

    def beginning(self) -> tuple[dict[Entry, str | None], dict[str, list[StagedFile]]]:
        """The entries of the tables that begin with the binding of this tick, and their staged files."""
        changes: dict[Entry, str | None] = {}
        staged: dict[str, list[StagedFile]] = {}
        for name, position in self.begins.items():
            changes |= position.entries(name, None) | {(name, BEGUN): self.lead(name)}
            staged[name], staged[dead_letters(name)] = self.again[name].staged()
        return changes, staged

    def beginning_with(self, members: Set[str]) -> dict[str, Position]:
        """The positions of the tables that begin with the binding of this tick where one of these is."""
        return {name: position for name, position in self.begins.items() if self.lead(name) in members}

    def confirm(self, bound: Mapping[str, Position], stopped: Mapping[str, str]) -> None:
        """The binding was minted; the tables are at these positions. `stopped`: why tables are."""
        self._bound, self._stopped = bound, stopped
        for name, progress in self._taken.items():
            self.again[name].add(progress)
        self._taken = {}
        for name in self.begins:
            del self.again[name]
            self._tables[name].close()  # its client is at the end of what was read again
        self.begins = {}

    def stage(
        self, binding: pa.Table, time: Time, tables: Iterable[IngestedTable]
    ) -> Mapping[GlobalId, list[StagedFile]]:
        """The binding's files for these tables, without the tables that have not begun by then."""
        begins = set()
        if binding.num_rows:
            named = pc.and_(pc.equal(binding.column("entry"), BEGUN), pc.greater(binding.column(DIFF), 0))
            begins = set(binding.filter(named).column("table").to_pylist())
        wanted = [table for table in tables if self._takes(table, begins)]
        self._first_times |= {t.id: time for t in wanted if self._owner(t.table.name) in begins}
        return staged_files(binding, wanted)

    def first_time(self, table: IngestedTable) -> Time | None:
        """The time of the binding with which the table began, if this process saw it."""
        return self._first_times.get(table.id)

    def unbound_tables(self) -> set[str]:
        """The tables that have not begun, and those of their dead letters."""
        return {each for name in self.again for each in (name, dead_letters(name))}

    def close(self) -> None:
        for name, again in self.again.items():
            if name not in self.begins:  # else a binding that was not confirmed may name its files
                again.discard()
                if name in self._taken:
                    self._tables[name].remove(self._taken[name])

    def _takes(self, table: IngestedTable, begins: Collection[str]) -> bool:
        name = self._owner(table.table.name)
        is_later = name in self._tables and name != self._first[spec_name(name)]
        return not is_later or name in begins or self._uppers[table.table.name].state().upper > 0

    def _owner(self, table: str) -> str:
        """The table, or that whose dead letters it has."""
        return table if table in self._tables else without_dead_letters(table)


def read_together(
    reader: FollowedTopic,
    bound: Position,
    others: Mapping[str, tuple[FollowedTopic, Position]],
    time: Time,
    size: int,
    seconds: float,
) -> tuple[TopicProgress, dict[str, TopicProgress | TableStopped]]:
    """The progress of a table that reads, and that of others at its place with the same records, or why one stops.
    Raises as `FollowedTopic.read`; no file stays staged then."""
    records: list[list[Any]] | None = [] if others else None
    progress = reader.read(bound, time, size, seconds, kept=records)
    taken: dict[str, TopicProgress | TableStopped] = {}
    try:
        for name, (topic, own) in others.items():
            try:
                taken[name] = topic.take_over(own, records or [], progress.position, time, size)
            except TableStopped as error:
                taken[name] = error
    except BaseException as error:
        if isinstance(error, TooManySchemas):
            reader.read_less_at_once()
        reader.discard(progress)
        for name, found in taken.items():
            if isinstance(found, TopicProgress):
                others[name][0].discard(found)
        raise
    return progress, taken
