"""The schema that an inspection found is stored with the plan, and later inspections change nothing of it."""

from __future__ import annotations

from dataclasses import replace

from tidemark_operator.handlers.reconcile.source_pinning import with_columns
from tidemark_protocol.plan.ingestion import SourceTable
from tidemark_protocol.plan.kafka import KafkaSchema, KafkaSource, KafkaTable
from tidemark_protocol.types import BIGINT, Column


def test_the_text_of_a_schema_is_pinned() -> None:
    value, key = KafkaSchema(subject="a-value"), KafkaSchema(subject="a-key")
    found = KafkaTable("a", "a", "avro", (), schema=value, framed=True, key_format="avro", key_schema=key)
    plain = KafkaTable("b", "b", "text", ())
    columns = (Column("id", BIGINT),)
    tables = (
        SourceTable("a", columns, schema="the text", key_schema="that of the key"),
        SourceTable("a_dead_letter", columns),
        SourceTable("b", columns),
    )
    source = KafkaSource(("k:1",), (found, plain), registry="http://r")

    pinned = with_columns(source, tables)

    texts = {"schema": replace(value, text="the text"), "key_schema": replace(key, text="that of the key")}
    assert pinned == replace(source, tables=(replace(found, **texts), plain))
