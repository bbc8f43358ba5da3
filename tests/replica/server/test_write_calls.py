"""WriteRows over gRPC: a call is written when its body is complete, and by no other end of its stream."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest

from tests.storage.ingestion_samples import oks
from tests.storage.written.written_tables import Writer
from tests.waiting import BOUND, until
from tidemark_protocol.pb import compute_pb2 as pb
from tidemark_protocol.pb.compute_pb2_grpc import ComputeStub
from tidemark_replica.events.mailbox import Mailbox
from tidemark_replica.server import write_calls
from tidemark_replica.server.epoch_gate import EpochGate
from tidemark_replica.server.server import ComputeService, start_server
from tidemark_replica.storage.written.receive import WriteHeader
from tidemark_replica.storage.written.refusal import WriteNotPossible


def not_asked(*_: object) -> Any:
    raise AssertionError("of rows alone")


@contextmanager
def served(writer: Writer, write: Callable[..., Any] | None = None) -> Iterator[ComputeStub]:
    """The replica's server in front of one ingestion."""

    def received(ingestion: str, header: WriteHeader, pieces: Iterable[bytes]) -> Any:
        return writer.inbox.put(writer.receiver.receive(header, pieces))

    service = ComputeService(
        EpochGate(), Mailbox(), *(not_asked,) * 4, write=write or received, list_shards=not_asked, release=not_asked
    )
    address = f"unix://{writer.root}/socket"
    server = start_server(service, address, None)
    try:
        with grpc.insecure_channel(address) as channel:
            yield ComputeStub(channel)  # type: ignore[no-untyped-call]
    finally:
        server.stop(0).wait()


def messages(*parts: pb.WriteRowsRequest, key: str = "k") -> list[pb.WriteRowsRequest]:
    header = pb.WriteRowsHeader(ingestion="src", table="plain", operation="insert", format="csv", key=key)
    return [pb.WriteRowsRequest(header=header), *parts]


BODY = (pb.WriteRowsRequest(data=b"id\n1"), pb.WriteRowsRequest(data=b"2\n"))
END = pb.WriteRowsRequest(end=6)


@contextmanager
def ticking(writer: Writer) -> Iterator[None]:
    """Tick while calls wait. An idle tick is a commit of each table, which tests of many calls would have to read."""
    done = threading.Event()

    def run() -> None:
        while not done.wait(0.02):
            if writer.inbox._calls:
                writer.tick()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def test_a_complete_call_is_answered_at_its_tick(tmp_path: Path) -> None:
    writer = Writer(tmp_path)
    with served(writer) as stub, ticking(writer):
        answers = [stub.WriteRows(iter(messages(*BODY, END)), timeout=BOUND) for _ in range(2)]
    assert [(a.rows, a.repeated, a.refusal) for a in answers] == [(1, False, ""), (1, True, "")]
    assert answers[0].time == answers[1].time
    assert [row[0] for row in oks(tmp_path, "plain")] == [12]


def test_a_call_of_several_tables(tmp_path: Path) -> None:
    """Each has what is done with its rows; a header that also says so for the call is refused."""
    writer = Writer(tmp_path)
    delete = [pb.WriteRowsSection(operation="delete", rows=1)]
    header = pb.WriteRowsHeader(ingestion="src", format="csv", key="k", tables=[
        pb.WriteRowsTable(table="plain", operation="insert", size=6),
        pb.WriteRowsTable(table="keyed", sections=delete, must_find=1, size=5),
    ])  # fmt: skip
    bodies = [pb.WriteRowsRequest(data=piece) for piece in (b"id\n1", b"2\nid", b"\n7\n")]
    call = [pb.WriteRowsRequest(header=header), *bodies, pb.WriteRowsRequest(end=11)]
    with served(writer) as stub, ticking(writer):
        assert stub.WriteRows(iter(call), timeout=BOUND).refusal.startswith("ROWS_MISSING")
        assert writer.put("keyed", b"id\n7\n").answer(BOUND)
        answers = [stub.WriteRows(iter(call), timeout=BOUND) for _ in range(2)]
        header.table = "plain"
        refused = stub.WriteRows(iter([pb.WriteRowsRequest(header=header), *bodies]), timeout=BOUND)
    assert [(a.rows, a.repeated, a.refusal) for a in answers] == [(2, False, ""), (2, True, "")]
    assert refused.refusal.startswith("BAD_REQUEST")
    assert [row[0] for row in oks(tmp_path, "plain")] == [12]
    assert oks(tmp_path, "keyed") == []


@pytest.mark.parametrize("parts", [(*BODY,), (), (*BODY, pb.WriteRowsRequest(end=5)), (pb.WriteRowsRequest(end=1),)])
def test_an_incomplete_body_is_not_written(tmp_path: Path, parts: tuple[Any, ...]) -> None:
    writer = Writer(tmp_path)
    with served(writer) as stub:
        with pytest.raises(grpc.RpcError) as failed:
            stub.WriteRows(iter(messages(*parts)), timeout=BOUND)
        assert failed.value.code() is grpc.StatusCode.CANCELLED
        writer.tick()
    assert oks(tmp_path, "plain") == []
    assert writer.spool.used_bytes == 0


def test_a_client_that_leaves_before_its_tick_has_written_nothing(tmp_path: Path) -> None:
    writer = Writer(tmp_path)
    with served(writer) as stub:
        call = stub.WriteRows.future(iter(messages(*BODY, END)))
        until(lambda: bool(writer.spool.used_bytes) and writer.inbox._calls)  # it waits for its tick
        call.cancel()
        until(lambda: writer.spool.used_bytes == 0)
        writer.tick()
    assert oks(tmp_path, "plain") == []


@pytest.mark.parametrize(
    ("sent", "refusal"),
    [
        ([], "BAD_REQUEST: the first message"),
        ([*BODY, END], "BAD_REQUEST: the first message"),
        ([*messages(), *messages()], "BAD_REQUEST: a call has one header"),
        (messages(pb.WriteRowsRequest(data=b"x\n1\n"), pb.WriteRowsRequest(end=4)), "UNKNOWN_FIELD: "),
    ],
)
def test_what_is_wrong_is_refused_in_the_answer(tmp_path: Path, sent: list[Any], refusal: str) -> None:
    with served(Writer(tmp_path)) as stub:
        assert stub.WriteRows(iter(sent), timeout=BOUND).refusal.startswith(refusal)


@pytest.mark.parametrize(
    ("failure", "code"),
    [
        (WriteNotPossible("not here"), grpc.StatusCode.FAILED_PRECONDITION),
        (WriteNotPossible("full", full=True), grpc.StatusCode.RESOURCE_EXHAUSTED),
        (OSError(28, "No space left on device"), grpc.StatusCode.FAILED_PRECONDITION),
    ],
)
def test_the_status_says_whether_to_repeat_a_call(tmp_path: Path, failure: Exception, code: grpc.StatusCode) -> None:
    def failing(*_: object) -> Any:
        raise failure

    with served(Writer(tmp_path), failing) as stub, pytest.raises(grpc.RpcError) as failed:
        stub.WriteRows(iter(messages(*BODY, END)), timeout=BOUND)
    assert failed.value.code() is code


def test_a_call_of_an_ingestion_that_ends_is_unknown(tmp_path: Path) -> None:
    writer = Writer(tmp_path)
    with served(writer) as stub:
        call = stub.WriteRows.future(iter(messages(*BODY, END)))
        until(lambda: bool(writer.inbox._calls))
        writer.inbox.close()
        assert call.exception(BOUND).code() is grpc.StatusCode.ABORTED


def test_calls_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(write_calls, "WRITES_MAX", 2)
    writer = Writer(tmp_path)
    with served(writer) as stub:
        waiting = [stub.WriteRows.future(iter(messages(*BODY, END, key=f"k{n}"))) for n in range(2)]
        until(lambda: len(writer.inbox._calls) == 2)
        with pytest.raises(grpc.RpcError) as failed:
            stub.WriteRows(iter(messages(*BODY, END, key="k3")), timeout=BOUND)
        assert failed.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        writer.tick()
        assert [call.result(BOUND).rows for call in waiting] == [1, 1]
