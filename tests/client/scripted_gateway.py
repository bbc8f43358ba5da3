"""A gateway that answers from a history, over real gRPC: a relation of every type, and one whose changes are known."""

from __future__ import annotations

import datetime
import decimal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import grpc
import pyarrow as pa

from tidemark_protocol.pb import gateway_pb2 as pb
from tidemark_protocol.pb.gateway_pb2_grpc import GatewayServicer, add_GatewayServicer_to_server

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
        self.columns = [("name", "string"), ("n", "int")]
        self.queries: list[pb.QueryRequest] = []
        self.subscribes: list[pb.SubscribeRequest] = []
        self.breaks = 0
        self.leases: dict[str, tuple[int, tuple[str, ...]]] = {}
        """Time and relations of each."""
        self.renewed: list[int] = []
        self.relations = ["counts"]
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
        leased = self.relations if request.lease else []
        if leased:
            self.leases[request.lease] = at, tuple(leased)
        yield pb.QueryReply(header=pb.QueryHeader(as_of=at, column_names=names, column_types=types, leased=leased))
        table = ROWS if is_sales else pa.table({"c0": pa.array([], pa.string()), "c1": pa.array([], pa.int32())})
        yield pb.QueryReply(arrow=ipc(table.slice(0, 0) if request.sql.endswith("LIMIT 0") else table))

    def Lease(self, request: pb.LeaseRequest, context: grpc.ServicerContext) -> pb.LeaseReply:
        if request.as_of < self.since:
            context.abort(grpc.StatusCode.OUT_OF_RANGE, f"nothing can be held at {request.as_of} any more")
        self.leases[request.id] = request.as_of, tuple(request.relations)
        self.renewed.append(request.as_of)
        return pb.LeaseReply(relations=request.relations)

    def EndLeases(self, request: pb.EndLeasesRequest, context: grpc.ServicerContext) -> pb.EndLeasesReply:
        for id in request.ids:
            self.leases.pop(id, None)
        return pb.EndLeasesReply()

    def Subscribe(self, request: pb.SubscribeRequest, context: grpc.ServicerContext) -> Iterator[pb.SubscribeReply]:
        self.subscribes.append(request)
        at = request.as_of if request.HasField("as_of") else self.upper - 1
        if at < self.since:
            context.abort(grpc.StatusCode.OUT_OF_RANGE, f"cannot be read at {at} any more: only from 1970 on")
        if at >= self.upper:
            context.abort(grpc.StatusCode.OUT_OF_RANGE, f"counts is not complete at {at} yet")
        names, types = zip(*self.columns, strict=True)
        header = pb.SubscribeHeader(as_of=at, column_names=names, column_types=types, reads=self.reads)
        header.relations.extend(self.relations)
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
