"""The rows of a live table: their order and their bounds; and the thread that draws them."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import grpc
import pyarrow as pa
import pytest

from tests.cli.test_live import Subscribes
from tests.cli.test_subscribe import stream
from tests.waiting import BOUND
from tidemark.changes import TimedChanges
from tidemark.gateway.discovery import Gateway
from tidemark.link import Link
from tidemark_cli import current_rows
from tidemark_cli.current_rows import CurrentRows
from tidemark_cli.errors import CliError
from tidemark_cli.output.live import ScreenFrame, live_table
from tidemark_protocol.pb import gateway_pb2 as pb
from tidemark_protocol.pb.gateway_pb2_grpc import add_GatewayServicer_to_server
from tidemark_protocol.rows.updates import DIFF_COLUMN


def table(sort_by: str = "") -> CurrentRows:
    rows = CurrentRows("delays", sort_by)
    rows.begin(pb.SubscribeHeader(as_of=1000, column_names=["name", "n"], column_types=["string", "double"]))
    return rows


def changes(time: int, *rows: tuple[int, str, float | None]) -> TimedChanges:
    diffs, names, numbers = zip(*rows, strict=True)
    arrays = [pa.array(diffs, pa.int64()), pa.array(names), pa.array(numbers, pa.float64())]
    return TimedChanges(time, pa.table(arrays, [DIFF_COLUMN, "name", "n"]))


@pytest.mark.parametrize(("sort_by", "names"), [("n", "abcd"), ("-n", "bacd")])
def test_nan_and_null_come_last_in_either_order(sort_by: str, names: str) -> None:
    """A view with many of them shows values first."""
    rows = table(sort_by)
    rows.take(changes(1000, (1, "d", None), (1, "b", 2.0), (1, "c", float("nan")), (1, "a", 1.0)))
    assert "".join(row[0] for row in rows.frame(10).rows) == names


def test_rows_whose_texts_grow_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their number is as it was. Rows that are gone do not count."""
    monkeypatch.setattr(current_rows, "BYTES_MAX", 2000)
    rows = table()
    rows.take(changes(1000, (1, "a" * 1500, None)))
    for time in range(1001, 1010):
        old, new = "ab" if time % 2 else "ba"
        rows.take(changes(time, (-1, old * 1500, None), (1, new * 1500, None)))
    with pytest.raises(CliError, match="delays has more than 100000 rows, or "):
        rows.take(changes(2000, (1, "c" * 1500, None)))


def test_changes_of_a_time_that_is_not_complete_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also of a later time than the first one: a view may be filled at one time."""
    monkeypatch.setattr(current_rows, "BYTES_MAX", 2000)
    first = pb.SubscribeBatch(lower=1000, upper=2000, arrow=stream(("first", 1, 1000, 1, 0)))
    filled = [
        pb.SubscribeBatch(
            lower=2000, lower_part=at, upper=2000, arrow=stream(*((f"{n}", n, 2000, 1, n) for n in range(at, at + 50)))
        )
        for at in range(0, 200, 50)
    ]
    server = grpc.server(ThreadPoolExecutor(2))
    add_GatewayServicer_to_server(Subscribes(first, *filled, ends=True), server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    link, rows = Link(lambda: Gateway(f"127.0.0.1:{port}", "secret")), CurrentRows("delays", "")
    try:
        following = current_rows._subscribe(link, pb.SubscribeRequest(subject="delays"), rows)
        assert next(following).time == 1000
        with pytest.raises(CliError, match="delays has more than 100000 rows, or "):
            list(following)
    finally:
        link.close()
        server.stop(None).wait()


def test_a_defect_of_the_thread_that_draws_ends_the_table() -> None:
    """Rather than leave the table as it was, for ever."""

    def frame(height: int) -> ScreenFrame:
        if threading.current_thread() is not threading.main_thread():
            raise ValueError("a defect")
        return ScreenFrame([], [], "")

    def draw() -> None:
        with live_table(frame) as changed:
            for thread in threading.enumerate():
                if thread.name == "live table":
                    thread.join(BOUND)
            changed()
            pytest.fail("the defect is not raised")

    with pytest.raises(ValueError, match="a defect"):
        draw()
