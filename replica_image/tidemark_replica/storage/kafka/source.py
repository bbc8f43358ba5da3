"""Kafka topics as a source: a binding says how far each topic was read, and names the files with what was read.

    tick:  read what is new, bounded ─► staged files ─► is it still the same topic? ─► binding: offsets and files

Brokers forget, so records are read once, before their binding. A table whose next record is gone, or whose topic is
another one, stops; the binding records it, so it stands still for other processes, too. With `onGap: skip` it goes on
behind the gap. While brokers do not answer, nothing is bound and a warning says so.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from concurrent.futures import Future
from time import monotonic
from typing import Any

import pyarrow as pa
from confluent_kafka import Consumer
from confluent_kafka.admin import AdminClient

from tidemark_persist import StagedFile
from tidemark_protocol.ids import GlobalId, Time
from tidemark_protocol.messages.responses import TableReport
from tidemark_protocol.plan.ingestion import IngestedTable
from tidemark_protocol.plan.kafka import KafkaSource
from tidemark_protocol.plan.successors import dead_letters, number
from tidemark_replica.storage.errors import TableStopped
from tidemark_replica.storage.kafka.connection import KafkaClients, ReadSecret
from tidemark_replica.storage.kafka.followed_topic import FollowedTopic, TopicProgress
from tidemark_replica.storage.kafka.gaps import SHOWN_MS, Gaps
from tidemark_replica.storage.kafka.inspect import registry_of
from tidemark_replica.storage.kafka.positions import Position, positions
from tidemark_replica.storage.kafka.read_again import FOR_GOOD
from tidemark_replica.storage.kafka.stop import GAPS, OFFSET_GONE, BrokersAway
from tidemark_replica.storage.kafka.successors import Successors, read_together
from tidemark_replica.storage.kafka.topics import Topics, answer
from tidemark_replica.storage.kafka.transactions.cuts import TransactionCuts
from tidemark_replica.storage.kafka.transactions.log import TransactionsUnreadable
from tidemark_replica.storage.kafka.transactions.metadata import prefix_of
from tidemark_replica.storage.kafka.transactions.read_ahead import RUNS_MAX
from tidemark_replica.storage.kafka.waits import AnswerWait
from tidemark_replica.storage.schema_registry import RegistryAway
from tidemark_replica.storage.source import ACTIVITY_SECONDS, Source, SourceShards
from tidemark_replica.storage.staged_bindings import REMAP_SCHEMA, Entry, StagedBindings
from tidemark_replica.storage.table_reports import SnapshotProgress

LOOK_SECONDS = 10.0
"""The pause between two questions to the brokers for topics and partitions, and two reads of the Secret."""
SHOW_SECONDS = 5.0
READ_SECONDS = 2.0
"""The time that the tables read in a tick, all together."""
AHEAD_BYTES = 256 << 20
"""Records that wait for their transactions, of all tables; more are dropped and read again."""
RECHECK_SECONDS = 30.0
"""The pause between two looks at stopped tables, while another table reads records again."""
_STOPPED = "stopped"
"""The entry of a table that has stopped: `Reason: text`."""
_GAPS = "gaps"
"""The entry of the gaps that a table passed over."""


class KafkaIngestion(Source):
    """The `Source` of a `kafka:` DataSource."""

    remap_schema = REMAP_SCHEMA

    def __init__(self, spec: KafkaSource, read_secret: ReadSecret) -> None:
        self._spec, self._connection = spec, KafkaClients(spec, read_secret)
        registry = registry_of(spec, read_secret)
        prefix = prefix_of(spec.transactions) if spec.transactions else ""
        in_order = sorted(spec.tables, key=lambda table: number(table.name))
        self._tables = {t.name: FollowedTopic(t, registry, self._consumer, prefix) for t in in_order}
        self._successors = Successors(self._tables)
        together = {name: topic for name, topic in self._tables.items() if topic.follows_transactions}
        self._cuts = TransactionCuts(spec.transactions, together, self._consumer, spec.max_bytes_per_tick, registry)
        self._memory = min(spec.max_bytes_per_tick, AHEAD_BYTES // max(1, len(together)))
        self._runs = RUNS_MAX // max(1, len(together))
        self._undecoded: dict[str, AnswerWait] = {}
        """Tables that wait for the registry."""
        self._unread: AnswerWait | None = None
        """The topic of transactions waits: each attempt reads again what was read before."""
        self._bindings = StagedBindings()
        self._bound: dict[str, Position] = {}
        self._snapshots = SnapshotProgress()
        self._stopped: dict[str, str] = {}
        self._gaps: dict[str, Gaps] = {}
        self._recheck: set[str] = set()
        """Stopped tables that `discover` still has to check, once: whether they can go on."""
        self._problems: dict[str, str] = {}
        self._settings: dict[str, str] = {}
        self._admin: AdminClient | None = None
        self._looking: dict[str, Future[Any]] = {}
        self._answered: set[str] = set()
        """Tables of `_looking` whose answers were there for a whole tick."""
        self._look_at = self._show_at = self._recheck_at = 0.0
        self._time = Time(0)
        self._reads: dict[str, TopicProgress] = {}
        self._changes: dict[Entry, str | None] = {}
        """The reads of this tick, and the entries that its binding changes."""

    def resume(self, bound: pa.Table, upper: Time, shards: SourceShards) -> None:
        self._bindings.resume(bound)
        self._take_positions()
        self._recheck, self._recheck_at = set(self._stopped), monotonic() + RECHECK_SECONDS
        by_name = {ingested.table.name: (ingested, shard) for ingested, shard in shards.tables}
        bound_as = {name: ingested.bound_as or name for name, (ingested, _) in by_name.items()}
        self._cuts.resume(self._bindings.positions, bound_as)
        for name, topic in self._tables.items():
            topic.set_destinations(by_name[name], by_name.get(dead_letters(name)))
        self._successors.resume(self._bound, self._stopped, shards)

    def discover(self, time: Time) -> pa.Table:
        """Raises IngestionError where the connection's settings or its Secret cannot be used."""
        self._time, self._problems = time, {}
        reads = self._reads = dict[str, TopicProgress]()
        changes = self._changes = dict[Entry, str | None]()
        try:
            topics = self._look()
            readable = self._read_log(topics)
            self._read_again(topics)
            together = self._successors.in_step()
            led = {name for names in together.values() for name in names}
            for name, topic in self._tables.items():
                if name in led or name in self._successors.again or self._successors.waits(name):
                    continue
                if readable or not topic.follows_transactions:
                    self._advance(name, topics, together.get(name, ()))
            if readable:
                self._advance_together(topics)
            self._verify(topics)
            if readable:
                self._note_transactions()
        except BrokersAway as error:
            self._problems[""] = str(error)
            self._disconnect(reads)
            reads.clear()
        except BaseException:  # a full disk, for example: the records are read again from the bound positions
            for name, progress in reads.items():
                self._tables[name].remove(progress)
            raise
        self._successors.keep_with(reads)
        staged: dict[str, list[StagedFile]] = {}
        for name, progress in reads.items():
            changes |= progress.position.entries(name, self._bound.get(name))
            staged[name] = [progress.rows] if progress.rows is not None else []
            staged[dead_letters(name)] = [progress.letters] if progress.letters is not None else []
        begun, files = self._successors.beginning()
        return self._bindings.binding(changes | begun, staged | files)

    def confirm(self, binding: pa.Table) -> None:
        self._bindings.confirm(binding)
        self._cuts.confirm(self._bindings.positions)
        self._take_positions()
        self._successors.confirm(self._bound, self._stopped)
        for name, topic in self._tables.items():
            if name not in self._successors.again:
                topic.bound(Time(self._time + 1))

    def activity(self) -> str:
        for name, topic in self._tables.items():
            since = topic.keyed.rows.building_since if topic.keyed is not None else None
            if since is not None and monotonic() - since > ACTIVITY_SECONDS:
                return f"reading the rows of table {name}, to find them by key"
        return ""

    def stage(
        self, binding: pa.Table, time: Time, tables: Iterable[IngestedTable]
    ) -> Mapping[GlobalId, list[StagedFile]]:
        return self._successors.stage(binding, time, tables)

    def first_time(self, table: IngestedTable) -> Time | None:
        return self._successors.first_time(table)

    def unbound_tables(self) -> Collection[str]:
        return {name for name in self._tables if name not in self._bound} | self._successors.unbound_tables()

    def retries(self) -> bool:
        """Not while a table reads records again, which would begin anew: then `discover` looks at stopped ones."""
        return bool(self._stopped) and self._successors.again.keys() <= self._stopped.keys()

    def stop_reasons(self) -> Mapping[str, str]:
        return {**self._stopped, **self._successors.held_back()}

    def counters(self) -> Mapping[str, int]:
        events = {n: topic.repeated for n, topic in self._tables.items() if topic.table.envelope == "debezium"}
        gaps = {f"gaps/{name}": self._gaps[name].count if name in self._gaps else 0 for name in self._tables}
        return gaps | {f"repeated/{name}": count for name, count in events.items()}

    def progress(self) -> Mapping[str, TableReport]:
        reports = {}
        readers = {name: reader for reader, names in self._successors.in_step().items() for name in names}
        for name, topic in self._tables.items():
            bound = self._bound.get(name)
            behind = self._tables[readers.get(name, name)].lag(bound)
            done = None if bound is None else sum(bound.offsets.values())
            percent = None if done is None else self._snapshots.percent(name, done, behind)
            if (again := self._successors.read_again(name)) is not None:
                done, behind = again
                percent = 100 * done // max(1, done + behind)
            reports[name] = TableReport(
                name, behind=behind, unit="offsets", snapshot_percent=percent, malformed=topic.malformed
            )
        return reports

    def warning(self) -> str:
        problems = [text for name in self._tables if (text := self._tables[name].problem)]
        texts = list(dict.fromkeys([*self._problems.values(), *problems]))
        registry = list(dict.fromkeys(wait.why for wait in self._undecoded.values()))
        gaps = [gap.text(name) for name, gap in self._gaps.items() if self._time - gap.time < SHOWN_MS]
        found = {
            "BrokersAway": texts,
            "RegistryAway": registry,
            "TransactionsUnreadable": [self._cuts.problem] if self._cuts.problem else [],
        }
        reason, text = self._cuts.long_wait()
        found |= {reason: [text]} if reason else {}
        found["GapSkipped"] = gaps
        return "; ".join(f"{reason}: {'; '.join(whys[:3])}" for reason, whys in found.items() if whys)

    def close(self) -> None:
        self._disconnect({})
        self._successors.close()
        for topic in self._tables.values():
            topic.end()

    def _take_positions(self) -> None:
        entries = self._bindings.positions
        # the bindings still have those of removed tables
        self._bound = {name: at for name, at in positions(entries).items() if name in self._tables}
        self._gaps = {n: Gaps.from_json(v) for (n, entry), v in entries.items() if entry == _GAPS and n in self._tables}
        self._stopped = {n: text for (n, entry), text in entries.items() if entry == _STOPPED and n in self._tables}

    def _consumer(self) -> Consumer:
        return self._connection.consumer(self._settings)

    def _look(self) -> Topics:
        """Connects, and from time to time asks for the topics and reads the Secret, without waiting for an answer.
        Raises IngestionError."""
        if self._admin is None or monotonic() >= self._look_at:
            settings = self._connection.settings()
            if settings != self._settings:
                self._disconnect({})
                self._settings = settings
        if self._admin is None:
            self._admin = self._connection.admin(self._settings)
        topics = Topics(self._admin)
        for name in self._answered:
            self._looking.pop(name, None)
        self._answered = {name for name, asked in self._looking.items() if asked.done()}
        if monotonic() >= self._look_at and not self._looking:  # a question would drop an answer that no table took yet
            self._look_at = monotonic() + LOOK_SECONDS
            asked = topics.ask({topic.table.topic for topic in self._tables.values()})
            self._looking = {name: asked[topic.table.topic] for name, topic in self._tables.items()}
        if self._spec.group and monotonic() >= self._show_at:
            self._show_at = monotonic() + SHOW_SECONDS
            moving = self._bound.keys() - self._stopped.keys()
            topics.show(self._spec.group, [(self._tables[n].table.topic, self._bound[n].offsets) for n in moving])
        return topics

    def _read_again(self, topics: Topics) -> None:
        """Reads a piece for the tables that have not begun with the records of the one before them: for each, or for
        those whose turns come first, if the time of a tick is over then."""
        if monotonic() >= self._recheck_at and not self.retries():
            self._recheck, self._recheck_at = set(self._stopped), monotonic() + RECHECK_SECONDS
        seconds, size = READ_SECONDS / len(self._tables), self._spec.max_bytes_per_tick
        end = monotonic() + READ_SECONDS
        for name in list(self._successors.again):
            if monotonic() >= end:
                return
            if name in self._undecoded and monotonic() < self._undecoded[name].until:
                continue
            if name in self._stopped:
                if name not in self._recheck or self._reason(name) in FOR_GOOD:
                    continue
                self._recheck.discard(name)
                self._changes[(name, _STOPPED)] = None
            try:
                self._successors.read_piece(name, self._time, size, seconds, topics)
                self._undecoded.pop(name, None)
            except RegistryAway as error:
                self._undecoded[name] = AnswerWait.after(self._undecoded.get(name), str(error))
            except TableStopped as error:
                self._stop_successor(name, error)
            except BrokersAway as error:
                self._problems[name] = str(error)
                self._tables[name].close()

    def _stop_successor(self, name: str, error: TableStopped) -> None:
        self._successors.again[name].discard()
        self._changes[(name, _STOPPED)] = f"{error.reason}: {error}"

    def _advance(self, name: str, topics: Topics, others: Collection[str]) -> None:
        """Begins a table, reads on, or checks whether a stopped one can go on. `others`: take what it reads."""
        topic, bound = self._tables[name], self._bound.get(name)
        stopped = name in self._stopped
        if (stopped and name not in self._recheck) or (
            name in self._undecoded and monotonic() < self._undecoded[name].until
        ):
            return
        try:
            if bound is None or stopped:
                why = self._reason(name)
                joined = self._cuts.joined
                begun = topic.begin(topics, joined) if bound is None else topic.recheck(bound, why, topics, joined)
                self._reads[name] = TopicProgress(begun)
                if bound is None:
                    self._snapshots.begin(name, sum(begun.offsets.values()))
                self._changes[(name, _STOPPED)] = None
            elif topic.follows_transactions and name not in self._cuts.members:
                self._reads[name] = TopicProgress(topic.rejoin(bound, topics, self._cuts.joined))
            else:
                self._take_look(name, bound, topics)
                seconds, size = READ_SECONDS / len(self._tables), self._spec.max_bytes_per_tick
                if topic.follows_transactions:
                    watermark, more = self._cuts.log.watermark, self._cuts.needs(name)
                    topic.read_ahead(bound, self._memory, self._runs, size, seconds, watermark, more)
                else:
                    at = {other: (self._tables[other], self._successors.at(other)) for other in others}
                    self._reads[name], taken = read_together(topic, bound, at, self._time, size, seconds)
                    for other, found in taken.items():
                        if isinstance(found, TableStopped) and other in self._successors.again:
                            self._stop_successor(other, found)
                        elif isinstance(found, TableStopped):
                            self._stop(other, found, topics)
                        elif not self._successors.take(other, found):
                            self._reads[other] = found
                self._undecoded.pop(name, None)
        except RegistryAway as error:
            self._undecoded[name] = AnswerWait.after(self._undecoded.get(name), str(error))
        except TableStopped as error:
            self._stop(name, error, topics)
        except BrokersAway as error:
            self._problems[name] = str(error)
            topic.close()

    def _read_log(self, topics: Topics) -> bool:
        """Reads the topic of transactions, where they are followed. Returns whether it can be read. Raises
        BrokersAway."""
        if not self._spec.transactions:
            return False
        if self._unread is not None and monotonic() < self._unread.until:
            self._cuts.problem = self._unread.why
            return False
        try:
            self._cuts.log.read(topics, READ_SECONDS)
        except TransactionsUnreadable as error:
            self._unreadable(error)
            return False
        if self._cuts.log.problem:
            self._problems["transactions"] = self._cuts.log.problem
        elif self._cuts.log.is_read and not self._cuts.log.is_settled:
            text = f"topic {self._spec.transactions} has no END of a transaction yet: tables begin behind the next one"
            self._cuts.problem = f"NoTransaction: {text}"
        return self._cuts.log.is_read and self._cuts.log.is_settled and not self._cuts.log.problem

    def _unreadable(self, error: TransactionsUnreadable) -> None:
        self._cuts.restart()
        self._cuts.problem = str(error)
        self._unread = AnswerWait.after(self._unread, str(error))

    def _advance_together(self, topics: Topics) -> None:
        """Takes whole transactions into all tables that follow them. Raises BrokersAway."""
        reads = self._reads
        begun = [n for n, t in self._tables.items() if t.follows_transactions and n not in self._successors.again]
        live = [name for name in begun if name not in self._stopped or name in reads]
        free = [name for name in live if name not in reads and not self._successors.waits(name)]
        moving = {name: self._bound[name] for name in free if name in self._bound}
        try:
            chosen = self._cuts.choose(moving, topics, bool(live) and len(moving) == len(live))
            if self._cuts.passing:
                self._cuts.log.check(topics)
        except TransactionsUnreadable as error:
            self._unreadable(error)
            return
        self._unread = None
        for name, cut in chosen.items():
            bound = self._bound[name]
            try:
                if cut != bound.offsets:
                    fates = self._cuts.fate_of(name, bound)
                    ranks, firsts = self._cuts.rank_of, self._cuts.first_of
                    reads[name] = self._tables[name].take(bound, self._time, cut, fates, ranks, firsts)
            except TableStopped as error:
                self._stop(name, error, topics)
            except RegistryAway as error:  # all tables take a transaction, or none
                for each in reads.keys() & chosen.keys():
                    self._tables[each].discard(reads.pop(each))
                self._unreadable(TransactionsUnreadable(f"RegistryAway: {error}"))
                return

    def _note_transactions(self) -> None:
        """Adds the entries of the transactions that the binding has: after all that may still fail."""
        if self._cuts.problem:
            return
        reads, changes = self._reads, self._changes
        for name, whys in self._cuts.lost.items():
            noted = changes.get((name, _GAPS))  # in this tick
            before = Gaps.from_json(noted) if noted is not None else self._gaps.get(name, Gaps())
            changes[(name, _GAPS)] = Gaps(before.count + len(whys), self._time, whys[-1]).to_json()
        names = [name for name, topic in self._tables.items() if topic.follows_transactions]
        known = [name for name in names if name in self._bound or name in reads]
        members = [name for name in known if name not in self._stopped or name in reads]
        at = {name: reads[name].position if name in reads else self._bound[name] for name in members}
        changes.update(self._cuts.entries(at | self._successors.beginning_with(self._cuts.members & at.keys())))

    def _take_look(self, name: str, bound: Position, topics: Topics) -> None:
        """Takes the answer of the last look at the topic, if it came."""
        future = self._looking.get(name)
        if future is not None and future.done():
            del self._looking[name]
            self._tables[name].check(bound, answer(self._tables[name].table.topic, future), topics)

    def _verify(self, topics: Topics) -> None:
        """Checks that the records come from the topics that are bound: an id that is the same after the read was the
        same during it. Raises BrokersAway."""
        moved = {n: p for n, p in self._reads.items() if n in self._bound and p.position != self._bound[n]}
        if not moved:
            return
        found = topics.describe({self._tables[name].table.topic for name in moved})
        for name, progress in moved.items():
            topic = self._tables[name]
            if self._reads.get(name) is not progress:
                continue  # it passed over a gap, with another one
            try:
                topic.check(progress.position, found[topic.table.topic], topics)
            except TableStopped as error:
                topic.discard(self._reads.pop(name))
                self._stop(name, error, topics)

    def _stop(self, name: str, error: TableStopped, topics: Topics) -> None:
        """Stops the table, or lets it go on behind the gap."""
        topic, bound = self._tables[name], self._bound.get(name)
        topic.close()
        self._looking.pop(name, None)
        self._undecoded.pop(name, None)
        try:
            if bound is not None and topic.skips(error):
                position = topic.skipped(bound, topics, self._cuts.joined)
                for each in (name, *self._successors.in_step().get(name, ())):
                    if self._tables[each].skips(error) and each not in self._successors.again:
                        self._skip(each, error, position)
                return
        except TableStopped as other:
            error = other
        except BrokersAway as away:
            if topic.follows_transactions:
                raise  # the others would have transactions that this table does not have
            self._problems[name] = str(away)
            return
        self._recheck.discard(name)
        stays = self._reason(name) == OFFSET_GONE and error.reason not in GAPS  # a gap is not forgotten for these
        if self._reason(name) != error.reason and not stays:
            self._stopped[name] = f"{error.reason}: table {name}: {error}"
        self._changes[(name, _STOPPED)] = self._stopped[name]

    def _skip(self, name: str, error: TableStopped, position: Position) -> None:
        """Lets the table go on behind the gap, at the position."""
        if name in self._reads:
            self._tables[name].discard(self._reads[name])
        self._reads[name] = TopicProgress(position)
        self._changes[(name, _STOPPED)] = None
        before = self._gaps.get(name, Gaps())
        self._changes[(name, _GAPS)] = Gaps(before.count + 1, self._time, str(error)).to_json()
        self._recheck.discard(name)

    def _reason(self, name: str) -> str:
        """The reason why the table has stopped; empty where it has not."""
        return self._stopped.get(name, "").partition(":")[0]

    def _disconnect(self, reads: Mapping[str, TopicProgress]) -> None:
        """Closes all clients, and deletes the staged files of `reads`, which no binding names."""
        for name, topic in self._tables.items():
            if name in reads:
                topic.discard(reads[name])
            topic.close()
        self._cuts.restart()
        self._admin, self._looking, self._look_at = None, {}, 0.0
