"""The disk of the tables is full while topics are ingested."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.disk_fixtures import PAGE, fill
from tests.kafka.broker import Broker
from tests.kafka.topics import Run, consumed, new_topic, produce, spec_of
from tests.storage.full_disk import (
    ROOMS_AND_BEGIN,
    batches,
    check_that_a_full_disk_is_told,
    failure,
    numbers,
    unnamed_files,
)
from tests.storage.ingestion_samples import oks
from tidemark_protocol.plan.kafka import KafkaTable
from tidemark_protocol.types import BIGINT, Column

COLUMNS = (Column("id", BIGINT),)

pytestmark = [pytest.mark.kafka, pytest.mark.broad]


class OfKafka:
    """A topic with 20,000 records for each batch. `small`: another one, with a record each time."""

    table, is_whole = "t", False

    def __init__(self, kafka: Broker, disk: Path, small: str = "") -> None:
        self.kafka, self.shards, self.topic, self.small = kafka, disk, new_topic(kafka), small
        self.more(0)
        tables = [KafkaTable("t", self.topic, "json", COLUMNS)]
        if small:
            tables.insert(0, KafkaTable("s", small, "json", COLUMNS))
        self.spec = spec_of(kafka, *tables)
        self.run = Run(disk, self.spec)

    def more(self, batch: int) -> None:
        produce(self.kafka, self.topic, *({"id": n} for n in numbers(batch)))
        if self.small:
            produce(self.kafka, self.small, {"id": batch})

    def tick(self) -> None:
        self.run.catch_up()

    def catch_up(self) -> None:
        self.run.catch_up()

    def begin_again(self) -> None:
        self.run.close()
        self.run = Run(self.shards, self.spec)


@ROOMS_AND_BEGIN
def test_a_full_disk_is_told_and_with_room_each_record_is_there_once(
    kafka: Broker, small_disk: Path, room: int, is_first: bool
) -> None:
    of = OfKafka(kafka, small_disk)
    try:
        check_that_a_full_disk_is_told(of, room, is_first)
        assert len(oks(small_disk, "t")) == len(consumed(kafka, of.topic, 1))
    finally:
        of.run.close()


def test_what_one_topic_staged_is_deleted_where_another_finds_no_room(kafka: Broker, small_disk: Path) -> None:
    """Each attempt would leave a file behind, until vacuum takes it."""
    of = OfKafka(kafka, small_disk, new_topic(kafka))
    try:
        of.tick()
        filler = fill(small_disk, 24 * PAGE)
        of.more(1)
        for _ in range(4):
            assert "make room on its disk" in failure(of.tick)
            assert unnamed_files(small_disk, "s", "t") == []
            of.begin_again()
        filler.unlink()
        of.catch_up()
        assert batches(of) == 2
        assert oks(small_disk, "s") == [(0,), (1,)]
    finally:
        of.run.close()
