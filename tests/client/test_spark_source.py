"""`format("tidemark")` in a real Spark, against a scripted gateway over real gRPC: options, types, offsets."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import pytest
import yaml
from pyspark import cloudpickle
from pyspark.sql.datasource import InputPartition

from tests.client.scripted_gateway import ROWS, TYPES, History, started
from tidemark.errors import (
    DataError,
    GatewayFailed,
    InterfaceError,
    NotSupportedError,
    OffsetTooOld,
    RelationChanged,
    ViewInError,
)
from tidemark.spark import TidemarkDataSource, gateway_retry
from tidemark.spark.change_feed import ChangeFeed, is_in_error, is_too_old
from tidemark.spark.options import ReadOptions
from tidemark_devcluster.control_plane.control_plane import ControlPlane
from tidemark_operator.errors import TimeNotReadable
from tidemark_operator.gateway.query.read_time import ReadableTimes, TimeRequest, choose_time
from tidemark_protocol.frontier import Frontier
from tidemark_protocol.ids import Time
from tidemark_replica.sinks.sink_progress import Staged
from tidemark_replica.sinks.subscribe.subscribe import goal_of

STREAM_OF_ROWS = "readStream gives its changes, with option readChangeFeed=true"


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
    readable = ReadableTimes("counts", Frontier.at(Time(1000)), Frontier.at(Time(2000)))
    for as_of, too_old in ((999, True), (2000, False)):
        with pytest.raises(TimeNotReadable) as refused:
            choose_time([readable], TimeRequest(as_of))
        assert is_too_old(DataError(str(refused.value), grpc.StatusCode.OUT_OF_RANGE)) is too_old


def test_a_time_that_is_not_complete_yet_is_not_too_old(gateway: Any) -> None:
    """The case comes after a restore: the checkpoint is still good, once the time is complete again."""
    history, options = gateway
    reader = feed(options)
    history.upper = 501
    with pytest.raises(DataError, match="not complete at 1000 yet") as raised:
        rows_between(reader, {"time": 1000, "reads": "first"}, {"time": 2000, "reads": "first"})
    assert not isinstance(raised.value, OffsetTooOld)


def test_crash_a_gateway_that_is_restarted_does_not_end_a_stream(monkeypatch: Any) -> None:
    """Neither its driver nor its task; after a minute the error is raised."""
    monkeypatch.setattr(gateway_retry, "PAUSE_SECONDS", 0.2)
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
    monkeypatch.setattr(gateway_retry, "RETRY_SECONDS", 0.5)
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


def test_a_stream_of_rows_has_no_reader(gateway: Any) -> None:
    """The test shows what that of a whole stream shows, without a session."""
    _, options = gateway
    source = TidemarkDataSource({**options, "path": "counts", "readChangeFeed": "false"})
    with pytest.raises(NotSupportedError, match=STREAM_OF_ROWS):
        source.streamReader(source.schema())
