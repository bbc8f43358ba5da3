"""The places of change events of Debezium in the logs of their databases, which tell which events came again.

    partition 0   log (postgresql, shop, ...)   the greatest place of an event so far
                  log (postgresql, other, ...)  another one

An event is left out where its place in the database's log shows that it came before; any other event is taken. A log
that was restored has smaller places at later times. An event that comes again has the time that it had, which is no
later than the latest time of all events up to the greatest place. It may be later than the time of the last event, as
times do not always grow with places: MySQL's are those of statements, and commits of PostgreSQL may pass one another.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

LOGS_MAX = 16
"""Logs of databases whose places are kept for a partition: those that came last."""
NAMES_LENGTH_MAX = 1_000
"""Characters of the names of a log; places are durable."""
MYSQL = ("mysql", "mariadb")
_SEQUENCE = r'^\s*\[\s*(?:null|"(?P<commit>[0-9]{1,19})")\s*,\s*"(?P<own>[0-9]{1,19})"\s*\]\s*$'
"""The sequence of an event of PostgreSQL: a connector's first transaction has no commit before."""
_NO_LOG = -1
_decode_sequence = msgspec.json.Decoder(list[str | None]).decode
Place = dict[str, Any]
"""The place of an event in the log of its database: the `log` (connector, its name, database, server), the numbers `at`
that only grow there, and the time `ms`; of the greatest place, the latest time of all events up to there."""


class Origin(msgspec.Struct):
    """The field `source` of an event."""

    connector: str
    ts_ms: int
    name: str = ""
    db: str | None = None
    gtid: str | None = None
    server_id: int = 0
    sequence: str | None = None
    file: str | None = None
    pos: int | None = None
    row: int | None = None


@dataclass(frozen=True)
class _DecodedPlaces:
    """The `logs` of events. For each event: the numbers `at` (two of PostgreSQL, then 0; three of MySQL), its time
    `ms`, and the number of its log (`of`), _NO_LOG where it has no place."""

    logs: list[tuple[str, ...]]
    at: npt.NDArray[np.int64]
    ms: npt.NDArray[np.int64]
    of: npt.NDArray[np.int64]

    def select(self, rows: npt.NDArray[np.intp]) -> _DecodedPlaces:
        return _DecodedPlaces(self.logs, self.at[rows], self.ms[rows], self.of[rows])

    def place(self, row: int) -> Place:
        log = self.logs[self.of[row]]
        at = self.at[row] if log[0] in MYSQL else self.at[row, :2]
        return {"log": list(log), "at": at.tolist(), "ms": int(self.ms[row])}


class EventPlaces:
    """`texts`: by partition, the greatest place of an event in each log, as text, with the latest time of one up to
    there; they move. `repeated` counts events that came again."""

    def __init__(self, texts: Mapping[int, str]) -> None:
        self._places = {p: {tuple(place["log"]): place for place in json.loads(text)} for p, text in texts.items()}
        self.repeated = 0

    @property
    def texts(self) -> dict[int, str]:
        return {p: json.dumps(list(by_log.values()), separators=(",", ":")) for p, by_log in self._places.items()}

    def is_repeated(self, partition: int, at: Place | None) -> bool:
        """Whether an event of the log was read before; its place is noted where it was not."""
        if at is None:
            return False
        by_log, log = self._places.setdefault(partition, {}), tuple(at["log"])
        before = by_log.get(log)
        if before is not None and at["at"] < before["at"]:
            if at["ms"] <= before["ms"]:
                self.repeated += 1
                return True
            before = None  # a log that was restored
        by_log.pop(log, None)
        by_log[log] = at if before is None else _with_latest_time(at, before["ms"])
        while len(by_log) > LOGS_MAX:
            del by_log[next(iter(by_log))]
        return False

    def are_repeated(self, partitions: npt.NDArray[np.int64], source: pa.StructArray) -> npt.NDArray[np.bool_]:
        """The same of many events, in their order. `source`: as decoded, with the fields of `Origin`."""
        found, places = np.zeros(len(partitions), np.bool_), _decoded_places(source)
        for partition in np.unique(partitions[places.of != _NO_LOG]):
            rows = np.flatnonzero((partitions == partition) & (places.of != _NO_LOG))
            found[rows] = self._of_partition(int(partition), places.select(rows))
        return found

    def _of_partition(self, partition: int, places: _DecodedPlaces) -> npt.NDArray[np.bool_]:
        """Events of one partition. Where no place is before an earlier one, as a rule, none came again."""
        by_log, of = self._places.setdefault(partition, {}), places.of
        numbers, last_at = np.unique(of[::-1], return_index=True)
        logs = {int(number): places.logs[number] for number in numbers}
        if len(by_log.keys() | set(logs.values())) <= LOGS_MAX and all(
            _ascends(by_log.get(log), places.at[of == number]) for number, log in logs.items()
        ):
            for row in sorted(len(of) - 1 - last_at):
                log = places.logs[of[row]]
                before = by_log.pop(log, None)
                latest = int(places.ms[of == of[row]].max())
                by_log[log] = _with_latest_time(
                    places.place(row), latest if before is None else max(latest, before["ms"])
                )
            return np.zeros(len(of), np.bool_)
        return np.array([self.is_repeated(partition, places.place(row)) for row in range(len(of))], np.bool_)


def place_of(origin: Origin) -> Place | None:
    """The place of an event; None where its numbers are not known to grow: with GTIDs a connector of MySQL may go on at
    another server, whose files are others. Raises ValueError, TypeError, MsgspecError, RecursionError."""
    log = [origin.connector, origin.name, origin.db or ""]
    if sum(map(len, [*log, origin.file or ""])) > NAMES_LENGTH_MAX:
        return None
    if origin.connector == "postgresql" and origin.sequence is not None:
        last_commit, own = _decode_sequence(origin.sequence)  # a connector's first transaction has no commit before
        return {"log": log, "at": [int(last_commit or 0), int(own or "")], "ms": origin.ts_ms}
    if origin.connector in MYSQL and not origin.gtid and origin.file and origin.pos is not None:
        name, _, number = origin.file.rpartition(".")
        at = [int(number), origin.pos, origin.row or 0]
        if abs(at[0]) >= 1 << 63:
            return None
        return {"log": [*log, name, str(origin.server_id)], "at": at, "ms": origin.ts_ms}
    return None


def _with_latest_time(place: Place, ms: int) -> Place:
    """The place at the later one of its time and this one."""
    return place | {"ms": max(place["ms"], ms)}


def _decoded_places(source: pa.StructArray) -> _DecodedPlaces:
    column = dict(zip((field.name for field in source.type), source.flatten(), strict=True))
    commit, own, has_sequence = _sequences(column["sequence"])
    pos, row, ms = (_longs(column[name]) for name in ("pos", "row", "ts_ms"))
    has_pos, has_ms = (pc.is_valid(column[name]).to_numpy(zero_copy_only=False) for name in ("pos", "ts_ms"))
    has_gtid = pc.not_equal(pc.fill_null(column["gtid"], ""), "")  # each transaction has another one
    kinds = _kinds([has_gtid, *(column[name] for name in ("connector", "name", "db", "file", "server_id"))])
    firsts, kind_of = np.unique(kinds, return_index=True, return_inverse=True)[1:]
    logs: dict[tuple[str, ...], int] = {}
    at, of = np.zeros((len(source), 3), np.int64), np.full(len(source), _NO_LOG, np.int64)
    for kind, first in enumerate(firsts):
        found = _log_of({name: each[int(first)].as_py() for name, each in column.items()})
        if found is None:
            continue
        log, file = found
        rows = np.flatnonzero((kind_of == kind) & has_ms & (has_sequence if file is None else has_pos))
        of[rows] = logs.setdefault(log, len(logs))
        numbers = (commit, own) if file is None else (np.full(len(source), file), pos, row)
        for i, each in enumerate(numbers):
            at[rows, i] = each[rows]
    return _DecodedPlaces(list(logs), at, ms, of)


def _sequences(texts: pa.Array) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
    """The two numbers of each sequence of PostgreSQL, and where there are any."""
    found = pc.extract_regex(texts, _SEQUENCE)
    none = pa.scalar(None, pa.string())
    commit, own = (
        pc.fill_null(pc.if_else(pc.equal(each, ""), none, each).cast(pa.uint64()), 0).to_numpy(zero_copy_only=False)
        for each in found.flatten()
    )
    fits = np.maximum(commit, own) < 1 << 63
    return commit.astype(np.int64), own.astype(np.int64), fits & pc.is_valid(found).to_numpy(zero_copy_only=False)


def _log_of(source: Mapping[str, Any]) -> tuple[tuple[str, ...], int | None] | None:
    """The log of an event, and the number of its file, which PostgreSQL does not have; None where it has no place."""
    try:
        given = {name: value for name, value in source.items() if value is not None}
        # what differs from event to event of a log is of no account here
        found = place_of(Origin(**(given | {"sequence": '["0","0"]', "pos": 0, "ts_ms": 0})))
    except (TypeError, ValueError):
        return None
    if found is None:
        return None
    return tuple(found["log"]), None if len(found["at"]) == 2 else found["at"][0]


def _kinds(columns: Sequence[pa.Array]) -> npt.NDArray[np.int64]:
    """A number for each event; events with the same number are equal in these columns."""
    found = np.zeros(len(columns[0]), np.int64)
    for column in columns:
        codes = pc.dictionary_encode(column, null_encoding="encode")
        if (size := len(codes.dictionary)) > 1:
            both = found * size + codes.indices.to_numpy(zero_copy_only=False)
            found = np.unique(both, return_inverse=True)[1]
    return found


def _longs(column: pa.Array) -> npt.NDArray[np.int64]:
    return pc.fill_null(column, 0).to_numpy(zero_copy_only=False)  # type: ignore[no-any-return]


def _ascends(before: Place | None, at: npt.NDArray[np.int64]) -> bool:
    """Whether no place is before an earlier one of the same log, or before `before`."""
    if before is not None:
        given = [*before["at"], 0][:3]
        if max(given) >= 1 << 63 or min(given) < -(1 << 63):
            return False
        at = np.concatenate([np.array([given], np.int64), at])
    last, next = at[:-1], at[1:]
    less = next[:, 2] < last[:, 2]
    for i in (1, 0):
        less = (next[:, i] < last[:, i]) | ((next[:, i] == last[:, i]) & less)
    return not less.any()
