"""The calls that wait for their tick, between the threads that serve them and the ingestion's thread.

    put ──► waiting ──take──► taken ──bind──► bound ──appended──► answered: the time
               │                └──refuse──► answered: why
               └── abandon: its client is gone

A call is answered once, and its spooled rows are freed then. Where the ingestion begins again (`restart`), taken and
bound calls wait again: the source finds by its keys whether they were written. A call that was taken before is taken
alone, and is not taken more than TAKES_MAX times, so that a call that cannot be written stops no other.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass

from tidemark_protocol.ids import Time
from tidemark_replica.storage.written.receive import ReceivedWrite
from tidemark_replica.storage.written.refusal import WriteNotPossible, WriteRefused, WriteUnknown

WAITING_MAX, TAKES_MAX = 256, 3


@dataclass(frozen=True)
class WriteAnswer:
    """The rows are in the table at `time`. `repeated`: an earlier call with the same key wrote them."""

    time: Time
    rows: int
    repeated: bool = False


class PendingWrite:
    """One call in the inbox."""

    def __init__(self, write: ReceivedWrite, inbox: WriteInbox) -> None:
        self.write, self._inbox = write, inbox
        self.is_waiting = True
        """Whether no tick has taken the call, or the ingestion began again since then."""
        self.takes, self.abandoned = 0, False
        self._ended = threading.Event()
        self._outcome: WriteAnswer | Exception | None = None

    def answer(self, timeout_s: float) -> WriteAnswer | None:
        """The answer; None where there is none yet. Raises WriteRefused, WriteNotPossible, WriteUnknown."""
        if not self._ended.wait(timeout_s):
            return None
        if isinstance(self._outcome, WriteAnswer):
            return self._outcome
        assert self._outcome is not None
        raise self._outcome

    def abandon(self) -> None:
        """The client is gone. A call that a tick took goes on, unless the ingestion begins again."""
        self._inbox.abandon(self)

    def end(self, outcome: WriteAnswer | Exception) -> None:
        """Give the call its outcome. The inbox calls it."""
        self.is_waiting, self._outcome = False, outcome
        self.write.close()
        self._ended.set()


class WriteInbox:
    """The calls of one ingestion."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._lock = threading.Lock()
        self._calls: list[PendingWrite] = []
        self._bound: list[tuple[PendingWrite, WriteAnswer]] = []
        self._closed = False

    def put(self, write: ReceivedWrite) -> PendingWrite:
        """Adds the write, which waits for a tick. Raises WriteNotPossible; the write's file is closed then."""
        with self._lock:
            if not self._closed and len(self._calls) < WAITING_MAX:
                pending = PendingWrite(write, self)
                self._calls.append(pending)
                return pending
        write.close()
        if self._closed:
            raise WriteNotPossible(f"DataSource {self._name} is not ingested here any more; repeat the call")
        raise WriteNotPossible(
            f"{WAITING_MAX} calls of DataSource {self._name} wait already; repeat it later", full=True
        )

    def take(self, size: int, count: int) -> list[PendingWrite]:
        """The next calls, in order of their arrival: at least one if any waits, at most `count`, together at most
        `size` bytes if more than one; a call that was taken before is alone."""
        taken, total = list[PendingWrite](), 0
        with self._lock:
            for pending in self._calls:
                if pending.is_waiting:
                    total += pending.write.total_size
                    if taken and (total > size or len(taken) == count or pending.takes or taken[0].takes > 1):
                        break
                    pending.is_waiting, pending.takes = False, pending.takes + 1
                    taken.append(pending)
        return taken

    def refuse(self, pending: PendingWrite, refusal: WriteRefused | WriteNotPossible) -> None:
        """Answers at once: nothing is written."""
        self._end([(pending, refusal)])

    def bind(self, pending: PendingWrite, answer: WriteAnswer) -> None:
        """The binding that has the call is minted. It is answered with the next `confirm_appends`."""
        self._bound.append((pending, answer))

    def confirm_appends(self) -> None:
        """Answers the bound calls: their rows are in the tables."""
        bound, self._bound = self._bound, []
        self._end(bound)

    def restart(self) -> None:
        """Lets all calls wait again: the ingestion begins again from the shards. Calls whose clients are gone, and
        those that were taken TAKES_MAX times, end."""
        failed = WriteUnknown(
            f"the ingestion of DataSource {self._name} failed {TAKES_MAX} times with this call: its rows are written "
            "once or not at all; the DataSource's status says why. Repeat the call with the same key"
        )
        with self._lock:
            self._bound = []
            for pending in self._calls:
                pending.is_waiting = True
            ended = [p for p in self._calls if p.abandoned or p.takes >= TAKES_MAX]
        self._end([(p, WriteUnknown("the client is gone") if p.abandoned else failed) for p in ended])

    def abandon(self, pending: PendingWrite) -> None:
        """The client is gone. A call that a tick took goes on, unless the ingestion begins again."""
        with self._lock:
            pending.abandoned = True
            if not pending.is_waiting:
                return
            self._calls.remove(pending)
            pending.end(WriteUnknown("the client is gone"))

    def close(self) -> None:
        """Ends all calls, and takes no further ones: the ingestion ended here."""
        with self._lock:
            self._closed = True
            calls = list(self._calls)
        unknown = WriteUnknown(
            f"the ingestion of DataSource {self._name} ended on this replica before the call was answered: its rows "
            "are written once or not at all; repeat the call with the same key"
        )
        self._end([(pending, unknown) for pending in calls])

    def _end(self, calls: Sequence[tuple[PendingWrite, WriteAnswer | Exception]]) -> None:
        with self._lock:
            for pending, outcome in calls:
                if pending in self._calls:
                    self._calls.remove(pending)
                pending.end(outcome)
