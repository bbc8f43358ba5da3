"""A table that a sink keeps has, after each delivery, exactly the rows of its view at the time that the progress row
says, as a reader with a connection of its own sees them."""

from __future__ import annotations

import random
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from tests.postgres.databases import Database, connect
from tests.postgres_sink.views import COLUMNS, View, progress_and_rows, sink_to
from tests.tidy.checkout import ROOT
from tidemark_persist import DIFF, ERROR, TIME
from tidemark_protocol.ids import MAX_TIME, Time
from tidemark_protocol.types import Column, SqlType
from tidemark_replica.sinks.destinations.destination import DestinationFailed, DestinationStopped, SinkViewInError
from tidemark_replica.sinks.postgres import delivery
from tidemark_replica.sinks.postgres.progress import WrittenByLater
from tidemark_replica.values.arrow_types import arrow_type

pytestmark = pytest.mark.postgres
A, B, C = (1, "a", "x", 1.0), (1, "a", "y", 2.0), (2, "a", None, None)


@pytest.mark.parametrize("seed", range(6))
def test_each_delivery_has_the_rows_of_its_time(
    database: Database, tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Random histories: several times at once, times without changes, compacted history, and deliveries of all contents
    in several pieces."""
    view, sink, draw = View(tmp_path, seed=seed), sink_to(database), random.Random(seed)
    monkeypatch.setattr(delivery, "SHARE_BYTES", draw.choice([200, 1 << 20]))
    monkeypatch.setattr(delivery, "IDLE_MS", draw.choice([0, 5]))
    for _ in range(12):
        time = view.step(draw.choice([0, 1, 5, 40]), draw.choice([1, 3]))
        if draw.random() < 0.2:
            view.forget_before(time)
        reached = view.deliver(sink)
        found, rows = progress_and_rows(database, sink)
        assert (found, rows) == (reached.time, view.rows(reached.time))
        assert view.rows(reached.checked) == view.rows()


def test_the_time_of_its_contents_is_told_and_of_no_others(database: Database, tmp_path: Path) -> None:
    """Nothing is created by asking."""
    view, sink = View(tmp_path), sink_to(database)
    assert view.destination(sink).progress_time("u1") is None
    assert database.value("select to_regclass('tidemark_sinks')") is None
    last = view.step(5, 3)
    view.deliver(sink)
    assert view.destination(sink).progress_time("u1") == last
    assert view.destination(sink).progress_time("u1@7") is None
    assert view.destination(sink_to(database, "another")).progress_time("u1") is None


def test_changes_alone_are_written(database: Database, tmp_path: Path) -> None:
    """The rows that stay are not written again, also where all contents are compared."""
    view, sink = View(tmp_path), sink_to(database)
    view.append([((n, "a", "x", 1.0), 0, 1) for n in range(50)])
    view.deliver(sink)
    written = "select count(distinct xmin::text) from kept"
    assert database.value(written) == 1
    view.append([((7, "a", "x", 1.0), 1, -1), ((7, "a", "y", 1.0), 1, 1)])
    assert view.deliver(sink).anew_because == ""
    assert database.value(written) == 2
    view.forget_before(view.append([((9, "a", "x", 1.0), 2, -1)]))
    assert "compacted" in view.deliver(sink).anew_because
    assert database.value(written) == 2
    assert progress_and_rows(database, sink)[1] == view.rows()


def test_an_earlier_or_equal_time_changes_nothing(database: Database, tmp_path: Path) -> None:
    view, sink = View(tmp_path), sink_to(database)
    times = [view.step(5) for _ in range(3)]
    view.deliver(sink, times[2])
    before = database.value("select written_at from tidemark_sinks")
    for time in times:
        assert view.deliver(sink, time).time == times[2]
    assert database.value("select written_at from tidemark_sinks") == before


def test_replicas_that_deliver_at_once(database: Database, tmp_path: Path) -> None:
    """Each of them may be first, second, or refused for now; the table is right whenever one is done."""
    view, sink = View(tmp_path), sink_to(database)
    for _ in range(4):
        view.step(30)
        with ThreadPoolExecutor(4) as pool:
            reached = list(pool.map(lambda _: view.deliver(sink).time, range(4)))
        assert max(reached) == view.upper - 1
        assert progress_and_rows(database, sink) == (view.upper - 1, view.rows())


@pytest.mark.parametrize(
    ("updates", "reason"),
    [
        ([(B, 1)], "KeyNotUnique"),
        ([(C, 2)], "KeyNotUnique"),
        ([(C, 1), ((2, "a", "z", 0.0), 1)], "KeyNotUnique"),
        ([((None, "a", "x", 0.0), 1)], "KeyIsNull"),
    ],
)
@pytest.mark.parametrize("whole", [False, True])
def test_a_key_that_is_none_stops_the_sink(
    database: Database, tmp_path: Path, updates: list[tuple[Any, int]], reason: str, whole: bool
) -> None:
    """The table keeps the last right rows, and goes on once the view is right again. `whole`: all contents are
    written."""
    view, sink = View(tmp_path), sink_to(database)
    view.deliver(sink, view.append([(A, 0, 1)]))
    time = view.append([(row, 1, diff) for row, diff in updates])
    if whole:
        view.forget_before(time)
    for _ in range(2):
        with pytest.raises(DestinationStopped) as stopped:
            view.deliver(sink)
        assert stopped.value.reason == reason
        assert progress_and_rows(database, sink) == (0, view.rows(0))
    now = view.upper
    view.append([*((row, now, -diff) for row, diff in updates), (C, now, 1)])
    assert view.deliver(sink).time == now
    assert progress_and_rows(database, sink) == (now, view.rows())


def test_a_view_in_error_changes_nothing(database: Database, tmp_path: Path) -> None:
    view, sink = View(tmp_path), sink_to(database)
    view.append([], errors=[("DIVIDE_BY_ZERO", 0, 1)])
    with pytest.raises(SinkViewInError, match=r"table public\.kept keeps"):
        view.deliver(sink)
    assert database.value("select to_regclass('kept')") is None
    view.append([(A, 1, 1)], errors=[("DIVIDE_BY_ZERO", 1, -1)])
    view.deliver(sink)
    view.append([(C, 2, 1)], errors=[("DIVIDE_BY_ZERO", 2, 1)])
    with pytest.raises(SinkViewInError):
        view.deliver(sink)
    assert progress_and_rows(database, sink) == (1, view.rows(1))
    view.append([], errors=[("DIVIDE_BY_ZERO", 3, -1)])
    view.deliver(sink)
    assert progress_and_rows(database, sink) == (3, view.rows())


def test_a_lower_term_and_an_earlier_dataflow_are_refused(database: Database, tmp_path: Path) -> None:
    view, sink = View(tmp_path), sink_to(database)
    view.step(5)
    view.deliver(sink, term=3)
    view.step(5)
    with pytest.raises(WrittenByLater, match="term 3"):
        view.deliver(sink, term=2)
    later = View(tmp_path, shard_id="u2", seed=1)
    later.step(5)
    later.deliver(sink, term=1, uid="other")
    assert progress_and_rows(database, sink) == (0, later.rows())
    with pytest.raises(DestinationStopped, match="another Dataflow"):
        view.deliver(sink, term=9)
    assert progress_and_rows(database, sink) == (0, later.rows())


def test_a_new_term_without_changes_fences_the_one_before(database: Database, tmp_path: Path) -> None:
    view, sink = View(tmp_path), sink_to(database)
    view.step(5)
    view.deliver(sink, term=1)
    view.step(0)
    view.deliver(sink, term=2)
    view.step(5)
    with pytest.raises(WrittenByLater):
        view.deliver(sink, term=1)


def test_rows_that_somebody_changed_are_written_again(database: Database, tmp_path: Path) -> None:
    """Where the view changes a row that is not as the sink wrote it, all contents are compared."""
    view, sink = View(tmp_path), sink_to(database)
    view.append([((n, "a", "x", 1.0), 0, 1) for n in range(9)])
    view.deliver(sink)
    for statement in ("delete from kept where k in (1, 5)", "update kept set name = 'z' where k in (2, 6)"):
        database.run(statement)
        n = 1 if "delete" in statement else 2
        row = (n, "a", "x", 1.0)
        view.append([(row, view.upper, -1)])
        assert "the table lacks" in view.deliver(sink).anew_because
        assert progress_and_rows(database, sink)[1] == view.rows()
    database.run("insert into kept values (77, 'a', 'mine', 1)")
    view.append([((77, "a", "x", 1.0), view.upper, 1)])
    assert view.deliver(sink).anew_because
    assert progress_and_rows(database, sink)[1] == view.rows()


def test_a_table_that_was_made_anew(database: Database, tmp_path: Path) -> None:
    """An empty one is filled; one with rows is refused, and so is one that no sink has written."""
    view, sink = View(tmp_path), sink_to(database)
    view.step(9)
    view.deliver(sink)
    definition = "create table kept (price double precision, name varchar, part text, k bigint, unique (k, part))"
    database.run("drop table kept", definition)
    view.deliver(sink, view.step(3))
    assert progress_and_rows(database, sink) == (view.upper - 1, view.rows())
    for name in ("kept", "mine"):
        database.run(f"drop table if exists {name}", definition.replace("kept", name))
        database.run(f"insert into {name} values (1, 'n', 'p', 1)")
        with pytest.raises(DestinationStopped) as stopped:
            view.deliver(sink_to(database, name), view.step(3))
        assert stopped.value.reason == "TableNotEmpty"
        assert database.value(f"select count(*) from {name}") == 1
    database.run("truncate kept")
    view.deliver(sink)
    assert progress_and_rows(database, sink) == (view.upper - 1, view.rows())


def test_a_table_of_another_view_is_refused(database: Database, tmp_path: Path) -> None:
    view = View(tmp_path)
    view.step(9)
    view.deliver(sink_to(database))
    with pytest.raises(DestinationStopped, match=r"view shop\.flow\.view") as stopped:
        view.deliver(sink_to(database, owner="shop.other.view"))
    assert stopped.value.reason == "TableOfAnother"


def test_a_view_that_never_delivered_claims_no_table(database: Database, tmp_path: Path) -> None:
    """Its table had rows, then it was emptied, and another view has it."""
    view = View(tmp_path)
    view.step(9)
    database.run("create table kept (k bigint, part text, name text, price float8, primary key (part, k))")
    database.run("insert into kept values (1, 'p')")
    with pytest.raises(DestinationStopped):
        view.deliver(sink_to(database, owner="shop.other.view"), uid="other")
    database.run("truncate kept")
    view.deliver(sink_to(database))
    assert progress_and_rows(database, sink_to(database)) == (0, view.rows())
    assert database.value("select owner || retired::text from tidemark_sinks") == "shop.flow.view{}"


@pytest.mark.parametrize(
    ("definition", "names"),
    [
        ("k bigint, part text, name text, primary key (part, k)", "no column price"),
        ("k integer, part text, name text, price float8, primary key (part, k)", "column k is of type integer"),
        ("k bigint, part text, name text, price float4, primary key (part, k)", "column price is of type real"),
        (
            "k bigint, part text, name varchar(9), price float8, primary key (part, k)",
            r"column name is .*varying\(9\)",
        ),
        ("k bigint, part text, name text, price float8, primary key (k)", "no unique index"),
        ("k bigint, part text, name text, price float8, unique (k, part, name)", "no unique index"),
        ("k bigint, part text, name text, price float8, unique (k, part) deferrable", "no unique index"),
    ],
)
def test_a_table_that_does_not_suit_is_refused_by_name(
    database: Database, tmp_path: Path, definition: str, names: str
) -> None:
    view = View(tmp_path)
    view.step(9)
    database.run(f"create table kept ({definition})")
    with pytest.raises(DestinationStopped, match=names) as stopped:
        view.deliver(sink_to(database))
    assert stopped.value.reason == "TableNotSuitable"
    assert database.value("select count(*) from kept") == 0


@pytest.mark.parametrize(
    ("statement", "names"),
    [
        ("create view kept as select 1", "no ordinary or partitioned"),
        ("create table kept (k int); create table heir () inherits (kept)", "inherit"),
        ("create unlogged table kept (k int)", "unlogged"),
        (
            "create table kept (k int) partition by list (k); create unlogged table p partition of kept default",
            "has such a partition",
        ),
    ],
)
def test_what_is_no_lasting_table_is_refused(database: Database, tmp_path: Path, statement: str, names: str) -> None:
    view = View(tmp_path)
    view.step(1)
    database.run(statement)
    with pytest.raises(DestinationStopped, match=names):
        view.deliver(sink_to(database))


def test_a_name_that_the_server_would_cut_off_is_refused(database: Database, tmp_path: Path) -> None:
    """A manifest has at most 63 characters, PostgreSQL 63 bytes."""
    view = View(tmp_path)
    view.step(1)
    with pytest.raises(DestinationStopped, match="63 bytes") as stopped:
        view.deliver(sink_to(database, "ü" * 40))
    assert stopped.value.reason == "TableNotSuitable"
    assert database.value("select count(*) from pg_class where relnamespace = 'public'::regnamespace") == 0


def test_columns_and_triggers_of_the_user_stay(database: Database, tmp_path: Path) -> None:
    """A partitioned table with a column of its own."""
    view, sink = View(tmp_path), sink_to(database)
    database.run(
        "create table kept (k bigint, part text, name text, price float8, mine int default 7, primary key (part, k))"
        " partition by list (part)",
        "create table kept_a partition of kept for values in ('a')",
        "create table kept_other partition of kept default",
    )
    for _ in range(4):
        view.step(20)
        view.deliver(sink)
        assert progress_and_rows(database, sink)[1] == view.rows()
    database.run("update kept set mine = 8")
    view.step(5)
    view.forget_before(view.upper - 1)
    view.deliver(sink)
    assert progress_and_rows(database, sink)[1] == view.rows()
    assert database.value("select count(*) from kept where mine = 8") > 0


def test_a_constraint_of_the_user_stops_the_sink_without_a_value(database: Database, tmp_path: Path) -> None:
    view, sink = View(tmp_path), sink_to(database)
    view.append([(A, 0, 1)])
    view.deliver(sink)
    database.run("alter table kept add constraint short check (length(name) < 5)")
    view.append([((5, "a", "a secret name", 1.0), 1, 1)])
    with pytest.raises(DestinationStopped, match="constraint short") as stopped:
        view.deliver(sink)
    assert stopped.value.reason == "ConstraintViolated"
    assert "secret" not in str(stopped.value)
    assert progress_and_rows(database, sink) == (0, view.rows(0))


def test_what_a_trigger_of_the_user_says_of_a_row_is_not_told(database: Database, tmp_path: Path) -> None:
    view, sink = View(tmp_path), sink_to(database)
    view.append([(A, 0, 1)])
    view.deliver(sink)
    raises = "begin raise exception 'no row of %', new.name; end"
    database.run(
        f"create function refuse() returns trigger language plpgsql as $${raises}$$",
        "create trigger refusal before insert on kept for each row execute function refuse()",
    )
    view.append([((5, "a", "a secret name", 1.0), 1, 1)])
    with pytest.raises(DestinationFailed, match="SQLSTATE P0001") as failed:
        view.deliver(sink)
    assert "secret" not in str(failed.value)
    assert progress_and_rows(database, sink) == (0, view.rows(0))


TYPES: dict[str, list[Any]] = {
    "boolean": [True, False],
    "tinyint": [-128, 127],
    "smallint": [-32768, 32767],
    "int": [-(2**31), 2**31 - 1],
    "bigint": [-(2**63), 2**63 - 1],
    "float": [1.5, float("-inf")],
    "double": [1 / 3, 1e300, 5e-324],
    "decimal(38,10)": ["12345678901234567890.0000000001", "-0.0000000001"],
    "decimal(5,0)": ["-99999"],
    "string": ["", "\\.", "\\N", 'a"b\r\n,c', "ü\U0001f40d", "NULL", " x "],
    "binary": [b"", b"\x00\xff\\x41"],
    "date": ["0001-01-01", "9999-12-31"],
    "timestamp": ["2020-02-29 23:59:59.999999+00", "0001-01-01 00:00:00+00"],
    "timestamp_ntz": ["2020-02-29 23:59:59.999999", "1969-12-31 00:00:00.000001"],
    "array<string>": [[], ["a", None, "", 'q"\\,{}', "NULL"], [None]],
    "array<bigint>": [[], [1, None, -2]],
    "array<double>": [[0.1, float("inf")]],
    "array<boolean>": [[True, None]],
    "array<decimal(10,2)>": [["1.50", "-2.00"]],
    "array<timestamp>": [["2020-02-29 23:59:59.999999+00"]],
    "array<date>": [["1999-12-31"]],
}


def values_of(type: str, count: int) -> list[Any]:
    """The values of TYPES, and NULL, `count` in all. Texts are those of Arrow for other types."""
    arrow, values = arrow_type(SqlType.parse(type)), TYPES[type]
    is_text = pa.types.is_string(arrow) or (pa.types.is_list(arrow) and pa.types.is_string(arrow.value_type))
    if not is_text and pa.types.is_list(arrow) and isinstance(values[0][:1], list) and values[0][:1] != []:
        values = [pa.array(each).cast(arrow.value_type).to_pylist() for each in values]
    elif not is_text and isinstance(values[0], str):
        values = pa.array(values).cast(arrow).to_pylist()
    return [*values, *[None] * (count - len(values))]


@pytest.mark.parametrize("made", ["by the sink", "by the user"])
def test_all_types_as_the_view_has_them(database: Database, tmp_path: Path, made: str) -> None:
    """All values of a type, NULL too, are what a reader gets, of all contents and of changes."""
    columns = (Column("id", SqlType.parse("int")), *(Column(f"C {n}", SqlType.parse(t)) for n, t in enumerate(TYPES)))
    view, sink = View(tmp_path, columns), sink_to(database, key=["id"])
    rounds = max(map(len, TYPES.values())) + 1
    rows = list(zip(range(rounds), *(values_of(type, rounds) for type in TYPES), strict=True))
    if made == "by the user":
        other = View(tmp_path / "first", columns)
        other.append([])
        other.deliver(sink)
        database.run("delete from tidemark_sinks")
    view.append([(row, 0, 1) for row in rows[: rounds // 2]])
    view.deliver(sink)
    view.append([(row, 1, 1) for row in rows[rounds // 2 :]])
    assert view.deliver(sink).anew_because == ""
    names = ", ".join(f'"{c.name}"' for c in columns)
    with connect(database.server, database.name) as connection:
        connection.execute("set timezone = 'UTC'")
        found = connection.execute(f"select {names} from kept order by id").fetchall()
        for row, got in zip(rows, found, strict=True):
            for column, wanted, value in zip(columns, row, got, strict=True):
                assert value == wanted, (column, wanted, value)
        lost = view.append([(row, 2, -1) for row in rows])
    view.deliver(sink, lost)
    assert database.value("select count(*) from kept") == 0


@pytest.mark.parametrize("type", ["struct<a:int>", "array<array<int>>", "array<binary>", "array<struct<a:int>>"])
def test_a_type_without_a_counterpart_is_refused_before_anything_is_written(
    database: Database, tmp_path: Path, type: str
) -> None:
    columns = (Column("k", SqlType.parse("int")), Column("v", SqlType.parse(type)))
    view = View(tmp_path, columns)
    view.append([])
    with pytest.raises(DestinationStopped, match="column v is of type") as stopped:
        view.deliver(sink_to(database, key=["k"]))
    assert stopped.value.reason == "TypeNotSupported"
    assert database.value("select count(*) from pg_class where relnamespace = 'public'::regnamespace") == 0


def test_a_value_that_the_database_cannot_hold_is_not_told(database: Database, tmp_path: Path) -> None:
    view, sink = View(tmp_path), sink_to(database)
    view.append([((1, "a", "secret\x00name", 1.0), 0, 1)])
    with pytest.raises(DestinationStopped) as stopped:
        view.deliver(sink)
    assert stopped.value.reason == "ValueNotSupported"
    assert "secret" not in str(stopped.value)


def test_a_key_column_that_the_view_lacks(database: Database, tmp_path: Path) -> None:
    view = View(tmp_path)
    view.step(1)
    with pytest.raises(DestinationStopped, match="key column id") as stopped:
        view.deliver(sink_to(database, key=["id"]))
    assert stopped.value.reason == "KeyMissing"


def test_all_columns_are_the_key(database: Database, tmp_path: Path) -> None:
    view, sink = View(tmp_path, COLUMNS[:2]), sink_to(database)
    view.append([((1, "a"), 0, 1), ((2, "a"), 0, 1)])
    view.deliver(sink)
    view.append([((1, "a"), 1, -1), ((3, "a"), 1, 1)])
    view.deliver(sink)
    assert progress_and_rows(database, sink, COLUMNS[:2]) == (1, view.rows())


def test_a_history_of_many_times_is_one_transaction(database: Database, tmp_path: Path) -> None:
    view, sink = View(tmp_path), sink_to(database)
    view.deliver(sink, view.step(5))
    for _ in range(5):
        view.step(5, 3)
    assert view.deliver(sink).time == Time(15)
    assert progress_and_rows(database, sink) == (15, view.rows())


def test_a_lost_table_of_progress(database: Database, tmp_path: Path) -> None:
    """Without a progress row the sink does not know who wrote the rows, so it refuses the table."""
    view, sink = View(tmp_path), sink_to(database)
    view.deliver(sink, view.step(5))
    database.run("drop table tidemark_sinks")
    with pytest.raises(DestinationStopped) as stopped:
        view.deliver(sink, view.step(5))
    assert stopped.value.reason == "TableNotEmpty"
    with connect(database.server, database.name) as connection, pytest.raises(psycopg.errors.UniqueViolation):
        connection.execute("insert into tidemark_sinks (table_name, owner, uid, term) values ('kept', '', '', 1)")


@pytest.mark.parametrize(("time", "shown"), [(1_577_836_800_000, "2020-01-01 00:00:00+00"), (MAX_TIME, "infinity")])
def test_the_guide_shows_the_time_of_a_view(database: Database, tmp_path: Path, time: int, shown: str) -> None:
    """The query of the guide reads the time of a view that has ended, too."""
    (statement,) = re.findall(r"^SELECT CASE[^;]*;", (ROOT / "docs/guides/postgres-sink.md").read_text(), re.MULTILINE)
    view, sink = View(tmp_path), sink_to(database)
    view.deliver(sink, view.step(1))
    database.run(f"update tidemark_sinks set time = {time}")
    here = statement.rstrip(";").replace("kept.tidemark_sinks", "tidemark_sinks").replace("'spent'", "'kept'")
    assert database.value(f"select shown at time zone 'UTC' = '{shown}' from ({here}) as found(shown)")


def test_what_another_program_did_to_the_view_s_table_loses_no_row(database: Database, tmp_path: Path) -> None:
    """It inserts a row of a key that the view has, and deletes another; the view's correction takes the first away,
    which alone would be a deletion of the key."""
    view, sink = View(tmp_path), sink_to(database)
    view.append([(A, 0, 1), (C, 0, 1)])
    view.deliver(sink)
    location = view.shard.location
    fields = [*view.schema, pa.field(TIME, pa.int64()), pa.field(DIFF, pa.int64()), pa.field(ERROR, pa.string())]
    rows = [pa.array([value], field.type) for value, field in zip((*B, 0, 1, None), fields, strict=True)]
    write_deltalake(location, pa.table(rows, pa.schema(fields)), mode="append")
    DeltaTable(location).delete("k = 2")
    view.append([(B, 1, -1), (C, 1, 1)])
    reached = view.deliver(sink)
    assert "another program" in reached.anew_because
    assert progress_and_rows(database, sink)[1] == {A: 1, C: 1}
    view.append([(C, 2, -1)])
    assert view.deliver(sink).anew_because == ""
    assert progress_and_rows(database, sink)[1] == {A: 1}
