"""The first run of each partition that waits, by the transaction that it waits for.

partition 0:   7 7 │ 8 8        waits for 7; once 7 is chosen, for 8
partition 1:   8 │ 9            waits for 8
"""

from __future__ import annotations

from collections.abc import Mapping

from tidemark_replica.storage.kafka.transactions.log import PendingTransaction
from tidemark_replica.storage.kafka.transactions.read_ahead import EventRun, FateOf, RankOf, ReadAhead


class Fronts:
    """`ahead`, `fates`: by table. `pending`: the transactions that may be chosen, which are chosen in their order.
    `unknown`: a run, and its table, that waits for none of them, or perhaps for one that was passed and comes again; it
    is None where there is no such run, and nothing may be chosen where there is one. `beyond`: a run, and its table, of
    a transaction that is later than all of them, None without one."""

    def __init__(
        self,
        ahead: Mapping[str, ReadAhead],
        fates: Mapping[str, FateOf],
        pending: Mapping[str, PendingTransaction],
        rank_of: RankOf,
    ) -> None:
        self._ahead, self._fates, self._pending, self._rank_of = ahead, fates, pending, rank_of
        self._waiting: dict[str, list[tuple[str, int, int]]] = {}
        self.unknown: tuple[str, EventRun] | None = None
        self.beyond: tuple[str, EventRun] | None = None
        for name, one in ahead.items():
            for partition in one.partitions:
                self._move(name, partition, 0)

    def chosen(self, one: PendingTransaction) -> bool:
        """Moves the fronts that wait for the transaction, as it is chosen now. Returns whether each of them waits for
        nothing more, or for a later one: then all events of this one are before the cut."""
        moved = [self._move(*front) for front in self._waiting.pop(one.id, [])]
        return self.unknown is None and all(run is None or self._rank_of(run) > one.rank for run in moved)

    def _move(self, name: str, partition: int, at: int) -> EventRun | None:
        at = self._ahead[name].front(partition, at, self._fates[name])
        run = self._ahead[name].run(partition, at)
        if run is None:
            return None
        if self._rank_of(run) < 0:
            self.unknown = self.unknown or (name, run)
        elif run.id in self._pending:
            self._waiting.setdefault(run.id, []).append((name, partition, at))
        else:
            self.beyond = self.beyond or (name, run)
        return run
