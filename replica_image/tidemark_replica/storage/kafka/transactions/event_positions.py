"""The events of one transaction in one partition that were read, and which of the next ones come again.

    positions in the log   10 12 15 │ 12 15 17        12 and 15 come again, as Kafka Connect has begun again at 12
    after a batch failed   10    15 │ 10 12 15        12 is late: an event that was written behind later ones

Orders and positions of events grow as long as Connect goes on. Connect went back where one of them does not grow, where
an event of another transaction is between, and where a key comes twice at one position. Otherwise several events may
have one position: rows of one COPY, or both events of a changed primary key. There a key tells which event comes again,
wherever among them Connect begins. An event whose key is not known, as bindings do not have keys, has that of the next
event that comes with another one.

    keys of position 12    a b c │ c d e │ a b ...        c, a and b come again, d and e are first
    of three in bindings   ? ? ? │ c d │ a b              c, d and a come again, b is first
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from enum import Enum

from tidemark_replica.storage.kafka.transactions.metadata import TransactionMark

KEYS_MAX = 1 << 16
"""The keys of one position that are known, at most: of a COPY of more rows, further ones are taken for others, and an
event of theirs that comes again may hold the transactions up (TransactionIncomplete)."""
GROUP_MAX = 2048
"""The events of one position that keys tell apart, at most; of more, the number does. PostgreSQL writes the rows of a
COPY that have one position into one page of 8 KiB."""
_ANYWHERE = 1 << 65
"""Greater than all positions."""


class Arrival(Enum):
    """The way in which an event comes. LATE: first, but behind one with a greater position; also where it is not known
    whether it came before."""

    FIRST = 0
    AGAIN = 1
    LATE = 2


class LastEvent:
    """The last event of a partition, of all transactions."""

    __slots__ = ("_keys", "_mark")

    def __init__(self, mark: TransactionMark, key: bytes | None) -> None:
        self._mark, self._keys = mark, {key}

    def is_followed(self, mark: TransactionMark, key: bytes | None) -> bool:
        """Takes the event that was read next. Returns whether Connect went on within the transaction. An order that
        grows does not say so alone: orders may first count from the middle of the transaction, and later from its
        begin."""
        last, self._mark = self._mark, mark
        is_same = (last.id, last.commit_before) == (mark.id, mark.commit_before)
        grows = is_same and mark.order > last.order
        if grows and mark.position == last.position and (key is None or key not in self._keys):
            if len(self._keys) < KEYS_MAX:
                self._keys.add(key)
            return True
        self._keys = {key}
        return grows and mark.position > last.position


class EventPositions:
    """`positions`: of the events that were there before, in their order; None where they are not known."""

    __slots__ = ("_at", "_greatest", "_keys", "count", "positions", "top")

    def __init__(self, positions: Iterable[int] | None = ()) -> None:
        self.positions = None if positions is None else array("Q", positions)
        """The positions of all events, in order; None where they are not known."""
        self._at = 0
        self._keys = array("q", [0]) * len(self)
        """The hashes of the keys of these events; 0: not known."""
        self._greatest = _ANYWHERE if self.positions is None else max(self.positions, default=-1)
        self.top, self.count = 0, 0
        """The greatest order, and how many events had a greater one than those before."""

    def __len__(self) -> int:
        """The number of positions in memory."""
        return 0 if self.positions is None else len(self.positions)

    def add(self, position: int, order: int, goes_on: bool, key: bytes | None) -> Arrival:
        """Takes the event that was read next. `goes_on`: whether Connect went on within the transaction. `key`: of the
        record, None without one."""
        if order > self.top:
            self.top, self.count = order, self.count + 1
        all, greatest = self.positions, self._greatest
        self._greatest = max(greatest, position)
        if all is None:
            return Arrival.LATE if position < greatest or (not goes_on and position == greatest) else Arrival.FIRST
        if not self._is_first(all, position, goes_on, 0 if key is None else hash(key) or 1):
            return Arrival.AGAIN
        return Arrival.LATE if position < greatest else Arrival.FIRST

    def _is_first(self, all: array[int], position: int, goes_on: bool, key: int) -> bool:
        """Whether the event does not come again; notes it. `key`: the hash of its key, 0 without one."""
        begin, end = bisect_left(all, position), bisect_right(all, position)
        if key and end - begin <= GROUP_MAX:
            there = self._keys[begin:end]
            found = next((each for each in (key, 0) if each in there), None)
            at = end if found is None else begin + there.index(found)
        else:
            at = min(max(begin, self._at), end) if goes_on else begin
        self._at = at + 1
        if at == end:
            all.insert(at, position)
            self._keys.insert(at, key)
            return True
        self._keys[at] = self._keys[at] or key
        return False

    def forget(self) -> None:
        """Forgets the positions, as there are too many."""
        self.positions, self._keys = None, array("q")
