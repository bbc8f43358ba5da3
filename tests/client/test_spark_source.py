"""`format("tidemark")` in a real Spark, against a scripted gateway over real gRPC: options, types, filters, offsets."""

from __future__ import annotations

import datetime
import decimal
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import pyarrow as pa
import pytest
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    GreaterThan,
    In,
    IsNull,
    LessThan,
    Not,
    StringStartsWith,
)

from tidemark.errors import InterfaceError
from tidemark.spark import register
from tidemark.spark.filters import condition
from tidemark.spark.options import ReadOptions
from tidemark_protocol.pb import gateway_pb2 as pb
from tidemark_protocol.pb.gateway_pb2_grpc import GatewayServicer, add_GatewayServicer_to_server

pytestmark = pytest.mark.spark
TYPES = {
    "name": "string",
    "n": "bigint",
    "price": "decimal(5,2)",
    "on": "date",
    "at": "timestamp",
    "local": "timestamp_ntz",
    "tags": "array<string>",
    "pair": "struct<a:int,b:string>",
    "raw": "binary",
    "ok": "boolean",
}
NOON = datetime.datetime(2026, 1, 31, 12, 0, tzinfo=datetime.UTC)
ROW = {
    "name": "it's `a`",
    "n": 2**53 + 1,
    "price": decimal.Decimal("3.50"),
    "on": datetime.date(2026, 1, 31),
    "at": NOON,
    "local": NOON.replace(tzinfo=None),
    "tags": ["x", None],
    "pair": {"a": 1, "b": None},
    "raw": b"\x00\xff",
    "ok": True,
}
ARROW = pa.schema(
    [
        ("name", pa.string()),
        ("n", pa.int64()),
        ("price", pa.decimal128(5, 2)),
        ("on", pa.date32()),
        ("at", pa.timestamp("us", "UTC")),
        ("local", pa.timestamp("us")),
        ("tags", pa.list_(pa.string())),
        ("pair", pa.struct([("a", pa.int32()), ("b", pa.string())])),
        ("raw", pa.binary()),
        ("ok", pa.bool_()),
    ]
)
ROWS = pa.Table.from_pylist([ROW, dict.fromkeys(ROW), {**ROW, "name": "b", "n": -1}], ARROW)


def ipc(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table, max_chunksize=2)
    data: bytes = sink.getvalue().to_pybytes()
    return data


class History(GatewayServicer):
    """A relation `counts` of name and n. `updates`: (name, n, time, diff), complete before `upper`, readable from
    `since`. It answers as the gateway does."""

    def __init__(self) -> None:
        self.updates = [("a", 1, 1000, 1), ("b", 2, 1000, 1)]
        self.upper, self.since, self.reads = 1001, 0, "first"
        self.queries: list[pb.QueryRequest] = []
        self.subscribes: list[pb.SubscribeRequest] = []
        self.breaks = 0

    def Query(self, request: pb.QueryRequest, context: grpc.ServicerContext) -> Iterator[pb.QueryReply]:
        self.queries.append(request)
        at = request.as_of if request.HasField("as_of") else self.upper - 1
        if at < self.since:
            context.abort(grpc.StatusCode.OUT_OF_RANGE, f"cannot be read at {at} any more")
        types = {"name": "string", "n": "int"} if "counts" in request.sql else TYPES
        yield pb.QueryReply(
            header=pb.QueryHeader(as_of=at, column_names=list(types), column_types=list(types.values()))
        )
        table = ROWS if types is TYPES else pa.table({"c0": pa.array([], pa.string()), "c1": pa.array([], pa.int32())})
        yield pb.QueryReply(arrow=ipc(table.slice(0, 0) if request.sql.endswith("LIMIT 0") else table))

    def Subscribe(self, request: pb.SubscribeRequest, context: grpc.ServicerContext) -> Iterator[pb.SubscribeReply]:
        self.subscribes.append(request)
        at = request.as_of if request.HasField("as_of") else self.upper - 1
        if at < self.since:
            context.abort(grpc.StatusCode.OUT_OF_RANGE, f"cannot be read at {at} any more")
        header = pb.SubscribeHeader(
            as_of=at, column_names=["name", "n"], column_types=["string", "int"], reads=self.reads
        )
        yield pb.SubscribeReply(header=header)
        end = request.up_to if request.HasField("up_to") else self.upper
        first = [] if request.without_snapshot else [(*u[:2], at, u[3]) for u in self.updates if u[2] <= at]
        later = [u for u in self.updates if at < u[2] < end]
        for piece, upper in ((first, at + 1), (later[:1], later[0][2] if later else end), (later[1:], end)):
            yield pb.SubscribeReply(batch=pb.SubscribeBatch(lower=0, upper=upper, arrow=updates(piece)))
            if self.breaks and request.up_to:
                self.breaks -= 1
                context.abort(grpc.StatusCode.ABORTED, "the replica was lost")


def updates(rows: list[tuple[str, int, int, int]]) -> bytes:
    columns = list(zip(*rows, strict=True)) or [[], [], [], []]
    types = [pa.string(), pa.int32(), pa.int64(), pa.int64()]
    arrays = [pa.array(column, type) for column, type in zip(columns, types, strict=True)]
    arrays.append(pa.array(range(len(rows)), pa.uint64()))
    return ipc(pa.Table.from_arrays(arrays, names=["c0", "c1", "__time", "__diff", "__part"])) if rows else b""


@pytest.fixture
def gateway() -> Iterator[tuple[History, dict[str, str]]]:
    """And the options that name it."""
    server, history = grpc.server(ThreadPoolExecutor(4)), History()
    add_GatewayServicer_to_server(history, server)  # type: ignore[no-untyped-call]
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield history, {"server": f"127.0.0.1:{port}", "token": "secret", "namespace": "ns"}
    server.stop(None).wait()


@pytest.fixture
def session(spark: Any) -> Any:
    register(spark)
    return spark


def test_rows_of_every_type_are_read_as_of_the_time_of_the_plan(session: Any, gateway: Any) -> None:
    """Also by a second action on the same DataFrame; once that time is gone, the error says so."""
    history, options = gateway
    frame = session.read.format("tidemark").options(**options).load("sales.by-day")
    assert {field.name: field.dataType.simpleString() for field in frame.schema} == TYPES
    rows = frame.toArrow().to_pylist()
    assert rows == ROWS.to_pylist()
    history.upper = 5001
    assert len(frame.toArrow()) == 3
    assert [query.as_of for query in history.queries if not query.sql.endswith("LIMIT 0")] == [1000, 1000]
    assert history.queries[0].sql == "SELECT * FROM `sales`.`by-day` LIMIT 0"
    history.since = 4000
    with pytest.raises(Exception, match=r"cannot be read at 1000 any more.*load it again"):
        frame.toArrow()
    assert session.read.format("tidemark").options(**options).load("sales.by-day").count() == 3


def test_filters_are_sql_where_they_are_let(session: Any, gateway: Any) -> None:
    """Spark refuses a source that filters unless its setting allows it; it filters once more itself."""
    history, options = gateway
    session.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        reader = session.read.format("tidemark").options(**options, pushdown="true", query="SELECT * FROM sales")
        frame = reader.load().where("n > 5 AND name = 'it\\'s `a`' AND ok AND price IN (3.50, 1) AND at IS NOT NULL")
        assert frame.count() == 1
    finally:
        session.conf.unset("spark.sql.python.filterPushdown.enabled")
    asked = history.queries[-1].sql
    assert asked.startswith("SELECT * FROM (\nSELECT * FROM sales\n) AS `read` WHERE ")
    for part in ("`name` = 'it\\'s `a`'", "`ok` = TRUE", "`at` IS NOT NULL"):
        assert part in asked


def test_a_filter_without_a_form_in_sql_is_left_to_spark() -> None:
    """Names and values cannot leave their quotes; a time is the session's affair; a field of a struct has no name."""
    found = condition(
        [
            GreaterThan(("n",), 5),
            EqualNullSafe(("a`b",), "x' OR true --"),
            Not(In(("price",), (decimal.Decimal("3.50"), 1))),
            IsNull(("on",)),
            LessThan(("on",), datetime.date(2026, 1, 31)),
            EqualTo(("at",), NOON),
            EqualTo(("pair", "a"), 1),
            Not(EqualTo(("at",), NOON)),
            In(("n",), (1, NOON)),
            StringStartsWith(("name",), "a"),
        ]
    )
    assert found == (
        "`n` > 5 AND `a``b` <=> 'x\\' OR true --' AND NOT (`price` IN (3.50BD, 1)) AND `on` IS NULL "
        "AND `on` < DATE'2026-01-31'"
    )
    assert condition([]) == ""


class Stream:
    """A stream into memory of this process, by batches that are each taken once, as a sink that is idempotent does."""

    def __init__(self, session: Any, options: dict[str, str], checkpoint: Path) -> None:
        self._session, self._options, self._checkpoint = session, options, checkpoint
        self.batches: dict[int, list[Any]] = {}

    def run(self, **more: str) -> None:
        """All that there is now, in a query that begins where the one before ended."""

        def take(frame: Any, id: int) -> None:
            rows = [tuple(row) for row in frame.collect()]
            assert self.batches.setdefault(id, rows) == rows

        reader = self._session.readStream.format("tidemark").options(
            **self._options, **{"readChangeFeed": "true", **more}
        )
        writer = (
            reader.load("counts").writeStream.foreachBatch(take).option("checkpointLocation", str(self._checkpoint))
        )
        query = writer.trigger(availableNow=True).start()
        try:
            query.awaitTermination()
        finally:
            query.stop()

    @property
    def rows(self) -> list[Any]:
        return [row for id in sorted(self.batches) for row in self.batches[id]]

    def sums(self) -> Counter[tuple[str, int]]:
        total: Counter[tuple[str, int]] = Counter()
        for name, n, _, diff, _ in self.rows:
            total[name, n] += diff
        return +total


def test_crash_a_stream_goes_on_from_its_checkpoint_and_has_each_change_once(
    session: Any, gateway: Any, tmp_path: Path
) -> None:
    """After a restart, after a subscribe that broke off, and after a batch whose end was not committed."""
    history, options = gateway
    stream = Stream(session, options, tmp_path)
    stream.run()
    assert sorted(row[:4] for row in stream.rows) == [("a", 1, "insert", 1), ("b", 2, "insert", 1)]
    assert {row[4].timestamp() for row in stream.rows} == {1.0}

    history.updates += [("a", 1, 2000, -1), ("a", 3, 2000, 2), ("c", 4, 3000, 1)]
    history.upper, history.breaks = 3001, 1
    stream.run()
    assert stream.sums() == Counter({("a", 3): 2, ("b", 2): 1, ("c", 4): 1})
    assert [row[2] for row in stream.rows if row[0] == "a"] == ["insert", "delete", "insert"]

    last = max(int(path.name) for path in (tmp_path / "commits").iterdir() if path.name.isdigit())
    for path in (tmp_path / "commits").glob(f"*{last}*"):
        path.unlink()  # as where the process died before the end of the batch was written
    history.upper = 4001
    stream.run()
    assert stream.sums() == Counter({("a", 3): 2, ("b", 2): 1, ("c", 4): 1})
    again = [request for request in history.subscribes if request.up_to == 3001]
    assert len(again) == 3
    assert all(request.without_snapshot and request.as_of == 1000 for request in again)


def test_a_stream_that_cannot_go_on_ends_with_a_name(session: Any, gateway: Any, tmp_path: Path) -> None:
    """It never leaves changes out, nor applies those of another relation."""
    history, options = gateway
    stream = Stream(session, options, tmp_path)
    stream.run()
    history.upper, history.reads = 2001, "second"
    with pytest.raises(Exception, match="RELATION_CHANGED: counts is not what the stream has read before"):
        stream.run()
    history.reads, history.since = "first", 1500
    with pytest.raises(Exception, match="OFFSET_TOO_OLD: changes of counts from 1000 on cannot be read"):
        stream.run()
    history.since = 0
    stream.run()
    assert len(stream.rows) == 2


def test_a_stream_without_the_snapshot_has_changes_alone(session: Any, gateway: Any, tmp_path: Path) -> None:
    history, options = gateway
    stream = Stream(session, options, tmp_path)
    stream.run(snapshot="false")
    history.updates.append(("a", 1, 2000, -1))
    history.upper = 2001
    stream.run(snapshot="false")
    assert [row[:4] for row in stream.rows] == [("a", 1, "delete", -1)]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "say what to read, once"),
        ({"path": "a", "query": "SELECT 1"}, "say what to read, once"),
        ({"path": "a", "asof": "soon"}, "option asOf: 'soon'"),
        ({"path": "a", "readchangefeed": "yes"}, "option readchangefeed is true or false, not 'yes'"),
        ({"path": "a", "tokenfil": "b"}, "no option tokenfil: it has server"),
    ],
)
def test_a_wrong_option_is_named(options: dict[str, str], message: str) -> None:
    with pytest.raises(InterfaceError, match=message):
        ReadOptions.of(options)


def test_a_secret_is_not_shown() -> None:
    assert "hush" not in repr(ReadOptions.of({"path": "a", "token": "hush"}))


def test_what_has_no_meaning_is_refused(session: Any, gateway: Any, tmp_path: Path) -> None:
    _, options = gateway
    stream = Stream(session, options, tmp_path)
    with pytest.raises(Exception, match="readStream gives its changes, with option readChangeFeed=true"):
        stream.run(readChangeFeed="false")
    with pytest.raises(Exception, match="changes are a stream"):
        session.read.format("tidemark").options(**options, readChangeFeed="true").load("counts").collect()
