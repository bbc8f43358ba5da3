"""Columns that are added to tables of Kafka: a successor has them, or the reason why not."""

from __future__ import annotations

from dataclasses import replace

from tests.protocol.samples import INGESTION
from tests.resources.test_table_edit import ingested, names_of
from tidemark_operator.planning.schema_columns import columns_not_added, other_columns
from tidemark_operator.planning.table_edit import (
    COLUMNS_NOT_ADDED,
    TableEdit,
    evolving_tables,
    removable,
    table_edit,
    with_more_columns,
)
from tidemark_protocol.plan.ingestion import IngestionDescription, SourceTable
from tidemark_protocol.plan.kafka import KafkaSchema, KafkaSource, KafkaTable
from tidemark_protocol.plan.successors import dead_letters
from tidemark_protocol.types import BIGINT, STRING, Column

FIRST = (Column("n", BIGINT), Column("s", STRING))
MORE = (Column("m", BIGINT), *FIRST)
SPEC = KafkaTable("t", "shop.t", "json", FIRST)
SPEC_U = KafkaTable("u", "shop.u", "json", FIRST)
AVRO = KafkaTable("t", "shop.t", "avro", (), schema=KafkaSchema(subject="t"), framed=True)
SECOND = replace(SPEC, name="t.2", columns=MORE, added=("m",))


def source(*tables: KafkaTable, transactions: str = "") -> KafkaSource:
    return KafkaSource(("k:1",), tables, transactions=transactions)


def stored(*tables: KafkaTable, removed: tuple[str, ...] = ()) -> IngestionDescription:
    names = [name for t in tables for name in (t.name, dead_letters(t.name))[: 1 + (t.on_bad_record != "error")]]
    return replace(INGESTION, source=source(*tables), tables=tuple(map(ingested, names)), removed=removed)


def test_columns_are_added_to_a_table_of_json() -> None:
    """A successor has them, and knows which they are. The order is no edit."""
    for same in (SPEC, replace(SPEC, columns=FIRST[::-1])):
        assert table_edit(stored(SPEC), source(same)).is_empty
    wanted = source(replace(SPEC, columns=MORE))
    assert table_edit(stored(SPEC), wanted) == TableEdit(added=source(SECOND))
    edit = table_edit(stored(SPEC, SECOND), wanted)
    assert (edit.added, names_of(edit), edit.refused) == (None, ["t"], "")
    assert table_edit(stored(SECOND, removed=("t",)), wanted).is_empty
    last = (*MORE, Column("l", BIGINT))
    edit = table_edit(stored(SPEC, SECOND), source(replace(SPEC, columns=last)))
    assert edit.added == source(replace(SECOND, name="t.3", columns=last, added=("m", "l")))


def test_the_schema_of_its_keys_is_the_one_that_was_found() -> None:
    """A registry may have a newer one by now, with which keys would be others."""
    key = KafkaSchema(subject="t-key")
    spec = replace(SPEC, envelope="upsert", key_format="avro", key_schema=key)
    found = replace(key, text='"long"')
    edit = table_edit(stored(replace(spec, key_schema=found)), source(replace(spec, columns=MORE)))
    second = replace(spec, name="t.2", columns=MORE, added=("m",), key_schema=found)
    assert edit == TableEdit(added=source(second))
    assert table_edit(stored(second, removed=("t",)), source(replace(spec, columns=MORE))).is_empty


def test_an_edit_of_how_it_goes_on_is_one_of_all_tables_of_the_name() -> None:
    skips = replace(SPEC, columns=MORE, on_gap="skip")
    edit = table_edit(stored(SPEC), source(skips))
    assert edit.added == source(replace(SECOND, on_gap="skip"))
    assert edit.changed == (replace(SPEC, on_gap="skip"),)
    edit = table_edit(stored(SPEC, SECOND), source(skips))
    assert (edit.added, edit.changed) == (None, tuple(replace(each, on_gap="skip") for each in (SPEC, SECOND)))


def test_other_edits_of_columns_are_refused_by_name() -> None:
    for columns, why in (
        ((FIRST[0],), "column s is another one, or gone"),
        ((replace(FIRST[0], type=STRING), FIRST[1]), "column n is another one, or gone"),
        ((*FIRST, Column("m", BIGINT, nullable=False)), "column m is new and not nullable"),
    ):
        edit = table_edit(stored(SPEC), source(replace(SPEC, columns=columns)))
        assert (edit.added, edit.reason, why in edit.refused) == (None, COLUMNS_NOT_ADDED, True)
    other = replace(SPEC, columns=MORE, topic="other")
    edit = table_edit(stored(SPEC), source(other))
    assert (edit.reason, "table t is ingested as it was defined first" in edit.refused) == ("TableNameUsed", True)


def test_a_successor_that_follows_transactions_is_marked() -> None:
    """Replicas that do not know the mark would wait for a table that has not begun, and bind no transaction."""
    events = replace(SPEC, envelope="debezium", key_format="json", key_columns=(Column("id", BIGINT),))
    wanted = source(replace(events, columns=MORE), transactions="shop.transaction")
    second = replace(events, name="t.2", columns=MORE, added=("m",), successor=True)
    assert table_edit(stored(events), wanted).added == replace(wanted, tables=(second,))
    assert table_edit(stored(second, removed=("t",)), wanted).is_empty
    last = (*MORE, Column("l", BIGINT))
    edit = table_edit(stored(second, removed=("t",)), replace(wanted, tables=(replace(events, columns=last),)))
    assert edit.added == replace(wanted, tables=(replace(second, name="t.3", columns=last, added=("m", "l")),))
    edit = table_edit(stored(events), source(replace(events, columns=MORE)))
    assert edit.added == source(replace(second, successor=False))


def test_another_schema_is_that_of_a_successor() -> None:
    """Its columns are not known yet. The key is found as before; a frame says which schema a record has."""
    key, value = KafkaSchema(subject="t-key", text='"long"'), KafkaSchema(subject="t", version=1)
    keyed = replace(AVRO, envelope="upsert", key_format="avro", key_schema=replace(key, text=""), schema=value)
    found = replace(keyed, schema=replace(value, text="[]"), key_schema=key)
    for schema in (replace(value, version=2), KafkaSchema(text="{}"), KafkaSchema(config_map="m", key="k")):
        edit = table_edit(stored(found), source(replace(keyed, schema=schema)))
        second = replace(found, name="t.2", schema=schema, successor=True)
        assert edit == TableEdit(added=source(second))
        now = replace(second, schema=replace(schema, text="{}"))
        edit = table_edit(stored(found, now), source(replace(keyed, schema=schema)))
        assert (edit.added, names_of(edit), edit.refused) == (None, ["t"], "")
    for other in (replace(keyed, topic="u"), replace(keyed, key_schema=KafkaSchema(text='"string"'))):
        edit = table_edit(stored(found), source(replace(other, schema=replace(value, version=2))))
        assert "as it was defined first" in edit.refused
    plain = replace(found, format="protobuf", framed=False)
    edit = table_edit(stored(plain), source(replace(plain, schema=KafkaSchema(text="{}"))))
    assert edit.added == source(replace(plain, name="t.2", schema=KafkaSchema(text="{}"), successor=True))


def test_a_successor_by_another_schema_has_all_columns_and_more() -> None:
    before, second = stored(AVRO), source(replace(AVRO, name="t.2", successor=True))
    before = replace(before, tables=(replace(ingested("t"), table=SourceTable("t", FIRST)),))
    for columns, why in (
        (MORE, ""),
        (FIRST[::-1], "table t: the schema has no column that the table does not have"),
        ((*MORE[:2], Column("o", STRING)), "table t: column s is another one in the schema, or is not there"),
        ((MORE[0], MORE[1], replace(MORE[2], type=BIGINT)), "table t: column s is another one in the schema"),
    ):
        refused = columns_not_added(before, second, [SourceTable("t.2", columns)])
        assert (list(refused), refused.get("t.2", "").startswith(why)) == ([] if not why else ["t.2"], True)
    assert columns_not_added(before, source(AVRO), [SourceTable("t", FIRST[:1])]) == {}


def test_the_newest_schema_of_a_table_that_evolves() -> None:
    """Its successor has that schema. Columns that are other ones are for people; that one is gone is not."""
    found = replace(AVRO, schema=KafkaSchema(subject="t", text="[]"))
    before = replace(stored(found), tables=(replace(ingested("t"), table=SourceTable("t", FIRST)),))
    second = replace(found, name="t.2", schema=KafkaSchema(subject="t", text="{}"), successor=True)
    other = (*FIRST[:1], replace(FIRST[1], type=BIGINT))
    for columns, successors, why in (
        (MORE, [second], ""),
        (FIRST, [], ""),
        (FIRST[:1], [], ""),
        (other, [], "table t: column s is another one"),
        ((*MORE[:2], Column("o", STRING)), [], "table t: column s is another one"),
    ):
        now = [SourceTable("t", columns, schema="{}")]
        assert with_more_columns(before, now, ["t"]) == successors
        assert other_columns(before, now)[: len(why) or None] == why
    spec = replace(AVRO, envelope="upsert", key_format="avro", key_schema=KafkaSchema(subject="k"))
    known = replace(spec, schema=found.schema, key_schema=KafkaSchema(subject="k", text='"long"'))
    looked = evolving_tables(stored(known, SPEC_U), source(spec, SPEC_U), {"t"})
    assert looked == source(replace(spec, key_schema=known.key_schema))


def test_the_first_table_stays_until_the_next_one_has_begun() -> None:
    spec = replace(SPEC, on_bad_record="deadLetter")
    both = stored(spec, replace(SECOND, on_bad_record="deadLetter"))
    first = both.tables[:2]
    assert removable(both, first, (), lambda _: False) == ()
    assert removable(both, first, (), lambda table: table.table.name == "t.2") == ()
    assert removable(both, first, (), lambda _: True) == first
    assert removable(both, first, ("t",), lambda _: True) == ()
    assert removable(both, both.tables, (), lambda _: False) == both.tables
