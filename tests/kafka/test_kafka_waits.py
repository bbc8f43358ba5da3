"""Tables that wait for brokers or a registry are tried again, at a pace that costs little. No broker runs."""

from __future__ import annotations

from itertools import pairwise

from confluent_kafka.admin import AdminClient

from tests.kafka.topics import no_secret
from tests.ports import free_port
from tidemark_protocol.plan.kafka import KafkaSource, KafkaTable
from tidemark_protocol.types import STRING, Column
from tidemark_replica.storage.errors import TableStopped
from tidemark_replica.storage.kafka.positions import Position
from tidemark_replica.storage.kafka.source import KafkaIngestion
from tidemark_replica.storage.kafka.stop import TOPIC_REPLACED
from tidemark_replica.storage.kafka.topics import Topics
from tidemark_replica.storage.kafka.waits import AnswerWait


def test_a_wait_for_the_registry_grows_up_to_a_bound() -> None:
    waits = [AnswerWait.after(None, "away")]
    for _ in range(6):
        waits.append(AnswerWait.after(waits[-1], "away"))
    assert [wait.seconds for wait in waits] == [2, 4, 8, 16, 30, 30, 30]
    assert all(first.until < second.until for first, second in pairwise(waits[:5]))


def test_a_stopped_table_is_tried_again_where_brokers_did_not_answer() -> None:
    """It was to go on behind a gap, and the brokers went away before they gave the offsets there."""
    table = KafkaTable("t", "t", "text", (Column("value", STRING),), on_gap="skip")
    address = f"127.0.0.1:{free_port()}"
    source = KafkaIngestion(KafkaSource((address,), (table,)), no_secret)
    source._bound["t"] = Position("id", {0: 5})
    source._stopped["t"] = f"{TOPIC_REPLACED}: table t: topic t was created anew"
    source._recheck = {"t"}
    admin = AdminClient({"bootstrap.servers": address, "log_level": 0}, logger=None)
    source._stop("t", TableStopped(TOPIC_REPLACED, "topic t was created anew"), Topics(admin))
    assert source._recheck == {"t"}
    assert "t" in source._problems
    source.close()
