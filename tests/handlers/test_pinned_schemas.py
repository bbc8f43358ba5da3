"""The schema that an inspection found is stored with the plan, and later inspections change nothing of it."""

from __future__ import annotations

from dataclasses import replace

from tidemark_operator.handlers.reconcile.source_pinning import with_columns
from tidemark_protocol.plan.ingestion import SourceTable
from tidemark_protocol.plan.kafka import KafkaSchema, KafkaSource, KafkaTable
from tidemark_protocol.types import BIGINT, Column


def test_the_text_of_a_schema_is_pinned() -> None:
    found = KafkaTable("a", "a", "avro", (), schema=KafkaSchema(subject="a-value"), framed=True)
    plain = KafkaTable("b", "b", "text", ())
    columns = (Column("id", BIGINT),)
    tables = (
        SourceTable("a", columns, schema="the text"),
        SourceTable("a_dead_letter", columns),
        SourceTable("b", columns),
    )
    source = KafkaSource(("k:1",), (found, plain), registry="http://r")

    pinned = with_columns(source, tables)

    assert pinned == replace(
        source, tables=(replace(found, schema=KafkaSchema(subject="a-value", text="the text")), plain)
    )
