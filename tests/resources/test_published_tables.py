"""The tables of a DataSource that follows a whole publication: a function of its spec, of what is pinned, and of the
last look."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from tests.protocol.samples import INGESTION
from tests.resources.manifests import body
from tidemark_operator.planning import published_tables
from tidemark_operator.planning.published_tables import WholePublication, sought, upstream, with_published_tables
from tidemark_operator.planning.table_edit import edited, table_edit
from tidemark_operator.resources.manifest.data_source import DataSource
from tidemark_operator.resources.manifest.errors import ResourceError
from tidemark_protocol.ids import GlobalId, ShardId
from tidemark_protocol.plan.dataflow import ShardMetadata
from tidemark_protocol.plan.ingestion import (
    IngestedTable,
    IngestionDescription,
    PostgresSource,
    PostgresTable,
    PublicationTable,
    SourceTable,
)
from tidemark_protocol.types import BIGINT, Column

COLUMNS = (Column("n", BIGINT),)
SOURCE = PostgresSource("db", 5432, "d", "db", "p", (), all_tables=True)
A, B = PublicationTable("public", "a"), PublicationTable("public", "b")


def publication_of(*named: PostgresTable, excepted: tuple[tuple[str, str], ...] = ()) -> WholePublication:
    return WholePublication(replace(SOURCE, tables=named), frozenset(excepted))


def named(name: str, table: str = "", schema: str = "public", **more: object) -> PostgresTable:
    return replace(PostgresTable(name, schema, table or name), **more)


def ingested(table: PostgresTable) -> IngestedTable:
    shard = ShardMetadata(ShardId(f"u/{table.name}/v1"), f"/data/{table.name}/v1", COLUMNS)
    return IngestedTable(GlobalId(f"u/{table.name}"), SourceTable(table.name, COLUMNS), shard)


def pinned(*tables: PostgresTable, removed: tuple[str, ...] = ()) -> IngestionDescription:
    source = replace(SOURCE, tables=tuple(replace(t, columns=COLUMNS) for t in tables), all_tables=False)
    return replace(INGESTION, source=source, tables=tuple(map(ingested, tables)), removed=removed)


def test_a_manifest_names_tables_or_asks_for_all() -> None:
    database = {"host": "db", "database": "d", "secret": "db", "publication": "p"}

    def parsed(**spec: object) -> DataSource:
        return DataSource.parse(body("DataSource", {"instance": "default", "postgres": {**database, **spec}}, "s"))

    every = parsed(allTables=True, exceptTables=[{"table": "a"}, {"schema": "s", "table": "b"}])
    assert every.source == SOURCE
    assert every.excepted == {("public", "a"), ("s", "b")}
    with pytest.raises(ResourceError, match="must name a table, unless allTables is true"):
        parsed()
    with pytest.raises(ResourceError, match=r"must not have table public\.a of tables"):
        parsed(allTables=True, tables=[{"name": "t", "table": "a"}], exceptTables=[{"table": "a"}])


def test_published_tables_have_their_names_upstream() -> None:
    """Tables of other schemas have the schema's name before theirs; SQL compares names without case."""
    found = (A, PublicationTable("sales", "Orders"), PublicationTable("public", "Order_Items"))
    now = with_published_tables(publication_of(), None, found)
    assert now.source == replace(
        SOURCE,
        tables=(named("a"), named("sales_orders", "Orders", "sales"), named("order_items", "Order_Items")),
        all_tables=False,
    )
    assert (now.left_out, now.columns_left_out) == ((), ())


@pytest.mark.parametrize(
    ("found", "left_out"),
    [
        (PublicationTable("public", "Odd Name"), "public.Odd Name: TableNameUnusable: 'odd name' is no name"),
        (PublicationTable("public", "_hidden"), "public._hidden: TableNameUnusable"),
        (PublicationTable("s" * 40, "t" * 40), f"{'s' * 40}.{'t' * 40}: TableNameUnusable"),
        (PublicationTable("public", "A"), "public.A: TableNameUsed: table a is public.a"),
        (PublicationTable("public", "b", refused="ReplicaIdentity: none"), "public.b: ReplicaIdentity: none"),
    ],
)
def test_a_table_that_cannot_be_followed_is_told_and_others_go_on(found: PublicationTable, left_out: str) -> None:
    now = with_published_tables(publication_of(), pinned(named("a")), (found, PublicationTable("public", "c")))
    assert now.left_out[0].startswith(left_out)
    assert len(now.left_out) == 1
    assert [table.name for table in now.source.tables] == ["a", "c"]


def test_tables_that_would_have_one_name_are_named_by_somebody() -> None:
    """Neither takes the name by chance; one that has it keeps it."""
    clash = (PublicationTable("public", "sales_orders"), PublicationTable("sales", "orders"))
    now = with_published_tables(publication_of(), None, clash)
    assert now.source.tables == ()
    assert [text.partition(":")[0] for text in now.left_out] == ["public.sales_orders", "sales.orders"]
    first = with_published_tables(publication_of(), None, clash[:1])
    later = with_published_tables(publication_of(), pinned(*first.source.tables), clash)
    assert later.source == first.source
    assert later.left_out == (
        "sales.orders: TableNameUsed: table sales_orders is public.sales_orders: name it in tables",
    )
    named_once = with_published_tables(
        publication_of(named("o", "orders", "sales")), pinned(*first.source.tables), clash
    )
    assert [table.name for table in named_once.source.tables] == ["o", "sales_orders"]
    assert named_once.left_out == ()


def test_a_table_that_left_the_publication_stays() -> None:
    """A dropped table does the same: the replica says why it goes no further. Only the spec takes it out."""
    before = pinned(named("a"), named("b"))
    assert table_edit(before, with_published_tables(publication_of(), before, (A,)).source).is_empty
    assert table_edit(before, with_published_tables(publication_of(), before, ()).source).is_empty
    now = with_published_tables(publication_of(excepted=(("public", "b"),)), before, (A, B))
    assert [table.table.name for table in table_edit(before, now.source).removed] == ["b"]


def test_columns_that_cannot_be_followed_are_left_out_by_name() -> None:
    """The choice is pinned; while it is, the table is looked at again, to tell of it."""
    found = PublicationTable("public", "a", ("n",), ("total (column total is generated)",))
    now = with_published_tables(publication_of(), None, (found,))
    assert now.source.tables == (named("a", names=("n",)),)
    assert now.columns_left_out == ("public.a without total (column total is generated)",)
    before = pinned(*now.source.tables)
    assert table_edit(before, with_published_tables(publication_of(), before, (found,)).source).is_empty
    assert sought(publication_of(), before).tables == ()
    assert [upstream(table) for table in sought(publication_of(), pinned(named("a"))).tables] == [("public", "a")]


def test_a_followed_table_is_not_told_of_as_left_out() -> None:
    """It is looked at again for its columns. Its own condition tells what is wrong with it."""
    before = pinned(named("a", names=("n",)))
    refused = PublicationTable("public", "a", refused="ReplicaIdentity: no key")
    now = with_published_tables(publication_of(), before, (refused,))
    assert now.left_out == ()
    assert table_edit(before, now.source).is_empty


def test_an_entry_of_the_spec_holds_for_its_table() -> None:
    """It may have a name and columns of its own, and keeps what is followed under its name."""
    entry = named("orders", "a", names=("n",))
    now = with_published_tables(publication_of(entry), None, (A, B))
    assert now.source.tables == (entry, named("b"))
    before = pinned(entry, named("b"))
    assert table_edit(before, with_published_tables(publication_of(), before, (A, B)).source).is_empty
    other = with_published_tables(publication_of(named("c", "b")), before, (A, B))
    edit = table_edit(before, other.source)
    assert "public.b is ingested as table b still" in edit.refused
    assert [table.table.name for table in edit.removed] == ["b"]


def test_a_successor_stands_for_its_table() -> None:
    """A table that got columns while the spec named it is followed as it is, with the earlier one until that goes."""
    before = pinned(named("a"), named("a.2", "a", successor=True))
    now = with_published_tables(publication_of(), before, (A,))
    assert [table.name for table in now.source.tables] == ["a"]
    edit = table_edit(before, now.source)
    assert (edit.added, [table.table.name for table in edit.removed]) == (None, ["a"])


def test_a_table_that_was_removed_may_come_again() -> None:
    """From all tables to some, and back: the bindings may still name the first `b`."""
    before = pinned(named("a"), named("b"))
    some = edited(before, table_edit(before, replace(SOURCE, tables=(named("a"),), all_tables=False)).removed)
    assert some.removed == ("b",)
    back = after(some, publication_of(), (A, B))
    assert [table.table.name for table in back.tables] == ["a", "b.2"]
    assert after(back, publication_of(), (A, B)) == back


def test_the_number_of_tables_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(published_tables, "MAX_TABLES", 3)
    now = with_published_tables(publication_of(named("z")), pinned(named("a")), (B, PublicationTable("public", "c")), 7)
    assert [table.name for table in now.source.tables] == ["z", "a", "b"]
    assert now.left_out == (
        "7 more tables were not looked at: name those that are not wanted in exceptTables",
        "public.c: TooManyTables: a DataSource has at most 3",
    )


@pytest.mark.parametrize("seed", range(40))
def test_histories_of_publications_and_specs(seed: int) -> None:
    """After each step, whatever was looked at before and whenever the operator died: a table keeps its name while the
    spec wants it; no name means two tables; each published table is followed, or told of, or excepted; the same look
    changes nothing twice; no look takes a table out."""
    draw = random.Random(seed)
    pairs = [(schema, name) for schema in ("public", "s", "s_t") for name in ("a", "A", "b", "t_a", "s_a", "_x")]
    before, names, wanted = pinned(named("first", "first")), dict[tuple[str, str], str](), publication_of()
    for _ in range(30):
        if draw.random() < 0.3:
            entries = [named(f"n{pairs.index(pair)}", pair[1], pair[0]) for pair in draw.sample(pairs, 2)]
            excepted = tuple(set(draw.sample(pairs, 2)) - {upstream(entry) for entry in entries})
            wanted = publication_of(*entries[: draw.randrange(3)], excepted=excepted)
        reasons = ("", "", "", "ReplicaIdentity: none")
        found = tuple(PublicationTable(*pair, refused=draw.choice(reasons)) for pair in draw.sample(pairs, 6))
        now = with_published_tables(wanted, before, found)
        assert len({table.name for table in now.source.tables}) == len(now.source.tables)
        assert len({upstream(table) for table in now.source.tables}) == len(now.source.tables)
        edit = table_edit(before, now.source, now.repeated)
        kept = {upstream(table) for table in now.source.tables}
        gone = {each.table.name for each in edit.removed}
        assert isinstance(before.source, PostgresSource)
        entries_now = {upstream(table) for table in wanted.source.tables}
        for table in before.source.tables:
            if table.name in gone:
                assert upstream(table) in wanted.excepted | entries_now
        told = {text.partition(": ")[0] for text in now.left_out}
        for each in found:
            pair = (each.schema, each.table)
            is_pinned = pair in {upstream(table) for table in before.source.tables}
            assert pair in kept | wanted.excepted or is_pinned or f"{each.schema}.{each.table}" in told
        for _ in range(2):  # a table that gets another name goes first
            before = after(before, wanted, found)
        assert isinstance(before.source, PostgresSource)
        stored_names = [table.name for table in before.source.tables]
        assert len(set(stored_names)) == len(stored_names)
        assert not set(stored_names) & set(before.removed)
        names = {pair: name for pair, name in names.items() if pair in {upstream(t) for t in before.source.tables}}
        for table in before.source.tables:
            if upstream(table) not in entries_now:
                assert names.setdefault(upstream(table), table.name) == table.name
            names[upstream(table)] = table.name
        assert after(before, wanted, found) == before


def after(
    before: IngestionDescription, wanted: WholePublication, published: tuple[PublicationTable, ...]
) -> IngestionDescription:
    """The next revision, once replicas have inspected the added tables, while nobody reads the removed ones."""
    now = with_published_tables(wanted, before, published)
    edit = table_edit(before, now.source, now.repeated)
    added = edit.added.tables if isinstance(edit.added, PostgresSource) else ()
    source = replace(now.source, tables=tuple(replace(table, columns=COLUMNS) for table in added))
    return edited(before, edit.removed, source, tuple(map(ingested, added)))
