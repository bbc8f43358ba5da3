"""Whether the records of a table are still in its topic, as far as brokers say it without a read (`read_again.py`).

It is looked at before the operator stores the edit that adds columns, so that what cannot be can be taken back.
"""

from __future__ import annotations

from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, ConfigResource

from tidemark_persist import open_shard
from tidemark_protocol.plan.ingestion import IngestionDescription
from tidemark_protocol.plan.kafka import KafkaTable
from tidemark_protocol.plan.successors import number, spec_name
from tidemark_replica.storage.binding_names import TABLE, BindingNames
from tidemark_replica.storage.errors import SourceUnusable, TableStopped
from tidemark_replica.storage.kafka.connection import REQUEST_SECONDS, KafkaClients
from tidemark_replica.storage.kafka.followed_topic import checked
from tidemark_replica.storage.kafka.positions import Position, positions
from tidemark_replica.storage.kafka.read_again import text_of_gone, why_unknown
from tidemark_replica.storage.kafka.topics import Topics
from tidemark_replica.storage.staged_bindings import StagedBindings


def check_records(table: KafkaTable, clients: KafkaClients, pinned: IngestionDescription) -> None:
    """Raises SourceUnusable where a table with further columns could not begin, as records are gone that an earlier one
    of its name has read; BrokersAway."""
    lead = _position(table, pinned)
    if lead is None:
        return
    why = why_unknown(lead)
    if why is None:
        admin = clients.admin(clients.settings())
        why = _why_gone(table, lead, Topics(admin))
        if why is None and table.envelope != "upsert":
            why = _why_compacted(table, admin)
    if why is not None:
        raise SourceUnusable(f"{text_of_gone(table, why)}; give the table another name")


def _position(table: KafkaTable, pinned: IngestionDescription) -> Position | None:
    """Where the first table of the name is; None where it has not begun."""
    remap = open_shard(pinned.remap_location)
    upper = remap.refresh().upper
    of_name = [each.table.name for each in pinned.tables if spec_name(each.table.name) == spec_name(table.name)]
    if upper == 0 or not of_name:
        return None
    rows = BindingNames(pinned.tables).in_source(remap.snapshot(upper - 1))
    bound = StagedBindings()
    bound.resume(rows.filter(pc.is_in(rows.column(TABLE), pa.array(of_name, pa.string()))))
    found = positions(bound.positions)
    return next((found[name] for name in sorted(of_name, key=number) if name in found), None)


def _why_gone(table: KafkaTable, lead: Position, topics: Topics) -> str | None:
    try:
        topic = checked(lead, topics.describe([table.topic])[table.topic])
    except TableStopped as error:
        return str(error)
    for partition, first in topics.first(topic).items():
        begin = lead.begins.get(partition, first)
        if begin < first and begin < lead.offsets[partition]:
            return f"partition {partition} of topic {topic.name} begins at offset {first}, and the table at {begin}"
    return None


def _why_compacted(table: KafkaTable, admin: AdminClient) -> str | None:
    """Where it cannot be asked, the records are counted when they are read."""
    resource = ConfigResource(ConfigResource.Type.TOPIC, table.topic)
    try:
        asked: Future[Any] = admin.describe_configs([resource], request_timeout=REQUEST_SECONDS)[resource]
        policy = asked.result(2 * REQUEST_SECONDS)["cleanup.policy"].value
    except (KafkaException, FutureTimeout, KeyError):
        return None
    return f"topic {table.topic} is compacted (cleanup.policy: {policy})" if "compact" in str(policy) else None
