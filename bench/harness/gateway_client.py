"""A client of the gateway with a connection of its own, as programs have it that ask again and again."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import pyarrow as pa

from tidemark_protocol.pb.gateway_pb2 import QueryRequest
from tidemark_protocol.pb.gateway_pb2_grpc import GatewayStub
from tidemark_protocol.wire.frames import GRPC_OPTIONS


@dataclass(frozen=True)
class Answer:
    """Rows at a time: milliseconds since 1970."""

    as_of: int
    arrow: bytes

    def table(self) -> pa.Table:
        return pa.ipc.open_stream(self.arrow).read_all()


class GatewayClient:
    """One connection to the gateway of a gateway file, for one namespace."""

    def __init__(self, stub: Any, token: str, namespace: str) -> None:
        self._stub, self._token, self._namespace = stub, token, namespace

    def ask(self, sql: str, as_of: int | None = None, seconds: float = 60.0) -> Answer:
        """Raises: grpc.RpcError."""
        request = QueryRequest(namespace=self._namespace, sql=sql, as_of=as_of)
        replies = self._stub.Query(request, metadata=(("authorization", f"Bearer {self._token}"),), timeout=seconds)
        header = next(replies).header
        return Answer(header.as_of, b"".join(reply.arrow for reply in replies))


@contextmanager
def gateway_client(gateway_file: Path, namespace: str) -> Iterator[GatewayClient]:
    """A client for the block."""
    found = json.loads(gateway_file.read_text())
    token = Path(found["tokenFile"]).read_text().strip()
    options = [*GRPC_OPTIONS, ("grpc.use_local_subchannel_pool", 1)]
    with grpc.insecure_channel(found["address"], options=options) as channel:
        stub = GatewayStub(channel)  # type: ignore[no-untyped-call]
        yield GatewayClient(stub, token, namespace)
