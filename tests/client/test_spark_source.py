"""`format("tidemark")` in a real Spark, against a scripted gateway over real gRPC: options, types, offsets."""

from __future__ import annotations

import datetime
import decimal
import os
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import pyarrow as pa
import pytest
import yaml
from pyspark import cloudpickle
from pyspark.sql.datasource import InputPartition

from tidemark.errors import (
    DataError,
    GatewayFailed,
    InterfaceError,
    NotSupportedError,
    OffsetTooOld,
    RelationChanged,
    ViewInError,
)
from tidemark.spark import TidemarkDataSource, patience, register
from tidemark.spark.change_feed import ChangeFeed, is_in_error, is_too_old
from tidemark.spark.options import ReadOptions
from tidemark_devcluster.control_plane.control_plane import ControlPlane
from tidemark_operator.errors import TimeNotReadable
from tidemark_operator.gateway.query.read_time import Span, TimeRequest, choose_time
from tidemark_protocol.frontier import Frontier
from tidemark_protocol.ids import Time
from tidemark_protocol.pb import gateway_pb2 as pb
from tidemark_protocol.pb.gateway_pb2_grpc import GatewayServicer, add_GatewayServicer_to_server
from tidemark_replica.sinks.sink_progress import Staged
from tidemark_replica.sinks.subscribe.subscribe import goal_of

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
STREAM_OF_ROWS = "readStream gives its changes, with option readChangeFeed=true"


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
        self.columns = [("name", "string"), ("n", "int")]
        self.queries: list[pb.QueryRequest] = []
        self.subscribes: list[pb.SubscribeRequest] = []
        self.breaks = 0
        self.fails_at: int | None = None
        """The time at which the view has a row in error, and no longer."""

    def Query(self, request: pb.QueryRequest, context: grpc.ServicerContext) -> Iterator[pb.QueryReply]:
        self.queries.append(request)
        at = request.as_of if request.HasField("as_of") else self.upper - 1
        if at < self.since:
            context.abort(grpc.StatusCode.OUT_OF_RANGE, f"cannot be read at {at} any more: only from 1970 on")
        if at == self.fails_at:
            context.abort(grpc.StatusCode.FAILED_PRECONDITION, "the result is in error: EXPRESSION_FAILED in 1 / n")
        is_sales = "counts" not in request.sql
        names, types = zip(*(TYPES.items() if is_sales else self.columns), strict=True)
        yield pb.QueryReply(header=pb.QueryHeader(as_of=at, column_names=names, column_types=types))
        table = ROWS if is_sales else pa.table({"c0": pa.array([], pa.string()), "c1": pa.array([], pa.int32())})
        yield pb.QueryReply(arrow=ipc(table.slice(0, 0) if request.sql.endswith("LIMIT 0") else table))

    def Subscribe(self, request: pb.SubscribeRequest, context: grpc.ServicerContext) -> Iterator[pb.SubscribeReply]:
        self.subscribes.append(request)
        at = request.as_of if request.HasField("as_of") else self.upper - 1
        if at < self.since:
            context.abort(grpc.StatusCode.OUT_OF_RANGE, f"cannot be read at {at} any more: only from 1970 on")
        if at >= self.upper:
            context.abort(grpc.StatusCode.OUT_OF_RANGE, f"counts is not complete at {at} yet")
        names, types = zip(*self.columns, strict=True)
        header = pb.SubscribeHeader(as_of=at, column_names=names, column_types=types, reads=self.reads)
        yield pb.SubscribeReply(header=header)
        end = request.up_to if request.HasField("up_to") else self.upper
        first = [] if request.without_snapshot else [(*u[:2], at, u[3]) for u in self.updates if u[2] <= at]
        later = [u for u in self.updates if at < u[2] < end]
        for piece, upper in ((first, at + 1), (later[:1], later[0][2] if later else end), (later[1:], end)):
            yield pb.SubscribeReply(batch=pb.SubscribeBatch(lower=0, upper=upper, arrow=updates(piece)))
            if self.fails_at is not None and at <= self.fails_at < end:
                context.abort(
                    grpc.StatusCode.FAILED_PRECONDITION, "the subscribe is in error: EXPRESSION_FAILED in 1 / n"
                )
            if self.breaks and request.up_to:
                self.breaks -= 1
                context.abort(grpc.StatusCode.ABORTED, "the replica was lost")


def updates(rows: list[tuple[str, int, int, int]]) -> bytes:
    columns = list(zip(*rows, strict=True)) or [[], [], [], []]
    types = [pa.string(), pa.int32(), pa.int64(), pa.int64()]
    arrays = [pa.array(column, type) for column, type in zip(columns, types, strict=True)]
    arrays.append(pa.array(range(len(rows)), pa.uint64()))
    return ipc(pa.Table.from_arrays(arrays, names=["c0", "c1", "__time", "__diff", "__part"])) if rows else b""


def started(history: History, port: int = 0) -> tuple[grpc.Server, int]:
    """A gateway that answers from a history, and its port."""
    server = grpc.server(ThreadPoolExecutor(4))
    add_GatewayServicer_to_server(history, server)  # type: ignore[no-untyped-call]
    port = server.add_insecure_port(f"127.0.0.1:{port}")
    server.start()
    return server, port


@pytest.fixture
def gateway() -> Iterator[tuple[History, dict[str, str]]]:
    """And the options that name it."""
    history = History()
    server, port = started(history)
    yield history, {"server": f"127.0.0.1:{port}", "token": "secret", "namespace": "ns"}
    server.stop(None).wait()


@pytest.fixture
def session(spark: Any) -> Any:
    register(spark)
    return spark


@pytest.mark.spark
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


@pytest.mark.spark
def test_a_filtered_read_leaves_other_reads_of_its_dataframe_whole(session: Any, gateway: Any) -> None:
    """Spark 4.3 keeps what `pushFilters` returns for all reads of a DataFrame, so the source must not have it."""
    _, options = gateway
    session.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        with pytest.raises(Exception, match="format tidemark has no option pushdown"):
            session.read.format("tidemark").options(**options, pushdown="true").load("sales")
        frame = session.read.format("tidemark").options(**options).load("sales")
        assert frame.where("n > 5").count() == 1
        assert frame.count() == 3
        assert frame.where("n > 5").union(frame.where("n < 0")).count() == 2
    finally:
        session.conf.unset("spark.sql.python.filterPushdown.enabled")


class Stream:
    """A stream into memory of this process, by batches that are each taken once, as a sink that is idempotent does."""

    def __init__(self, session: Any, options: dict[str, str], checkpoint: Path) -> None:
        self._session, self._options, self._checkpoint = session, options, checkpoint
        self.batches: dict[int, list[Any]] = {}

    def load(self, **more: str) -> Any:
        options = {**self._options, "readChangeFeed": "true", **more}
        return self._session.readStream.format("tidemark").options(**options).load("counts")

    def run(self, **more: str) -> None:
        """All that there is now, in a query that begins where the one before ended."""

        def take(frame: Any, id: int) -> None:
            rows = [tuple(row) for row in frame.collect()]
            assert self.batches.setdefault(id, rows) == rows

        writer = self.load(**more).writeStream.foreachBatch(take).option("checkpointLocation", str(self._checkpoint))
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


@pytest.mark.slow  # Spark gives the worker of a stream ten seconds to begin, whatever else runs
@pytest.mark.spark
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
    assert len(again) >= 3
    assert all(request.without_snapshot and request.as_of == 1000 for request in again)


@pytest.mark.slow  # Spark gives the worker of a stream ten seconds to begin, whatever else runs
@pytest.mark.spark
def test_a_stream_that_cannot_go_on_ends_with_a_name(session: Any, gateway: Any, tmp_path: Path) -> None:
    """It never leaves changes out, nor applies those of another relation."""
    history, options = gateway
    stream = Stream(session, options, tmp_path)
    stream.run()
    history.upper, history.reads = 2001, "second"
    with pytest.raises(Exception, match="RELATION_CHANGED: counts is not what the stream has read before"):
        stream.run()
    history.reads, history.since = "first", 1500
    with pytest.raises(
        Exception, match="OFFSET_TOO_OLD: changes of counts cannot be read from the checkpoint's time on"
    ):
        stream.run()
    history.since = 0
    stream.run()
    assert len(stream.rows) == 2


@pytest.mark.slow  # Spark gives the worker of a stream ten seconds to begin, whatever else runs
@pytest.mark.spark
def test_a_stream_without_the_snapshot_has_changes_alone(session: Any, gateway: Any, tmp_path: Path) -> None:
    history, options = gateway
    stream = Stream(session, options, tmp_path)
    stream.run(snapshot="false")
    history.updates.append(("a", 1, 2000, -1))
    history.upper = 2001
    stream.run(snapshot="false")
    assert [row[:4] for row in stream.rows] == [("a", 1, "delete", -1)]


def feed(options: dict[str, str], **more: str) -> ChangeFeed:
    """The reader of a stream of `counts`, as Spark makes it on the driver."""
    source = TidemarkDataSource({**options, "path": "counts", "readChangeFeed": "true", **more})
    reader = source.streamReader(source.schema())
    assert isinstance(reader, ChangeFeed)
    return reader


def rows_between(reader: ChangeFeed, start: Any, end: Any) -> list[Any]:
    partitions = reader.partitions(start, end)
    return [row for partition in partitions for batch in reader.read(partition) for row in batch.to_pylist()]


@pytest.mark.parametrize("snapshot", ["true", "false"])
def test_crash_the_first_micro_batch_is_repeated_as_it_was(gateway: Any, snapshot: str) -> None:
    """Spark stores its end alone, and asks a new reader where it begins: no change between is lost."""
    history, options = gateway
    reader = feed(options, snapshot=snapshot)
    start = reader.initialOffset()
    history.updates.append(("a", 1, 2000, -1))
    history.upper = 2001
    end = reader.latestOffset(start, None)
    found = rows_between(reader, start, end)

    history.updates.append(("b", 2, 3000, -1))
    history.upper = 3001
    reader = feed(options, snapshot=snapshot)
    assert reader.initialOffset() == start
    assert rows_between(reader, reader.initialOffset(), end) == found
    later = rows_between(reader, end, reader.latestOffset(end, None))
    assert [(row["name"], row["_diff"]) for row in later] == [("b", -1)]
    assert [row["name"] for row in found] == (["a", "b", "a"] if snapshot == "true" else [])


def test_an_edit_after_the_load_never_puts_values_into_other_columns(gateway: Any) -> None:
    """Names and types are compared before the first row, also where every value would fit."""
    history, options = gateway
    source = TidemarkDataSource({**options, "path": "counts"})
    rows, changes = source.reader(source.schema()), feed(options)
    list(rows.read(InputPartition(1000)))
    for columns in ([("n", "string"), ("name", "int")], [("name", "string"), ("n", "bigint")]):
        history.columns = columns
        now = ", ".join(f"{name} {type}" for name, type in columns)
        with pytest.raises(RelationChanged, match=f"RELATION_CHANGED: counts has columns {now}, and had name string"):
            list(rows.read(InputPartition(1000)))
        start = changes.initialOffset()
        with pytest.raises(RelationChanged, match=f"RELATION_CHANGED: counts has columns {now}, _change_type"):
            rows_between(changes, start, changes.latestOffset(start, None))


def test_two_columns_of_one_name_are_refused(gateway: Any) -> None:
    history, options = gateway
    history.columns = [("n", "int"), ("n", "int")]
    with pytest.raises(InterfaceError, match="two columns are called n: rename one with AS"):
        TidemarkDataSource({**options, "path": "counts"}).schema()


def test_a_stream_with_asof_goes_on_after_that_time_is_gone(gateway: Any) -> None:
    history, options = gateway
    reader = feed(options, asOf="1000")
    history.upper = 2001
    end = reader.latestOffset(reader.initialOffset(), None)
    assert end["time"] == 1000
    end = reader.latestOffset(end, None)
    history.updates.append(("d", 5, 3000, 1))
    history.since, history.upper = 1500, 3001
    reader = feed(options, asOf="1000")
    found = rows_between(reader, end, reader.latestOffset(end, None))
    assert [(row["name"], row["_diff"]) for row in found] == [("d", 1)]


def test_rows_in_error_end_a_stream_with_a_name(gateway: Any) -> None:
    """Also where they were corrected before the micro-batch ended."""
    history, options = gateway
    reader = feed(options)
    start = reader.latestOffset(reader.initialOffset(), None)
    history.fails_at, history.upper = 2000, 3001
    end = reader.latestOffset(start, None)
    with pytest.raises(ViewInError, match=r"VIEW_IN_ERROR: counts has, or had, .*EXPRESSION_FAILED in 1 / n\. Correct"):
        rows_between(reader, start, end)
    history.fails_at = 3000
    with pytest.raises(ViewInError, match="VIEW_IN_ERROR: counts has, or had"):
        reader.latestOffset(start, None)


def test_a_replica_calls_rows_in_error_as_the_source_expects() -> None:
    """The text of the replica is what tells such an error from one that passes."""
    staged = Staged(0, 3000, None, errors={2000: Counter({"EXPRESSION_FAILED: 1 / n": 1})})
    ended = goal_of(staged, 3000).error
    assert ended is not None
    assert is_in_error(GatewayFailed(ended, grpc.StatusCode.FAILED_PRECONDITION))


def test_the_gateway_calls_a_time_too_old_as_the_source_expects() -> None:
    """The text of the gateway is what tells such a time from one that is not complete yet."""
    readable = Span("counts", Frontier.at(Time(1000)), Frontier.at(Time(2000)))
    for as_of, too_old in ((999, True), (2000, False)):
        with pytest.raises(TimeNotReadable) as refused:
            choose_time([readable], TimeRequest(as_of))
        assert is_too_old(DataError(str(refused.value), grpc.StatusCode.OUT_OF_RANGE)) is too_old


def test_a_time_that_is_not_complete_yet_is_not_too_old(gateway: Any) -> None:
    """As after a restore: the checkpoint is still good, once the time is complete again."""
    history, options = gateway
    reader = feed(options)
    history.upper = 501
    with pytest.raises(DataError, match="not complete at 1000 yet") as raised:
        rows_between(reader, {"time": 1000, "reads": "first"}, {"time": 2000, "reads": "first"})
    assert not isinstance(raised.value, OffsetTooOld)


def test_crash_a_gateway_that_is_restarted_does_not_end_a_stream(monkeypatch: Any) -> None:
    """Neither its driver nor its task; after a minute the error is raised."""
    monkeypatch.setattr(patience, "PAUSE_SECONDS", 0.2)
    history = History()
    server, port = started(history)
    reader = feed({"server": f"127.0.0.1:{port}", "token": "secret", "namespace": "ns"})
    start = reader.initialOffset()

    def again(call: Callable[[], Any]) -> Any:
        """The outcome of a call that begins while no gateway is there."""
        nonlocal server
        server.stop(None).wait()
        with ThreadPoolExecutor(1) as pool:
            outcome = pool.submit(call)
            with pytest.raises(TimeoutError):
                outcome.result(1)
            server, _ = started(history, port)
            return outcome.result()

    end = again(lambda: reader.latestOffset(start, None))
    assert end == {"time": 1000, "reads": "first"}
    assert len(again(lambda: rows_between(reader, start, end))) == 2
    history.upper = 2001
    assert again(lambda: reader.latestOffset(end, None))["time"] == 2000
    server.stop(None).wait()
    monkeypatch.setattr(patience, "PATIENCE_SECONDS", 0.5)
    with pytest.raises(GatewayFailed, match="no gateway answers"):
        reader.latestOffset(end, None)


@pytest.mark.cluster
def test_the_driver_alone_finds_the_namespace(
    gateway: Any, control_plane: ControlPlane, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An executor in a pod has no kubeconfig, and must not read the relation of this name in another namespace."""
    history, options = gateway
    monkeypatch.setenv("PATH", str(control_plane.layout.kubectl.parent), prepend=os.pathsep)
    context = {"name": "c", "context": {"cluster": "c", "user": "u", "namespace": "team-a"}}
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:1"}}],
        "users": [{"name": "u", "user": {"token": "t"}}],
        "contexts": [context],
        "current-context": "c",
    }
    kubeconfig = tmp_path / "config"
    kubeconfig.write_text(yaml.safe_dump(config))
    del options["namespace"]
    source = TidemarkDataSource({**options, "kubeconfig": str(kubeconfig), "path": "counts"})
    schema = source.schema()
    kubeconfig.unlink()
    source = cloudpickle.loads(cloudpickle.dumps(source))
    reader = cloudpickle.loads(cloudpickle.dumps(source.reader(schema)))
    for partition in reader.partitions():
        list(reader.read(partition))
    assert [query.namespace for query in history.queries] == ["team-a"] * 3


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "name what to read, and only once"),
        ({"path": "a", "query": "SELECT 1"}, "name what to read, and only once"),
        ({"path": "a", "asof": "soon"}, "option asOf: 'soon'"),
        ({"path": "a", "readchangefeed": "yes"}, "option readChangeFeed is true or false, not 'yes'"),
        ({"path": "a", "tokenfil": "b"}, "no option tokenfil: it has server, namespace, instance, token, tokenFile"),
        ({"path": "a", "pushdown": "true"}, "no option pushdown: it has server"),
    ],
)
def test_a_wrong_option_is_named(options: dict[str, str], message: str) -> None:
    with pytest.raises(InterfaceError, match=message):
        ReadOptions.of(options)


def test_a_secret_is_not_shown() -> None:
    assert "hush" not in repr(ReadOptions.of({"path": "a", "token": "hush"}))


@pytest.mark.spark
def test_a_read_of_changes_is_refused(session: Any, gateway: Any) -> None:
    _, options = gateway
    with pytest.raises(Exception, match="changes are a stream"):
        session.read.format("tidemark").options(**options, readChangeFeed="true").load("counts").collect()


@pytest.mark.slow  # Spark gives the worker of a stream ten seconds to begin, whatever else runs
@pytest.mark.spark
def test_a_stream_of_rows_is_refused(session: Any, gateway: Any, tmp_path: Path) -> None:
    _, options = gateway
    with pytest.raises(Exception, match=STREAM_OF_ROWS):
        Stream(session, options, tmp_path).run(readChangeFeed="false")


def test_a_stream_of_rows_has_no_reader(gateway: Any) -> None:
    """What the test of a whole stream shows, without a session."""
    _, options = gateway
    source = TidemarkDataSource({**options, "path": "counts", "readChangeFeed": "false"})
    with pytest.raises(NotSupportedError, match=STREAM_OF_ROWS):
        source.streamReader(source.schema())
