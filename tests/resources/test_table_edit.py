"""The changes by an edit of a DataSource's tables."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.protocol.samples import INGESTION
from tidemark_operator.planning import table_edit as edits
from tidemark_operator.planning.table_edit import (
    TableEdit,
    edited,
    table_edit,
    with_more_columns,
    with_unknown_relations,
)
from tidemark_protocol.ids import GlobalId, ShardId
from tidemark_protocol.plan.dataflow import ShardMetadata
from tidemark_protocol.plan.ingestion import (
    DeltaSource,
    DeltaTable,
    FilesSource,
    FilesTable,
    IngestedTable,
    IngestionDescription,
    IntrospectionSource,
    IntrospectionTable,
    NexmarkSource,
    Option,
    PostgresSource,
    PostgresTable,
    SourceTable,
    TpchSource,
    WrittenSource,
    WrittenTable,
)
from tidemark_protocol.plan.kafka import KafkaSchema, KafkaSource, KafkaTable
from tidemark_protocol.plan.successors import spec_name
from tidemark_protocol.types import BIGINT, DOUBLE, Column

COLUMNS = (Column("n", BIGINT),)


def files(*names: str, **options: object) -> FilesSource:
    return FilesSource(tuple(replace(FilesTable(name, "csv", "/in"), **options) for name in names))


def ingested(name: str) -> IngestedTable:
    shard = ShardMetadata(ShardId(f"u/{name}/v1"), f"/data/{name}/v1", COLUMNS)
    return IngestedTable(GlobalId(f"u/{name}"), SourceTable(name, COLUMNS), shard)


def pinned(*names: str, removed: tuple[str, ...] = ()) -> IngestionDescription:
    """Tables of files, their columns found; `a` has dead letters."""
    tables = tuple(ingested(name) for name in names)
    return replace(
        INGESTION, source=files(*names, columns=COLUMNS), tables=(*tables, ingested("a_dead_letter")), removed=removed
    )


def names_of(edit: TableEdit) -> list[str]:
    return [table.table.name for table in edit.removed]


def test_a_spec_with_the_pinned_tables_changes_nothing() -> None:
    """Whether it declares the columns that were found, or none; in any order."""
    assert table_edit(pinned("a", "b"), files("b", "a")).is_empty
    assert table_edit(pinned("a", "b"), files("a", "b", columns=COLUMNS)).is_empty


def test_a_table_that_the_spec_names_first_is_added() -> None:
    edit = table_edit(pinned("a"), files("c", "a"))
    assert edit == TableEdit(added=files("c"))


def test_a_table_that_the_spec_names_no_more_is_removed_with_its_dead_letters() -> None:
    edit = table_edit(pinned("a", "b"), files("b"))
    assert names_of(edit) == ["a", "a_dead_letter"]
    now = edited(pinned("a", "b"), edit.removed)
    assert [table.table.name for table in now.tables] == ["b"]
    assert now.source == files("b", columns=COLUMNS)
    assert now.removed == ("a",)


def test_added_tables_follow_those_that_stay() -> None:
    before = pinned("a", "b")
    now = edited(before, table_edit(before, files("c", "b")).removed, files("c", columns=COLUMNS), (ingested("c"),))
    assert [table.table.name for table in now.tables] == ["b", "c"]
    assert now.source == files("b", "c", columns=COLUMNS)
    assert table_edit(now, files("c", "b")).is_empty
    assert (now.remap_id, now.tick_ms) == (before.remap_id, before.tick_ms)


@pytest.mark.parametrize(
    ("before", "wanted", "why"),
    [
        (pinned("a", removed=("b",)), files("a", "b"), "table b was removed"),
        (
            pinned("a", "b"),
            FilesSource((*files("a").tables, FilesTable("b", "json", "/in"))),
            "table b is ingested as it was defined first",
        ),
    ],
    ids=["removed once", "removed and added as another one before it was looked at"],
)
def test_a_name_is_given_to_one_table(before: IngestionDescription, wanted: FilesSource, why: str) -> None:
    """The bindings name tables."""
    edit = table_edit(before, wanted)
    assert edit.added is None
    assert edit.removed == ()
    assert why in edit.refused


def test_the_number_of_removals_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(edits, "MAX_REMOVED", 2)
    edit = table_edit(pinned("a", "b", removed=("x", "y")), files("b"))
    assert edit.removed == ()
    assert "make another DataSource" in edit.refused


def test_tables_of_a_lake_keep_the_columns_that_were_found() -> None:
    table = DeltaTable("t", "/lake/t")
    before = replace(INGESTION, source=DeltaSource((replace(table, columns=COLUMNS),)), tables=(ingested("t"),))
    assert table_edit(before, DeltaSource((table,))).is_empty
    assert table_edit(before, DeltaSource((replace(table, on_gap="resnapshot"),))).refused


def test_generated_tables_are_never_edited() -> None:
    before = replace(INGESTION, source=TpchSource("0.01", 5, 42))
    assert table_edit(before, TpchSource("1", 5, 42)).is_empty
    assert table_edit(replace(before, source=NexmarkSource(5, 42)), NexmarkSource(6, 42)).is_empty


def lake(*names: str, **options: object) -> DeltaSource:
    return DeltaSource(tuple(replace(DeltaTable(name, f"/lake/{spec_name(name)}"), **options) for name in names))


def followed(*tables: DeltaTable, removed: tuple[str, ...] = ()) -> IngestionDescription:
    found = tuple(ingested(table.name) for table in tables)
    return replace(INGESTION, source=DeltaSource(tables), tables=found, removed=removed)


def test_other_columns_of_a_delta_table_are_a_successor() -> None:
    """It is added first, and the earlier ones go once it is there. Each has a name of its own, for good."""
    (first,) = lake("d", names=("n",), columns=COLUMNS).tables
    edit = table_edit(followed(first), lake("d", names=("n", "m")))
    assert edit == TableEdit(added=lake("d.2", names=("n", "m")))

    second = replace(first, name="d.2", names=("n", "m"))
    edit = table_edit(followed(first, second), lake("d", names=("n", "m")))
    assert (edit.added, names_of(edit), edit.refused) == (None, ["d"], "")
    assert table_edit(followed(second, removed=("d",)), lake("d", names=("n", "m"))).is_empty
    edit = table_edit(followed(second, removed=("d", "d.7")), lake("d", names=("m",)))
    assert edit == TableEdit(added=lake("d.8", names=("m",)))


def test_another_order_of_the_columns_is_no_edit() -> None:
    """A successor would read the whole table again."""
    (first,) = lake("d", names=("n", "m"), columns=COLUMNS).tables
    assert table_edit(followed(first), lake("d", names=("m", "n"))).is_empty
    assert table_edit(followed(first), lake("d", names=("m", "n"), on_gap="resnapshot")).refused
    assert table_edit(followed(first), lake("d", names=("m", "x"))).added == lake("d.2", names=("m", "x"))


def test_a_delta_table_that_differs_in_more_is_refused() -> None:
    (first,) = lake("d", columns=COLUMNS).tables
    assert table_edit(followed(first), lake("d", names=("n",), path="/other")).refused
    assert table_edit(followed(replace(first, name="d.2")), lake("other")).removed[0].table.name == "d.2"
    assert table_edit(followed(removed=("d", "d.2")), lake("d")).refused


def test_a_table_evolves_where_all_of_its_columns_are_there_and_more() -> None:
    """Not where one became another, and not twice for the same columns."""
    more = (Column("m", BIGINT), *COLUMNS)
    (first,) = lake("d", columns=COLUMNS).tables

    def added(pinned: IngestionDescription, columns: tuple[Column, ...], *evolving: str) -> list[str]:
        return [t.name for t in with_more_columns(pinned, [SourceTable("d", columns)], evolving)]

    assert added(followed(first), more, "d") == ["d.2"]
    assert added(followed(first, replace(first, name="d.2", columns=more)), more, "d") == []
    assert added(followed(first), (Column("n", DOUBLE), *more[:1]), "d") == []
    assert added(followed(first), COLUMNS, "d", "absent") == []
    assert added(followed(first), more) == []


def test_a_table_of_postgres_is_added_once_no_other_one_has_its_changes() -> None:
    """Under another name, after the table that has them is removed and gone."""
    source = PostgresSource("db", 5432, "d", "s", "p", (PostgresTable("a", "public", "a", columns=COLUMNS),))
    before = replace(pinned("a"), source=source, tables=(ingested("a"),))
    wanted = replace(source, tables=(PostgresTable("b", "public", "a"), PostgresTable("c", "other", "a")))

    edit = table_edit(before, wanted)

    assert (edit.added, names_of(edit)) == (replace(source, tables=wanted.tables[1:]), ["a"])
    assert "table b: public.a is ingested as table a still" in edit.refused
    assert table_edit(edited(before, edit.removed), wanted) == TableEdit(added=wanted)


def database(*names: str, **options: object) -> PostgresSource:
    tables = (replace(PostgresTable(name, "public", spec_name(name)), **options) for name in names)
    return PostgresSource("db", 5432, "d", "s", "p", tuple(tables))


def of_database(*tables: PostgresTable, removed: tuple[str, ...] = ()) -> IngestionDescription:
    found = tuple(ingested(table.name) for table in tables)
    return replace(INGESTION, source=replace(database(), tables=tables), tables=found, removed=removed)


def test_other_columns_of_a_table_of_postgres_are_a_successor() -> None:
    """The successor follows the same table of the database beside the first one, until that one is gone."""
    (first,) = database("d", names=("n",), columns=COLUMNS).tables
    assert table_edit(of_database(first), database("d", names=("n",))).is_empty
    edit = table_edit(of_database(first), database("d", names=("m", "n")))
    (second,) = database("d.2", names=("m", "n"), successor=True).tables
    assert edit == TableEdit(added=replace(database(), tables=(second,)))

    second = replace(second, columns=COLUMNS)
    edit = table_edit(of_database(first, second), database("d", names=("n", "m")))
    assert (edit.added, names_of(edit), edit.refused) == (None, ["d"], "")
    assert table_edit(of_database(second, removed=("d",)), database("d", names=("m", "n"))).is_empty
    assert table_edit(of_database(first, second), database("d", names=("n",))).added == database(
        "d.3", names=("n",), successor=True
    )
    assert table_edit(of_database(first), database("d", names=("m",), table="other")).refused
    assert "is ingested as table d still" in table_edit(of_database(second), database("e", table="d")).refused


def test_a_table_of_postgres_goes_once_the_next_one_has_rows() -> None:
    """A reader of the name then finds some; both go where the spec names neither."""
    now = of_database(*database("d", "d.2", "d.3", columns=COLUMNS).tables)
    first, second, _ = now.tables

    def gone(removed: tuple[IngestedTable, ...], read: str, *begun: str) -> list[str]:
        found = edits.removable(now, removed, read.split(), lambda table: table.table.name in begun)
        return [table.table.name for table in found]

    assert gone((first, second), "") == []
    assert gone((first, second), "", "d.2") == ["d"]
    assert gone((first, second), "", "d.3") == ["d", "d.2"]
    assert gone(now.tables, "") == ["d", "d.2", "d.3"]
    assert gone(now.tables, "d", "d.2") == ["d.2", "d.3"]


def test_a_table_of_postgres_evolves() -> None:
    (first,) = database("d", columns=COLUMNS).tables
    found = [SourceTable("d", (*COLUMNS, Column("m", BIGINT)))]
    assert with_more_columns(of_database(first), found, ["d"]) == [*database("d.2", successor=True).tables]
    second = replace(first, name="d.2", columns=found[0].columns, successor=True)
    assert with_more_columns(of_database(first, second), found, ["d"]) == []
    assert with_more_columns(of_database(first), [SourceTable("d", (Column("m", BIGINT),))], ["d"]) == []


def test_a_schema_that_was_found_elsewhere_is_no_other_table() -> None:
    """The plan has the text of a schema of which the spec names the subject or the Secret alone."""
    value, key = KafkaSchema(subject="t-value"), KafkaSchema(secret="schemas", key="key.avsc")
    topic = KafkaTable("t", "t", "avro", (), envelope="upsert", key_format="avro", schema=value, key_schema=key)
    found = replace(topic, schema=replace(value, text='"int"'), key_schema=replace(key, text='"long"'))
    stored = replace(INGESTION, source=KafkaSource(("k:1",), (found,)), tables=(ingested("t"),))

    assert table_edit(stored, KafkaSource(("k:1",), (topic,))).is_empty
    for schema in (replace(value, version=2), KafkaSchema(subject="u-value"), KafkaSchema(text='"long"')):
        edit = table_edit(stored, KafkaSource(("k:1",), (replace(topic, schema=schema, on_gap="skip"),)))
        assert (edit.added, edit.removed, edit.reason) == (None, (), "ColumnsNotAdded")
        assert "table t: records of avro without a frame do not say which schema" in edit.refused
    for other in (
        replace(topic, topic="u", schema=KafkaSchema(subject="u-value")),
        replace(topic, key_schema=KafkaSchema(text='"string"', secret="schemas", key="key.avsc")),
        replace(topic, key_schema=None),
    ):
        assert "as it was defined first" in table_edit(stored, KafkaSource(("k:1",), (other,))).refused


def test_how_a_kafka_table_goes_on_behind_a_gap_is_changed_in_place() -> None:
    """Beside other edits, and with the schema that was found; nothing else of a table is."""
    schema = KafkaSchema(subject="t-value")
    topic, other = KafkaTable("t", "t", "avro", (), schema=schema), KafkaTable("u", "u", "text", ())
    found = replace(topic, schema=replace(schema, text='"int"'))
    tables = (ingested("t"), ingested("t_dead_letter"), ingested("u"))
    stored = replace(INGESTION, source=KafkaSource(("k:1",), (found, other)), tables=tables)
    skips = replace(topic, on_gap="skip")

    edit = table_edit(stored, KafkaSource(("k:1",), (skips, other)))
    assert edit == TableEdit(changed=(replace(found, on_gap="skip"),))
    now = edited(stored, edit.removed, changed=edit.changed)
    assert now == replace(stored, source=KafkaSource(("k:1",), (replace(found, on_gap="skip"), other)))
    assert table_edit(now, KafkaSource(("k:1",), (skips, other))).is_empty
    assert table_edit(now, KafkaSource(("k:1",), (topic, other))).changed == (found,)

    edit = table_edit(stored, KafkaSource(("k:1",), (skips, KafkaTable("v", "v", "text", ()))))
    assert (len(edit.changed), names_of(edit)) == (1, ["u"])
    now = edited(stored, edit.removed, edit.added, (ingested("v"),), edit.changed)
    assert [(table.name, table.on_gap) for table in now.source.tables] == [("t", "skip"), ("v", "stop")]

    edit = table_edit(stored, KafkaSource(("k:1",), (replace(skips, topic="u"), other)))
    assert (edit.changed, "table t is ingested as it was defined first" in edit.refused) == ((), True)


WRITTEN = WrittenTable("w", (Column("id", BIGINT, False), Column("n", BIGINT)), ("id",))


def written(*columns: Column, **options: object) -> WrittenSource:
    """Table `w` with further columns."""
    return WrittenSource((replace(WRITTEN, columns=(*WRITTEN.columns, *columns), **options),))  # type: ignore[arg-type]


def pinned_written(*tables: WrittenTable) -> IngestionDescription:
    return replace(
        INGESTION,
        source=WrittenSource(tables or (WRITTEN,)),
        tables=tuple(ingested(t.name) for t in tables or (WRITTEN,)),
    )


def test_columns_that_are_added_to_a_written_table_are_a_successor_with_its_rows() -> None:
    new = Column("vip", BIGINT)
    first = table_edit(pinned_written(), written(new))
    assert first.added == WrittenSource((replace(written(new).tables[0], name="w.2", added=("vip",)),))
    assert names_of(first) == []
    [second] = first.added.tables
    assert isinstance(second, WrittenTable)
    now = pinned_written(WRITTEN, second)
    assert names_of(table_edit(now, written(new))) == ["w"]
    again = table_edit(now, written(new, Column("b", DOUBLE)))
    assert again.added is not None
    assert [(t.name, t.added) for t in again.added.tables] == [("w.3", ("vip", "b"))]  # type: ignore[union-attr]


GENERATIONS = tuple(replace(WRITTEN, name=name) for name in ("w", "w.2", "w.3", "w.4", "x"))


@pytest.mark.parametrize(
    ("pinned_names", "removed", "read", "begun", "gone"),
    [
        ("w w.2", "w", "", "", ""),
        ("w w.2", "w", "", "w.2", "w"),
        ("w w.2", "w", "w", "w.2", ""),
        ("w w.2 w.3", "w w.2", "", "", ""),
        ("w w.2 w.3", "w w.2", "", "w.2", "w"),
        ("w w.2 w.3", "w w.2", "", "w.2 w.3", "w w.2"),
        ("w w.3", "w", "", "", ""),
        ("w.2 w w.4", "w w.2", "", "w.2", "w"),
        ("w w.2", "w w.2", "", "", "w w.2"),
        ("w w.2 x", "w w.2 x", "w.2", "", "x"),
        ("w w.2", "w w.2", "w.2", "w.2", "w"),
        ("w w.2 x", "w w.2 x", "w", "w.2", "x"),
        ("w w.2 w.3 x", "w w.2 w.3", "w", "w.2 w.3", "w.2"),
        ("w w.2 w.3 x", "w w.2 w.3", "w", "w.2", ""),
    ],
)
def test_a_written_table_goes_once_nothing_needs_it(
    pinned_names: str, removed: str, read: str, begun: str, gone: str
) -> None:
    """One that stays begins with its rows; and the last one is needed where the spec can name the table again."""
    known = {table.name: table for table in GENERATIONS}
    now = pinned_written(*(known[name] for name in pinned_names.split()))
    asked = [table for table in now.tables if table.table.name in removed.split()]
    found = edits.removable(now, asked, read.split(), lambda table: table.table.name in begun.split())
    assert sorted(table.table.name for table in found) == gone.split()


def test_no_columns_are_added_where_those_that_were_added_are_gone() -> None:
    """They would be NULL in rows that had values. The table as it was first may be named again."""
    now = replace(pinned_written(), removed=("w.2",))
    edit = table_edit(now, written(Column("vip", BIGINT)))
    assert (edit.added, edit.removed, edit.reason) == (None, (), "TableNameUsed")
    assert "columns were added to it before" in edit.refused
    assert table_edit(now, written()).is_empty


def test_a_table_with_the_name_of_dead_letters_does_not_go_with_another_one() -> None:
    now = pinned_written(WRITTEN, replace(WRITTEN, name="w_dead_letter"))
    edit = table_edit(now, WrittenSource((replace(WRITTEN, name="w_dead_letter"),)))
    assert names_of(edit) == ["w"]
    assert [t.table.name for t in edits.removable(now, now.tables, ["w_dead_letter"], lambda _: True)] == ["w"]


def test_another_order_of_a_written_tables_columns_is_no_edit() -> None:
    assert table_edit(pinned_written(), WrittenSource((replace(WRITTEN, columns=WRITTEN.columns[::-1]),))).is_empty


@pytest.mark.parametrize(
    ("wanted", "why"),
    [
        (written(Column("vip", BIGINT, False)), "table w: column vip is new and not nullable"),
        (
            replace(written(), tables=(replace(WRITTEN, columns=WRITTEN.columns[:1]),)),
            "column n is another one, or gone",
        ),
        (written(pointers=(Option("n", "/n"),)), "a jsonPointer of an earlier column is another one"),
    ],
)
def test_a_written_table_gets_no_other_columns_than_such_that_may_be_null(wanted: WrittenSource, why: str) -> None:
    edit = table_edit(pinned_written(), wanted)
    assert (edit.added, edit.removed, edit.reason) == (None, (), "ColumnsNotAdded")
    assert why in edit.refused


@pytest.mark.parametrize("other", [{"primary_key": ()}, {"append_only": True}, {"unknown_fields": "ignore"}])
def test_a_written_table_that_differs_in_more_is_refused(other: dict[str, object]) -> None:
    edit = table_edit(pinned_written(), written(Column("vip", BIGINT), **other))
    assert (edit.added, edit.removed, edit.reason) == (None, (), "TableNameUsed")


def test_what_nobody_checked_of_a_tables_rows_is_not_known_of_its_successor() -> None:
    """The first one was adopted."""
    now = SourceTable("w.2", (*WRITTEN.columns, Column("vip", BIGINT)), ((0,),), True)
    adopted = SourceTable("w", tuple(replace(c, nullable=True) for c in WRITTEN.columns))
    assert edits.with_rows_of(now, replace(now, name="w", columns=WRITTEN.columns)) == now
    found = edits.with_rows_of(now, adopted)
    assert (found.keys, found.monotonic, [c.nullable for c in found.columns]) == ((), False, [True] * 3)


def introspection(*names: str, **columns: object) -> IntrospectionSource:
    return IntrospectionSource(tuple(replace(IntrospectionTable(name, COLUMNS), **columns) for name in names))


def test_a_relation_that_is_added_again_is_another_table() -> None:
    """It has one name in the spec. One that is there keeps its columns, whatever a later version's are."""
    now = replace(INGESTION, source=introspection("a", "b"), tables=(ingested("a"), ingested("b")))
    later = (Column("m", BIGINT),)
    assert table_edit(now, introspection("b", "a", columns=later)).is_empty
    edit = table_edit(now, introspection("b", "c"))
    assert (names_of(edit), edit.added) == (["a"], introspection("c"))

    now = edited(now, edit.removed, edit.added, (ingested("c"),))
    edit = table_edit(now, introspection("a", "b", "c", columns=later))
    assert (edit.removed, edit.refused) == ((), "")
    assert edit.added == introspection("a.2", columns=later)
    now = edited(now, (), edit.added, (ingested("a.2"),))
    assert table_edit(now, introspection("a", "b", "c")).is_empty


def test_an_older_operator_removes_no_relation_that_it_does_not_know() -> None:
    """The spec names none: those of a newer operator stay, and those that were removed by hand are removed."""
    now = replace(INGESTION, source=introspection("a", "b.2"), tables=(ingested("a"), ingested("b.2")))
    assert names_of(table_edit(now, introspection("a"))) == ["b.2"]
    assert table_edit(now, with_unknown_relations(now, introspection("a"))).is_empty
    assert table_edit(now, with_unknown_relations(now, introspection("a", "c"))).added == introspection("c")
    assert with_unknown_relations(now, files("a")) == files("a")
