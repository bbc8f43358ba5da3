"""The difference between the tables that a DataSource has and those that its spec names.

    spec:  a, c         pinned: a, b         ►  c is added, b is removed
    spec:  b again      once removed: b      ►  refused: the bindings may still name the first b, or its dead letters
    spec:  d(x, y)      pinned: d(x)         ►  d.2(x, y) is added, d is removed (`successors`; tables of Delta,
                                                PostgreSQL, Kafka and files, and written ones: there d.2 begins with the
                                                rows of d, so d is removed after that)
    spec:  r again      once removed: r      ►  r.2 is added (relations of introspection, and tables of a publication
                                                that is followed as a whole: one name means one relation, one table)
    spec:  k, onGap: skip   pinned: k, stop  ►  k is changed in place (Kafka tables alone)

A table of a spec may have a second one beside it, for its dead letters, which goes with it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from tidemark_operator.planning.schema_columns import ColumnDifference
from tidemark_protocol.plan.ingestion import (
    DeltaSource,
    DeltaTable,
    FilesSource,
    FilesTable,
    GeneratedSource,
    IngestedTable,
    IngestionDescription,
    IntrospectionSource,
    IntrospectionTable,
    PostgresSource,
    PostgresTable,
    SourceSpec,
    SourceTable,
    WrittenSource,
    WrittenTable,
)
from tidemark_protocol.plan.kafka import KafkaSource, KafkaTable, pinned_as
from tidemark_protocol.plan.successors import (
    newest,
    number,
    spec_name,
    successor,
    without_dead_letters,
)

S = TypeVar("S", bound=SourceSpec)
EvolvingSource = DeltaSource | PostgresSource | FilesSource | KafkaSource
"""Sources whose tables may get columns upstream, and then successors that have them."""
MAX_TABLES = 128
"""Tables that one DataSource has at a time, with dead letters, and with tables that are read still: so many are in its
status."""
COLUMNS_NOT_ADDED = "ColumnsNotAdded"
MAX_REMOVED = 1000
"""Names that one DataSource remembers."""


@dataclass(frozen=True)
class TableEdit:
    """`added`: the source with the new tables alone, None without any. `removed`: tables that the spec does not name.
    `changed`: pinned tables with the `onGap` that the spec has now. `refused`: why a table of the spec is not added,
    empty if all are; `reason`: the condition's reason for that."""

    added: SourceSpec | None = None
    removed: tuple[IngestedTable, ...] = ()
    changed: tuple[KafkaTable, ...] = ()
    refused: str = ""
    reason: str = "TableNameUsed"

    @property
    def is_empty(self) -> bool:
        return self == TableEdit()

    @property
    def names(self) -> frozenset[str]:
        """The names in the spec of the tables that it adds, also of those that take the place of earlier ones."""
        if self.added is None or isinstance(self.added, GeneratedSource):
            return frozenset()
        return frozenset(spec_name(table.name) for table in self.added.tables)


def table_edit(pinned: IngestionDescription, wanted: SourceSpec, repeated: Collection[str] = frozenset()) -> TableEdit:
    """The tables that the spec changes. `wanted`: the source of the spec, its columns as declared. `repeated`: names
    of tables that may be added though tables of these names were removed."""
    if isinstance(wanted, GeneratedSource) or isinstance(pinned.source, GeneratedSource):
        return TableEdit()
    known: dict[str, Any] = {table.name: table for table in pinned.source.tables}
    last, every = newest(known), [*known, *pinned.removed]
    added: list[Any] = []
    changed: list[KafkaTable] = []
    refused, reason = "", TableEdit.reason
    for table in wanted.tables:
        name = last.get(table.name, table.name)
        if (grown := _with_added_columns(table, known.get(name))) is not None:
            changed += _with_on_gap(table, pinned)
            if grown.refused:
                refused, reason = grown.refused, COLUMNS_NOT_ADDED
            elif isinstance(grown.table, WrittenTable) and number(name) < number(newest(every)[table.name]):
                refused, reason = _later_gone(table.name), TableEdit.reason
            elif grown.table is not None:
                added.append(_known_to_replicas(wanted, replace(grown.table, name=successor(table.name, every))))
            del known[name]  # it is kept until its successor is there
            continue
        if _takes_other_columns(table, known.get(name)):
            added.append(_succeeding(table, every))
            del known[name]
            continue
        before = known.pop(name, None)
        if before is None and (isinstance(table, IntrospectionTable) or table.name in repeated):
            added.append(replace(table, name=successor(table.name, every)) if table.name in every else table)
            continue
        taken = _followed_as(table, pinned.source.tables) if before is None else ""
        if before is None and table.name not in pinned.removed and not taken:
            added.append(table)
        elif taken:
            refused, reason = taken, TableEdit.reason
        elif before is None or not _is_same(table, before):
            refused, reason = _another(table, before), TableEdit.reason
        else:
            changed += _with_on_gap(table, pinned)
    removed = tuple(table for table in pinned.tables if named_in(pinned, table) in known)
    if known and len(pinned.removed) + len(known) > MAX_REMOVED:
        refused, reason = f"more than {MAX_REMOVED} tables were removed: make another DataSource", TableEdit.reason
        removed = ()
    return TableEdit(with_tables(wanted, added) if added else None, removed, tuple(changed), refused, reason)


def with_unknown_relations(pinned: IngestionDescription, wanted: SourceSpec) -> SourceSpec:
    """The spec, with the relations that it names by asking for all: those of this operator, and those that a newer one
    has pinned. An operator that is rolled back removes no tables."""
    if not isinstance(pinned.source, IntrospectionSource) or not isinstance(wanted, IntrospectionSource):
        return wanted
    known = {table.name for table in wanted.tables}
    later = {spec_name(t.name): t for t in pinned.source.tables if spec_name(t.name) not in known}
    return replace(wanted, tables=(*wanted.tables, *(replace(table, name=name) for name, table in later.items())))


def named_in(pinned: IngestionDescription, table: IngestedTable) -> str:
    """The table of the source that this one is, or whose dead letters it has."""
    assert not isinstance(pinned.source, GeneratedSource)
    name = table.table.name
    return name if any(each.name == name for each in pinned.source.tables) else without_dead_letters(name)


def edited(
    pinned: IngestionDescription,
    removed: Iterable[IngestedTable],
    source: SourceSpec | None = None,
    added: tuple[IngestedTable, ...] = (),
    changed: Iterable[KafkaTable] = (),
) -> IngestionDescription:
    """The ingestion without the removed tables, with added ones, and with `changed` in place of tables of the same
    names. `source`: of the added tables, with columns."""
    assert not isinstance(pinned.source, GeneratedSource)
    gone, now = {table.table.name for table in removed}, {table.name: table for table in changed}
    kept: tuple[Any, ...] = tuple(now.get(one.name, one) for one in pinned.source.tables if one.name not in gone)
    new: tuple[Any, ...] = () if source is None or isinstance(source, GeneratedSource) else source.tables
    names = tuple(table.name for table in pinned.source.tables if table.name in gone)
    return replace(
        pinned,
        source=with_tables(pinned.source, (*kept, *new)),
        tables=(*(table for table in pinned.tables if table.table.name not in gone), *added),
        removed=(*pinned.removed, *names),
    )


def with_tables(source: S, tables: Iterable[Any]) -> S:
    """The source with these tables, which are of its kind."""
    of_any_kind: Any = source
    changed: S = replace(of_any_kind, tables=tuple(tables))
    return changed


def _followed_as(table: Any, pinned: Iterable[Any]) -> str:
    """The reason why a table of PostgreSQL cannot be added; empty if it can be. One name in the spec follows it."""
    if not isinstance(table, PostgresTable):
        return ""
    for other in pinned:
        if (other.schema, other.table) == (table.schema, table.table):
            return (
                f"table {table.name}: {table.schema}.{table.table} is ingested as table {spec_name(other.name)} still;"
                " another name is possible once that one is gone"
            )
    return ""


def _another(table: Any, pinned: Any) -> str:
    """The reason why the table of the spec is not the pinned one of its name. `pinned`: None where that one was
    removed."""
    if pinned is None:
        why = "was removed, and a table of that name is another one: give it another name, or make another DataSource"
        return f"table {table.name} {why}"
    why = f"table {table.name} is ingested as it was defined first, which cannot be edited"
    return f"{why}: take the edit back, or give the table another name"


def _with_on_gap(table: Any, pinned: IngestionDescription) -> list[KafkaTable]:
    """The pinned tables of this one's name, those with another `onGap` than it has now."""
    if not isinstance(table, KafkaTable) or not isinstance(pinned.source, KafkaSource):
        return []
    same = (each for each in pinned.source.tables if spec_name(each.name) == table.name)
    return [replace(each, on_gap=table.on_gap) for each in same if each.on_gap != table.on_gap]


def _known_to_replicas(source: SourceSpec, table: Any) -> Any:
    """The successor, marked where it follows transactions: replicas of earlier releases would bind none, as they would
    wait for it."""
    follows = isinstance(source, KafkaSource) and bool(source.transactions) and table.envelope == "debezium"
    return replace(table, successor=True) if follows else table


def _is_same(table: Any, pinned: Any) -> bool:
    """Whether the table of the spec is the pinned one, but for what can be changed in place."""
    if isinstance(table, KafkaTable) and isinstance(pinned, KafkaTable):
        pinned = replace(pinned, on_gap=table.on_gap)
    return bool(_with_columns_of(table, pinned) == pinned)


def _with_columns_of(table: Any, pinned: Any) -> Any:
    """The table with the columns that were found when it was pinned, where it declares none; of a table of Delta or
    PostgreSQL also where it declares the same ones in another order: they are a set. A relation keeps those of its
    pinning."""
    named = _as_pinned(table, pinned)
    if _names_columns(named, pinned) and set(named.names) == set(pinned.names):
        named = _as_pinned(named, pinned, "names")
    if isinstance(table, IntrospectionTable) or getattr(table, "columns", ()) is None:
        named = _as_pinned(named, pinned, "columns")
    return _with_schemas_of(named, pinned) if isinstance(table, KafkaTable) and type(table) is type(pinned) else named


def _as_pinned(table: Any, pinned: Any, *more: str) -> Any:
    """The table of the spec with the name, the added columns and the mark of a successor that the pinned one has, and
    with `more` of its fields."""
    fields = [field for field in ("name", "added", "successor", *more) if hasattr(table, field)]
    return replace(table, **{field: getattr(pinned, field) for field in fields if hasattr(pinned, field)})


def _takes_other_columns(table: Any, pinned: Any) -> bool:
    """Whether the spec differs from what is pinned in the columns that are taken of a table of Delta or PostgreSQL, and
    in nothing else."""
    if not _names_columns(table, pinned) or set(table.names) == set(pinned.names):
        return False
    return bool(_as_pinned(table, pinned, "columns", "names") == pinned)


def _names_columns(table: Any, pinned: Any) -> bool:
    return isinstance(table, DeltaTable | PostgresTable) and type(table) is type(pinned)


def _succeeding(table: Any, known: Iterable[str]) -> Any:
    """The table of the spec as the next one of its name. `known`: the names of all tables so far."""
    named = replace(table, name=successor(table.name, known))
    return replace(named, successor=True) if isinstance(named, PostgresTable) else named


@dataclass(frozen=True)
class _AddedColumns:
    """A table with further columns, None where it gets none; or why it does not get them."""

    table: WrittenTable | FilesTable | KafkaTable | None = None
    refused: str = ""


def _with_added_columns(table: Any, pinned: Any) -> _AddedColumns | None:
    """The columns that the spec adds to a written table, to a table of files, or to one of records; None where it is
    another kind of table, or differs in something else. The order of the columns is no difference: rows have them by
    name."""
    if not isinstance(table, WrittenTable | FilesTable | KafkaTable) or type(table) is not type(pinned):
        return None
    if isinstance(table, KafkaTable) and isinstance(pinned, KafkaTable) and table.format != "json":
        return _with_other_schema(table, pinned)
    if table.columns is None:
        return None
    if not _is_same(_as_pinned(table, pinned, "columns", "pointers"), pinned):
        return None
    before, now = ({c.name: c for c in columns or ()} for columns in (pinned.columns, table.columns))
    new = [column for column in table.columns if column.name not in before]
    if what := _not_in_csv(table, pinned):
        pass
    elif changed := [name for name, column in before.items() if now.get(name) != column]:
        what = f"column {changed[0]} is another one, or gone: its rows have it as it was; columns can only be added"
    elif isinstance(table, WrittenTable) and _pointers(table, before) != _pointers(pinned, before):
        what = "a jsonPointer of an earlier column is another one; columns can only be added"
    elif required := [column.name for column in new if not column.nullable]:
        what = f"column {required[0]} is new and not nullable, but the rows that are there have no value for it"
    else:
        names = tuple(column.name for column in new)
        if isinstance(table, KafkaTable):
            table = _with_schemas_of(table, pinned)  # keys are found as before
        return _AddedColumns(replace(table, added=(*pinned.added, *names)) if names else None)
    return _AddedColumns(refused=f"table {table.name}: {what}")


def _with_other_schema(table: KafkaTable, pinned: KafkaTable) -> _AddedColumns | None:
    """The table with the schema that the spec has for its values now; None where that is the pinned one, or the table
    differs in something else. Its columns are known once a replica has looked (`schema_columns`)."""
    same = _with_schemas_of(table, pinned)
    if same.schema == pinned.schema or not _is_same(replace(table, schema=pinned.schema), pinned):
        return None
    if table.format == "avro" and not table.framed:
        why = "records of avro without a frame do not say which schema they were written with, so it gets no columns"
        mend = "take the edit of the schema back, or give the table another name"
        return _AddedColumns(refused=f"table {table.name}: {why}; {mend}")
    return _AddedColumns(replace(same, schema=table.schema, successor=True))


def _not_in_csv(table: Any, pinned: Any) -> str:
    """The reason why files of csv cannot be read with these columns; empty if they can be."""
    if not isinstance(table, FilesTable) or table.format != "csv" or table.columns == pinned.columns:
        return ""
    if not any(option.name == "header" and option.value == "true" for option in table.options):
        return (
            "columns of csv without a header are known by their places, so none is added; give the table another name"
        )
    names = [column.name for column in pinned.columns]
    if [column.name for column in table.columns or () if column.name in names] != names:
        return "the columns of csv stay in their order, as its headers have them; columns can only be added"
    return ""


def _with_schemas_of(table: KafkaTable, pinned: Any) -> KafkaTable:
    """The table with the schemas that were found when it was pinned."""
    text, key_text = (each.text if each is not None else "" for each in (pinned.schema, pinned.key_schema))
    return replace(table, schema=pinned_as(table.schema, text), key_schema=pinned_as(table.key_schema, key_text))


def _later_gone(name: str) -> str:
    return (
        f"table {name}: columns were added to it before, and what they had went when the table was removed from the "
        "spec, so none is added: give the table another name, or make another DataSource"
    )


def _pointers(table: Any, names: Collection[str]) -> dict[str, str]:
    return {each.name: each.value for each in table.pointers if each.name in names}


def with_rows_of(table: SourceTable, before: SourceTable) -> SourceTable:
    """A table that begins with the rows of the one before it: nobody has checked the rows of an adopted table."""
    nullable = {column.name: column.nullable for column in before.columns}
    columns = tuple(replace(c, nullable=c.nullable or nullable.get(c.name, True)) for c in table.columns)
    keys = table.keys if before.keys else ()
    return replace(table, columns=columns, keys=keys, monotonic=table.monotonic and before.monotonic)


def removable(
    pinned: IngestionDescription,
    removed: Iterable[IngestedTable],
    read: Collection[str],
    has_begun: Callable[[IngestedTable], bool],
) -> tuple[IngestedTable, ...]:
    """The tables of `removed`, which the spec does not name, that nobody reads and nothing needs. `read`: names of
    tables with readers, or that may have some. A written table is needed by the next one of its name as long as that
    one stays and, as far as is known, has not begun with its rows; a table of PostgreSQL, Kafka or files as long, so
    that one has rows. The last written one is needed by the name, which the spec may name again, as long as one before
    it is read. A table and that of its dead letters go together.
    """
    idle = [table for table in removed if named_in(pinned, table) not in read]
    if not isinstance(pinned.source, WrittenSource | PostgresSource | KafkaSource | FilesSource):
        return tuple(idle)
    names = {table.table.name for table in pinned.tables}
    last = newest(names) if isinstance(pinned.source, WrittenSource) else {}
    stay = names - {table.table.name for table in idle} | {last[one] for one in map(spec_name, read) if one in last}
    for table in sorted(idle, key=lambda each: number(each.table.name), reverse=True):
        later = _next(table, pinned)
        if later is not None and later.table.name in stay and not has_begun(later):
            stay.add(table.table.name)
    staying = {named_in(pinned, table) for table in idle if table.table.name in stay}
    return tuple(table for table in idle if named_in(pinned, table) not in staying)


def _next(table: IngestedTable, pinned: IngestionDescription) -> IngestedTable | None:
    """The next pinned table of this one's name in the spec; None if there is none."""
    name = table.table.name
    same = (each for each in pinned.tables if spec_name(each.table.name) == spec_name(name))
    later = [each for each in same if number(each.table.name) > number(name)]
    return min(later, key=lambda each: number(each.table.name), default=None)


def evolving_tables(pinned: IngestionDescription, source: S, evolving: Collection[str]) -> S:
    """The source with the pinned tables in `evolving`, as the spec has them: their columns, and schemas of values, are
    looked for anew; schemas of keys are the pinned ones."""
    assert isinstance(source, EvolvingSource)
    assert isinstance(pinned.source, EvolvingSource)
    last = newest(table.name for table in pinned.source.tables)
    tables: list[Any] = [table for table in source.tables if table.name in evolving and table.name in last]
    if isinstance(pinned.source, KafkaSource):
        known = {table.name: table for table in pinned.source.tables}
        tables = [replace(t, key_schema=_with_schemas_of(t, known[last[t.name]]).key_schema) for t in tables]
    return with_tables(source, tables)


def with_more_columns(
    pinned: IngestionDescription, found: Iterable[SourceTable], evolving: Collection[str]
) -> list[Any]:
    """Successors of the tables in `evolving` (names of the spec) that have all of their columns, as they were, and
    further ones. `found`: the tables as they are now, by names of the spec."""
    assert isinstance(pinned.source, EvolvingSource)
    known: dict[str, Any] = {table.name: table for table in pinned.source.tables}
    last, every, now = newest(known), [*known, *pinned.removed], {table.name: table for table in found}
    added = []
    for name in evolving:
        before, columns = known.get(last.get(name, "")), now[name].columns if name in now else ()
        if isinstance(before, KafkaTable) and before.schema is not None and columns:
            difference = ColumnDifference.of(pinned, now[name])
            if difference.more and not difference.other:
                schema = replace(before.schema, text=now[name].schema)
                added.append(replace(before, name=successor(name, every), schema=schema, successor=True))
            continue
        if before is None or not set(before.columns or ()) < set(columns):
            continue
        if isinstance(before, FilesTable) and before.columns is not None:
            more = tuple(column for column in columns if column not in before.columns)
            names = (*before.added, *(column.name for column in more))
            before = replace(before, columns=(*before.columns, *more), added=names)
        else:
            before = replace(before, columns=None)
        added.append(_succeeding(replace(before, name=name), every))
    return added
