"""Requests to delete a table: the replica that is asked, and the moment from which the location is free."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from tidemark_operator.fleet.running_instance import RunningInstance
from tidemark_operator.handlers.deletion.table_deletion import LATE_MS, REPEAT_MS, DeletionRequests
from tidemark_operator.handlers.deletion.tombstones import TableAddress
from tidemark_protocol.ids import ReplicaId, ShardId
from tidemark_protocol.messages.responses import ShardDeleted

TABLE = TableAddress(ShardId("t"), "/data/ns/d/v/v1")
R1, R2 = ReplicaId("r1"), ReplicaId("r2")
OLD = 2 * LATE_MS
"""A time at which no operator before this one matters."""


@dataclass
class Instance:
    """The part of an instance that is asked."""

    replicas: Sequence[ReplicaId]
    online: list[ReplicaId]
    name: str = "default"
    asked: list[ReplicaId] = field(default_factory=list)

    @property
    def config(self) -> Instance:
        return self

    storage_location: str = "/data"
    publish_locations: tuple[str, ...] = ()

    def sees(self, location: str) -> bool:
        return RunningInstance.sees(cast(Any, self), location)

    def delete_shard(self, replica: ReplicaId, id: ShardId, location: str) -> None:
        self.asked.append(replica)

    def flush(self) -> None:
        pass


def ask(deletions: DeletionRequests, instance: Instance, now: int) -> tuple[list[ReplicaId], bool]:
    """The replicas that are asked then, and whether the table is gone."""
    instance.asked.clear()
    left = deletions.ask(cast(RunningInstance, cast(Any, instance)), [TABLE], now)
    return sorted(instance.asked), not left


def answers(deletions: DeletionRequests, replica: ReplicaId, now: int, error: str | None = None) -> None:
    deletions.record_answer("default", replica, ShardDeleted(TABLE.id, error), now)


def test_one_is_asked_and_its_answer_counts_at_once() -> None:
    deletions, instance = DeletionRequests(lambda: 0), Instance([R1, R2], [R1, R2])
    assert ask(deletions, instance, OLD) == ([R1], False)
    assert ask(deletions, instance, OLD + 1) == ([], False)
    answers(deletions, R1, OLD + 2)
    assert ask(deletions, instance, OLD + 3) == ([], True)


def test_a_failed_deletion_goes_to_another_replica() -> None:
    deletions, instance = DeletionRequests(lambda: 0), Instance([R1, R2], [R1, R2])
    ask(deletions, instance, OLD)
    answers(deletions, R1, OLD, "its store does not answer")
    assert ask(deletions, instance, OLD + REPEAT_MS) == ([R2], False)
    answers(deletions, R2, OLD + REPEAT_MS)
    assert ask(deletions, instance, OLD + REPEAT_MS) == ([], True)


def test_a_table_is_not_gone_while_a_slow_one_may_be_at_it() -> None:
    """It would remove what is made there next. It is asked again, as its answer may have been lost."""
    deletions, instance = DeletionRequests(lambda: 0), Instance([R1, R2], [R1, R2])
    ask(deletions, instance, OLD)
    assert ask(deletions, instance, OLD + REPEAT_MS) == ([R1, R2], False)
    answers(deletions, R2, OLD + REPEAT_MS)
    assert ask(deletions, instance, OLD + 2 * REPEAT_MS) == ([R1], False)
    answers(deletions, R1, OLD + 3 * REPEAT_MS)
    assert ask(deletions, instance, OLD + 3 * REPEAT_MS) == ([], True)


def test_one_that_never_answers_is_waited_for_so_long_as_it_can_be_at_it() -> None:
    deletions, instance = DeletionRequests(lambda: 0), Instance([R1, R2], [R1, R2])
    ask(deletions, instance, OLD)
    instance.online.remove(R1)
    assert ask(deletions, instance, OLD + REPEAT_MS) == ([R2], False)
    gone = OLD + REPEAT_MS
    answers(deletions, R2, gone)
    assert ask(deletions, instance, gone + LATE_MS - 1) == ([], False)
    assert ask(deletions, instance, gone + LATE_MS) == ([], True)


@pytest.mark.parametrize("offline", [[], [R2]], ids=["all are there", "one is away"])
def test_a_new_operator_asks_all_that_the_one_before_it_may_have_asked(offline: list[ReplicaId]) -> None:
    deletions, instance = DeletionRequests(lambda: 0), Instance([R1, R2], [r for r in (R1, R2) if r not in offline])
    assert ask(deletions, instance, 1) == (instance.online, False)
    for replica in instance.online:
        answers(deletions, replica, 2)
    assert ask(deletions, instance, 3) == ([], not offline)
    assert ask(deletions, instance, 3 + LATE_MS)[1]


def test_unrequested_deletions_are_not_remembered() -> None:
    deletions = DeletionRequests(lambda: 0)
    answers(deletions, R1, OLD)
    assert deletions.ask(None, [TABLE], OLD) == [TABLE]


def test_a_replica_is_asked_where_its_instance_may_have_published() -> None:
    """Another one sees nothing there, and would confirm that it is gone."""
    for places, is_asked in (((), []), (("/lakes",), []), (("/other", "/lake"), [R1])):
        instance = Instance([R1], [R1], publish_locations=places)
        table = TableAddress(ShardId("published/u/ns.d.v/0f"), "/lake/spent")
        DeletionRequests(lambda: 0).ask(cast(RunningInstance, cast(Any, instance)), [table], OLD)
        assert instance.asked == is_asked
