"""Whether values that were written with the schema of a table can be read with that of its successor, which has further
columns (`plan/successors.py`).

    Avro        the schema before, as a writer's, resolves to the new one: a further field has a default
    Protobuf    fields of one name have one number, so records of before lack the further ones

It is looked at before the operator stores the edit, as what cannot be read would be malformed in each record.
"""

from __future__ import annotations

from dataclasses import replace

from tidemark_protocol.plan.ingestion import IngestionDescription
from tidemark_protocol.plan.kafka import KafkaSource, KafkaTable
from tidemark_protocol.plan.successors import newest, spec_name
from tidemark_replica.storage.avro.resolution import BodyDecoder, Incompatible
from tidemark_replica.storage.avro.schema import SchemaRefused
from tidemark_replica.storage.errors import SourceUnusable
from tidemark_replica.storage.kafka.values.debezium_schemas import row_of
from tidemark_replica.storage.kafka.values.encodings import values_of
from tidemark_replica.storage.kafka.values.schemas import parsed_schema
from tidemark_replica.storage.protobuf.descriptors import DescriptorRefused, descriptors_of_text, misfit, renumbered


def check_schema(table: KafkaTable, pinned: IngestionDescription) -> None:
    """Raises SourceUnusable where values that the last table of the name reads cannot be read with the schema of this
    one. `pinned`: the source with that table."""
    assert isinstance(pinned.source, KafkaSource)
    known = {each.name: each for each in pinned.source.tables}
    last = newest(known).get(spec_name(table.name), "")
    if not table.successor or not last or known[last].schema is None:
        return
    why = (_avro_misfit if table.format == "avro" else _protobuf_misfit)(known[last], table)
    if why:
        text = "values that were written with the schema of before cannot be read with this one"
        raise SourceUnusable(f"table {spec_name(table.name)}: {text}: {why}")


def _avro_misfit(before: KafkaTable, now: KafkaTable) -> str:
    """The reason; empty without one. Of change events the row counts alone, whatever the names of records are."""
    try:
        writer, reader = (parsed_schema(values_of(each)) for each in (before, now))
        if values_of(now).is_event:
            row = row_of(writer)
            writer, reader = row, replace(row_of(reader), name=row.name)
        BodyDecoder(writer, reader)
    except (Incompatible, SchemaRefused) as error:
        return str(error)
    return ""


def _protobuf_misfit(before: KafkaTable, now: KafkaTable) -> str:
    assert before.schema is not None
    assert now.schema is not None
    try:
        writer, reader = (descriptors_of_text(each.text).message(each.message) for each in (before.schema, now.schema))
    except DescriptorRefused as error:
        return str(error)
    if writer.full_name != reader.full_name:
        return f"they are messages {writer.full_name}, not {reader.full_name}"
    return renumbered(writer, reader) or misfit(writer, reader)
