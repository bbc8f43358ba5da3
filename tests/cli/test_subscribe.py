"""`subscribe` and `copy` against a scripted gateway."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import pyarrow as pa
import pytest

from tidemark_cli.main import main
from tidemark_protocol.pb import gateway_pb2 as pb
from tidemark_protocol.pb.gateway_pb2_grpc import GatewayServicer, add_GatewayServicer_to_server

EMPTY = 2**63 - 1
HEADER = pb.SubscribeHeader(as_of=1000, column_names=["name", "n"], column_types=["string", "bigint"])


def stream(*updates: tuple[str, int, int, int, int]) -> bytes:
    """Name, n, time, diff, part."""
    types = [pa.string(), pa.int64(), pa.int64(), pa.int64(), pa.uint64()]
    arrays = [pa.array([u[i] for u in updates], t) for i, t in enumerate(types)]
    batch = pa.RecordBatch.from_arrays(arrays, names=["c0", "c1", "__time", "__diff", "__part"])
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    data: bytes = sink.getvalue().to_pybytes()
    return data


FIRST = stream(("a", 1, 1000, 1, 5), ("b", 2, 1000, 1, 2**63))
# another replica's: what is before (1000, 2**63 + 1) has been told
SECOND = stream(("a", 1, 1000, 1, 5), ("b", 2, 1000, 1, 2**63), ("c", 3, 1000, 1, 2**64 - 1), ("a", 1, 2000, -1, 5))


class Scripted(GatewayServicer):
    def __init__(self) -> None:
        self.asked: list[Any] = []

    def Subscribe(self, request: pb.SubscribeRequest, context: grpc.ServicerContext) -> Iterator[pb.SubscribeReply]:
        self.asked.append(request)
        yield pb.SubscribeReply(header=HEADER)
        for batch in (
            pb.SubscribeBatch(upper=1000, arrow=FIRST[:100], more=True),
            pb.SubscribeBatch(upper=1000, arrow=FIRST[100:]),
            pb.SubscribeBatch(lower=1000, lower_part=2**63 + 1, upper=3000, arrow=SECOND),
            pb.SubscribeBatch(lower=3000, upper=EMPTY),
        ):
            yield pb.SubscribeReply(batch=batch)

    def Copy(self, request: pb.CopyRequest, context: grpc.ServicerContext) -> pb.CopyReply:
        self.asked.append(request)
        if request.to == "taken":
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, "taken exists")
        return pb.CopyReply(as_of=1000, row_count=1, location=f"/data/default/_copies/{request.to}")


@pytest.fixture
def gateway(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Scripted]:
    server, scripted = grpc.server(ThreadPoolExecutor(2)), Scripted()
    add_GatewayServicer_to_server(scripted, server)  # type: ignore[no-untyped-call]
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    (tmp_path / "token").write_text("secret\n")
    (tmp_path / "gateway.json").write_text(
        json.dumps({"address": f"127.0.0.1:{port}", "tokenFile": str(tmp_path / "token")})
    )
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "kubeconfig"))
    yield scripted
    server.stop(None).wait()


def test_a_subscribe_prints_changes_in_order_and_each_once(
    gateway: Scripted, capsys: pytest.CaptureFixture[str]
) -> None:
    """A stream that comes in pieces; one that begins with what has been told."""
    assert main(["subscribe", "delays", "--progress", "--up-to", "3000"]) == 0
    out, err = capsys.readouterr()

    assert [line.split() for line in out.splitlines()] == [
        ["__time", "__diff", "name", "n"],
        ["1970-01-01T00:00:01.000Z", "1", "a", "1"],
        ["1970-01-01T00:00:01.000Z", "1", "b", "2"],
        ["1970-01-01T00:00:01.000Z", "1", "c", "3"],
        ["1970-01-01T00:00:02.000Z", "-1", "a", "1"],
    ]
    told = [line for line in err.splitlines() if line.startswith("(complete before")]
    assert told == ["(complete before 1970-01-01T00:00:03.000Z)"]
    assert err.splitlines()[-1] == "(finished)"
    asked = pb.SubscribeRequest(namespace="default", subject="delays", up_to=3000, progress=True, parts=True)
    assert gateway.asked == [asked]


def test_a_subscribe_prints_json_lines(gateway: Scripted, capsys: pytest.CaptureFixture[str]) -> None:
    """One change per line, and how far all is told where that is asked."""
    assert main(["subscribe", "delays", "-o", "json", "--progress", "--no-snapshot", "--as-of", "7"]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]

    assert lines[0] == {"__time": 1000, "__diff": 1, "name": "a", "n": 1}
    assert [line["__progress"] for line in lines if "__progress" in line] == [3000, None]
    assert len(lines) == 6
    assert gateway.asked[0].without_snapshot
    assert gateway.asked[0].as_of == 7


def test_a_copy_says_where_it_is_or_why_not(gateway: Scripted, capsys: pytest.CaptureFixture[str]) -> None:
    """One line, or one object."""
    assert main(["copy", "delays", "--to", "x", "--format", "csv"]) == 0
    assert capsys.readouterr().out == "1 row as of 1970-01-01T00:00:01.000Z copied to /data/default/_copies/x\n"
    assert main(["copy", "delays", "--to", "x", "--format", "parquet", "-o", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document == {"as_of": 1000, "rows": 1, "location": "/data/default/_copies/x"}
    assert main(["copy", "delays", "--to", "taken", "--format", "csv"]) == 1
    assert capsys.readouterr().err == "error: taken exists\n"
    assert gateway.asked[0] == pb.CopyRequest(namespace="default", subject="delays", to="x", format="csv")


def test_a_time_that_is_none_is_refused_under_its_option(gateway: Scripted, capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing is asked."""
    assert main(["subscribe", "delays", "--up-to", "soon"]) == 2
    assert "'--up-to': 'soon'" in capsys.readouterr().err
    assert gateway.asked == []
