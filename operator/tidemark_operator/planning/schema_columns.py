"""The columns of a table of Kafka by another schema of its values, beside those that it has.

t     id BIGINT, name STRING          pinned
t.2   id, name, vip                   a replica has looked at the schema: the columns of t, and one more
t.2   id, name INT, vip               refused: name is another one
t.2   the text that is pinned         no other schema, but in another place: t stays, and knows the place
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from tidemark_protocol.plan.ingestion import IngestionDescription, SourceTable
from tidemark_protocol.plan.kafka import KafkaSource, KafkaTable
from tidemark_protocol.plan.successors import newest, spec_name


@dataclass(frozen=True)
class ColumnDifference:
    """The columns of a table by another schema beside those of the last table of its name: the first one of before that
    is not there with its type, and whether it is there with another; and whether there are further ones."""

    name: str
    other: str
    is_retyped: bool
    more: bool

    @classmethod
    def of(cls, pinned: IngestionDescription, found: SourceTable) -> ColumnDifference:
        name, known = spec_name(found.name), {table.table.name: table.table for table in pinned.tables}
        last = newest(known).get(name)
        before = {c.name: c.type for c in known[last].columns} if last is not None else {}
        now = {c.name: c.type for c in found.columns}
        other = next((each for each, type in before.items() if now.get(each) != type), "")
        return cls(name, other, other in now, bool(now.keys() - before.keys()))

    @property
    def text(self) -> str:
        why = f"column {self.other} is another one in the schema, or is not there; columns can only be added"
        return f"table {self.name}: {why}"


def with_schemas_elsewhere(
    pinned: IngestionDescription, source: KafkaSource, found: Iterable[SourceTable]
) -> tuple[KafkaTable, ...]:
    """The pinned tables of which the spec names another place, where the same schema is, with that place. `source`: the
    successors that they would get, `found`: these with their schemas."""
    assert isinstance(pinned.source, KafkaSource)
    known, texts = {table.name: table for table in pinned.source.tables}, {table.name: table.schema for table in found}
    last, moved = newest(known), []
    for table in source.tables:
        before = known.get(last.get(spec_name(table.name), ""))
        if not table.successor or before is None or table.schema is None or before.schema is None:
            continue
        schema = replace(table.schema, text=before.schema.text)
        if texts.get(table.name) == schema.text and schema.message == before.schema.message:
            moved.append(replace(before, schema=schema, on_gap=table.on_gap))
    return tuple(moved)


def columns_not_added(
    pinned: IngestionDescription, source: KafkaSource, found: Iterable[SourceTable]
) -> dict[str, str]:
    """By name, the successors by another schema that do not have all columns of the table before, with their types, and
    further ones: the reason. `found`: the tables of `source` with columns."""
    now, refused = {table.name: table for table in found}, {}
    for table in source.tables:
        if table.successor and table.name in now:
            difference = ColumnDifference.of(pinned, now[table.name])
            if difference.other:
                refused[table.name] = difference.text
            elif not difference.more:
                refused[table.name] = (
                    f"table {spec_name(table.name)}: the schema has no column that the table does not have"
                )
    return refused


def other_columns(pinned: IngestionDescription, found: Iterable[SourceTable]) -> str:
    """The reason why columns that came in the newest schema of a table of Kafka are not taken; empty without one. A
    column that is gone alone is none: it is read as before."""
    if not isinstance(pinned.source, KafkaSource):
        return ""
    differences = (ColumnDifference.of(pinned, table) for table in found)
    return next((each.text for each in differences if each.other and (each.more or each.is_retyped)), "")
