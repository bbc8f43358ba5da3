"""Whether values that were written with the schema of a table can be read with that of its successor, which has further
columns (`plan/successors.py`).

    Avro        the schema before, as a writer's, resolves to the new one: a further field has a default. Values of
                earlier writers stay what they are: NULL, symbols of enums, and defaults remain
    Protobuf    fields of one name have one number, so records of before lack the further ones

It is looked at before the operator stores the edit, as what cannot be read would be malformed in each record.
"""

from __future__ import annotations

from dataclasses import replace

from tidemark_protocol.plan.ingestion import IngestionDescription
from tidemark_protocol.plan.kafka import KafkaSource, KafkaTable
from tidemark_protocol.plan.successors import newest, spec_name
from tidemark_replica.storage.avro.resolution import BodyDecoder, Incompatible
from tidemark_replica.storage.avro.schema import AvroType, SchemaRefused
from tidemark_replica.storage.avro.sql_types import present_branch
from tidemark_replica.storage.errors import SourceUnusable
from tidemark_replica.storage.kafka.values.debezium_schemas import row_of
from tidemark_replica.storage.kafka.values.encodings import values_of
from tidemark_replica.storage.kafka.values.schemas import parsed_schema
from tidemark_replica.storage.protobuf.descriptors import DescriptorRefused, descriptors_of_text, misfit, renumbered


def is_elsewhere(table: KafkaTable, pinned: IngestionDescription) -> bool:
    """Whether the schema is that of the last table of the name: the operator stores its other place, and no successor,
    so no record is read again."""
    assert isinstance(pinned.source, KafkaSource)
    known = {each.name: each.schema for each in pinned.source.tables}
    before = known.get(newest(known).get(spec_name(table.name), ""))
    both = (table.schema, before)
    return table.successor and None not in both and len({(each.text, each.message) for each in both if each}) == 1


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
        return _narrower(writer, reader, "$")
    except (Incompatible, SchemaRefused) as error:
        return str(error)


def _narrower(before: AvroType, now: AvroType, at: str) -> str:
    """The first value that the schema of before reads, whoever wrote it, and the new one does not, or as another value;
    empty without one. The types fit."""
    if before.kind == "union" or now.kind == "union":
        if _reads_null(before) and not _reads_null(now):
            return f"{at}: null is not read any more"
        before, now = (present_branch(each, at) if each.kind == "union" else each for each in (before, now))
    if before.kind == "enum" and (set(before.symbols) - set(now.symbols) or before.default != now.default):
        return f"{at}: a symbol is gone, or the default is another one"
    for field in before.fields:
        other, place = next((each for each in now.fields if each.name == field.name), None), f"{at}.{field.name}"
        if other is None:
            continue
        if field.has_default and (not other.has_default or other.default != field.default):
            return f"{place}: the default, which records without the field have, is gone or another one"
        if why := _narrower(field.type, other.type, place):
            return why
    both = zip(before.children, now.children, strict=False) if before.kind == "array" else ()
    return next((why for mine, new in both if (why := _narrower(mine, new, f"{at}[]"))), "")


def _reads_null(kind: AvroType) -> bool:
    return kind.kind == "null" or any(branch.kind == "null" for branch in kind.children if kind.kind == "union")


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
