"""The gateway's gRPC server: authenticates each call, and streams answers in chunks as the client takes them.

    STATE/gateway.token    a random token, mode 0600, new with each operator: gives its reader every right
    STATE/gateway.crt      the authority of the gateway's certificate, where that is the operator's own
    gateway.json           {"address": "127.0.0.1:40123", "tokenFile": "..."}: how a client finds the gateway

A call that the client cancels is cancelled on the replicas. Calls and the memory of answers are bounded
(admission/limits.py).
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import secrets
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc

from tidemark_operator.errors import OperatorError, QueryRefused
from tidemark_operator.fleet.clock import now_ms
from tidemark_operator.gateway.admission.fair_queue import PLACE_LISTENER, FairQueue
from tidemark_operator.gateway.admission.limits import CALLS, GatewayLimits
from tidemark_operator.gateway.auth.access import Access, Authenticator
from tidemark_operator.gateway.auth.password_logins import PasswordLogins
from tidemark_operator.gateway.definitions.definitions import Definitions
from tidemark_operator.gateway.explanations.draft_plan import PlanAsker
from tidemark_operator.gateway.explanations.explain import explain, explain_replan
from tidemark_operator.gateway.explanations.unapplied import explain_definition, explain_manifests
from tidemark_operator.gateway.explanations.visible_relations import visible_relations
from tidemark_operator.gateway.explanations.why import find_causes
from tidemark_operator.gateway.explanations.why_snapshot import RelationSnapshots
from tidemark_operator.gateway.query.statement_cache import StatementCache
from tidemark_operator.gateway.query.statement_shape import SPARK
from tidemark_operator.gateway.server.grpc_status import grpc_errors
from tidemark_operator.gateway.server.http_rows import HttpRows
from tidemark_operator.gateway.server.http_server import HttpServer
from tidemark_operator.gateway.server.listener import ListenerConfig, TlsFolder
from tidemark_operator.gateway.server.query_stream import QueryStream, header_of, query_of
from tidemark_operator.gateway.streams.copy import Copies
from tidemark_operator.gateway.streams.insert import Inserts, target_of
from tidemark_operator.gateway.streams.leases import Leases
from tidemark_operator.gateway.streams.query_answer import Queries, QueryAnswer
from tidemark_operator.gateway.streams.subscribe import GrpcSubscriber, Subscribes
from tidemark_operator.handlers.reconcile.data_source import DataSourceReconciler
from tidemark_operator.handlers.reconcile_context import ReconcileContext
from tidemark_operator.introspection.files import change_file, files
from tidemark_operator.introspection.frontiers import frontiers
from tidemark_operator.introspection.retained_tables import RetainedTables, retained_table
from tidemark_operator.introspection.top import top
from tidemark_operator.kube.reviews import Reviews
from tidemark_protocol import tracing
from tidemark_protocol.explained_plan import OUTPUTS
from tidemark_protocol.pb import gateway_pb2, gateway_pb2_grpc
from tidemark_protocol.wire.frames import GRPC_OPTIONS

LOG = logging.getLogger(__name__)
REST_BYTES, REST_SECONDS = 1024 * 1024, 5.0
"""The bytes of a body that are read after its refusal, and the seconds, at most."""
KEEPALIVE = (
    ("grpc.keepalive_time_ms", 20_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
)
"""The call of a client that vanished ends after half a minute."""
STOP_SECONDS = 1.0


class Gateway(gateway_pb2_grpc.GatewayServicer):
    """`state`: the folder of the token; `file`: gateway.json, where clients look. It writes no other files. `defines`:
    whether SQL defines Dataflows; `passwords`: whether users log in by passwords, too."""

    def __init__(
        self,
        context: ReconcileContext,
        sources: DataSourceReconciler,
        tables: RetainedTables,
        state: Path,
        listening: ListenerConfig,
        file: Path,
        defines: bool = True,
        passwords: bool = True,
    ) -> None:
        self._context, self._sources, self._tables = context, sources, tables
        self._state, self._listening, self._file = state, listening, file
        self._token = secrets.token_urlsafe(32)
        logins = PasswordLogins(context.kube) if passwords else None
        self._authenticator = Authenticator(self._token, Reviews(context.kube), logins=logins)
        self._limits = GatewayLimits()
        self._statements = StatementCache(context.registry, context.planner, self._limits.planner)
        self._leases = Leases(context, self._statements)
        self._queries = Queries(context, self._statements, tables, self._limits)
        self._subscribes = Subscribes(context, self._limits)
        self._copies = Copies(context, self._limits)
        self._inserts = Inserts(context, self._limits)
        self._definitions = Definitions(context, self._limits, defines)
        self._http: HttpServer | None = None
        self._streams = set[QueryStream]()
        self._server = grpc.aio.server(options=[*GRPC_OPTIONS, *KEEPALIVE], maximum_concurrent_rpcs=CALLS)
        gateway_pb2_grpc.add_GatewayServicer_to_server(self, self._server)  # type: ignore[no-untyped-call]

    async def start(self) -> None:
        """Listen, then write the token and gateway.json.

        Raises:
            OperatorError: a port is taken, or a certificate or authority cannot be read.
        """
        kube, peers = self._context.kube, self._context.peers
        address = self._listening.add_to(self._server, peers)
        for_certificates = await self._listening.add_clients_to(self._server, kube, peers)
        await self._server.start()
        token = self._state / "gateway.token"
        write_private(token, self._token + "\n")
        authority = self._authority_file()
        certificates = {"certificateAddress": for_certificates} if for_certificates else {}
        http = await self._serve_http()
        found = {"address": address, "tokenFile": str(token), **authority, **certificates, **http}
        write_private(self._file, json.dumps(found) + "\n")
        LOG.info("gateway on %s%s", address, f", with client certificates on {for_certificates}" * bool(certificates))

    async def _serve_http(self) -> dict[str, str]:
        listening = self._listening
        if listening.http_port is None:
            return {}
        from tidemark_operator.gateway.server.http_reads import HttpReads  # pyarrow takes 50 MB

        edge = (self._authenticator, self._limits)
        parts = HttpRows(self._inserts, *edge), HttpReads(self._queries, self._subscribes, *edge)
        self._http = HttpServer(parts, listening.material(self._context.peers))
        port = await self._http.start(listening.host, listening.http_port)
        return {"httpAddress": str(replace(listening, port=port))}

    def _authority_file(self) -> dict[str, str]:
        """`caFile` for clients on this machine; others find the authority in the Service's EndpointSlice."""
        tls, file = self._listening.tls, self._state / "gateway.crt"
        if isinstance(tls, TlsFolder):
            return {"caFile": str(tls.folder / "ca.crt")}
        if (issued := self._listening.authorities(self._context.peers)) is None:
            return {}
        write_private(file, issued.decode())
        return {"caFile": str(file)}

    async def close(self) -> None:
        if self._http is not None:
            await self._http.close()
        for stream in self._streams:
            stream.finish()
        await self._server.stop(STOP_SECONDS)

    async def Query(self, request: Any, rpc: Any) -> None:
        """Send the header, then the Arrow stream in chunks; while the query waits in a queue, its place before."""
        async with self._admitted(rpc) as access:
            if request.places:
                PLACE_LISTENER.set(lambda place: rpc.write(gateway_pb2.QueryReply(waiting=place)))
            asked = replace(query_of(request), trace_context=tracing.from_metadata(rpc.invocation_metadata()) or "")
            await self._queries.serve(access, asked, GrpcQueryClient(rpc))

    async def Queries(self, requests: Any, rpc: Any) -> None:
        """Answer the queries of a stream, each for its own caller. The opener alone holds a place for the stream."""
        async with grpc_errors(rpc):
            access = await self._admit(rpc)
            async with self._limits.streams.hold(access.caller):
                stream = QueryStream(self._queries, self._authenticator, self._limits, rpc)
                self._streams.add(stream)
                try:
                    await stream.serve(requests)
                finally:
                    self._streams.discard(stream)

    async def Describe(self, request: Any, rpc: Any) -> Any:
        """Plan a query, and send its columns."""
        async with self._admitted(rpc) as access:
            columns = await self._queries.describe(access, query_of(request))
            names, types = [c.name for c in columns], [str(c.type) for c in columns]
            nullable = [c.nullable for c in columns]
            return gateway_pb2.DescribeReply(column_names=names, column_types=types, nullable=nullable)

    async def Subscribe(self, request: Any, rpc: Any) -> None:
        """Send the header, then batches as the client takes them."""
        async with self._admitted(rpc) as access:
            await self._subscribes.serve(access, lambda: self._admit(rpc), request, GrpcSubscriber(rpc, request))

    async def Copy(self, request: Any, rpc: Any) -> Any:
        async with self._admitted(rpc) as access:
            return await self._copies.serve(access, request)

    async def Lease(self, request: Any, rpc: Any) -> Any:
        """Renew what a client holds."""
        async with self._admitted(rpc) as access:
            asked = (request.namespace, request.id, request.as_of, request.relations)
            return gateway_pb2.LeaseReply(relations=await self._leases.renew(access, *asked))

    async def EndLeases(self, request: Any, rpc: Any) -> Any:
        async with self._admitted(rpc):
            self._leases.end(request.ids)
            return gateway_pb2.EndLeasesReply()

    async def Caller(self, request: Any, rpc: Any) -> Any:
        async with self._admitted(rpc) as access:
            return gateway_pb2.CallerReply(name=access.caller)

    async def Relations(self, request: Any, rpc: Any) -> Any:
        async with self._admitted(rpc) as access:
            return await visible_relations(self._context.registry, access, request.namespace)

    async def Frontiers(self, request: Any, rpc: Any) -> Any:
        async with self._admitted(rpc) as access:
            await access.check_objects("" if request.all_namespaces else request.namespace)
            return frontiers(self._context, request.namespace, request.all_namespaces)

    async def Top(self, request: Any, rpc: Any) -> Any:
        async with self._admitted(rpc) as access:
            await access.check_objects("" if request.all_namespaces else request.namespace)
            return top(self._context, request.namespace, request.all_namespaces)

    async def Explain(self, request: Any, rpc: Any) -> Any:
        async with self._admitted(rpc) as access:
            await access.check_objects(request.namespace)
            output = request.output or OUTPUTS[0]
            if output not in OUTPUTS:
                raise QueryRefused(f"output {output!r:.40} is none of {', '.join(OUTPUTS)}")
            asker = PlanAsker(self._context, self._limits.planner, access, request.namespace)
            if request.replan:
                plan, same = await explain_replan(asker, request.subject)
                replan = "same" if same else "other"
                return gateway_pb2.ExplainReply(text=plan.form(output), output=output, replan=replan)
            if request.manifests:
                found = await explain_manifests(asker, request.manifests)
                made = [gateway_pb2.ExplainedManifest(name=name, text=plan.form(output)) for name, plan in found]
                return gateway_pb2.ExplainReply(output=output, manifests=made)
            if request.HasField("definition"):
                plan = await explain_definition(asker, request.definition)
                return gateway_pb2.ExplainReply(text=plan.form(output), output=output)
            plan = await explain(asker, request.subject, request.dialect or SPARK, analyze=request.analyze)
            return gateway_pb2.ExplainReply(text=plan.form(output), output=output, analyzed=request.analyze)

    async def Why(self, request: Any, rpc: Any) -> Any:
        async with self._admitted(rpc) as access:
            await access.check_objects(request.namespace)
            causes = find_causes(request.name, RelationSnapshots(self._context, request.namespace))
            return gateway_pb2.WhyReply(causes=causes, now=now_ms())

    async def Files(self, request: Any, rpc: Any) -> Any:
        async with self._admitted(rpc) as access:
            await access.check_objects(request.namespace)
            return files(self._context, request.namespace, request.source)

    async def RetainedTables(self, request: Any, rpc: Any) -> Any:
        async with self._admitted(rpc) as access:
            await access.check_objects(request.namespace)
            listing = await self._tables.listing(request.namespace)
            return gateway_pb2.RetainedTablesReply(
                tables=map(retained_table, listing.tables), more=listing.more, unlisted=listing.unlisted
            )

    async def DeleteTable(self, request: Any, rpc: Any) -> Any:
        """Store that a table which no object has is to be deleted."""
        async with self._admitted(rpc) as access:
            await access.check_tables(request.namespace)
            location = await self._tables.delete(request.namespace, request.table, request.instance)
            return gateway_pb2.DeleteTableReply(location=location)

    async def ChangeFile(self, request: Any, rpc: Any) -> Any:
        """Store a request about a file of a DataSource."""
        async with self._admitted(rpc) as access:
            await access.check_files(request.namespace, request.source)
            asked = (request.namespace, request.source, request.action, request.file)
            return gateway_pb2.ChangeFileReply(id=await change_file(self._context, self._sources, *asked))

    async def Define(self, request: Any, rpc: Any) -> Any:
        """Create or edit a Dataflow for the caller."""
        async with self._admitted(rpc) as access:
            return gateway_pb2.DefineReply(**vars(await self._definitions.define(access, request)))

    async def Drop(self, request: Any, rpc: Any) -> Any:
        """Delete a Dataflow for the caller."""
        async with self._admitted(rpc) as access:
            return gateway_pb2.DropReply(**vars(await self._definitions.drop(access, request)))

    async def Insert(self, requests: Any, rpc: Any) -> Any:
        """Pass a call that writes rows on to the ingester."""
        async with self._admitted(rpc) as access:
            first = await anext(requests, None)
            if first is None or first.WhichOneof("part") != "header":
                raise QueryRefused("the first message of a call is its header")
            try:
                return await self._inserts.write(access, target_of(first.header), _body(requests))
            except OperatorError:
                await _read_rest(requests)
                raise

    async def DescribeTable(self, request: Any, rpc: Any) -> Any:
        async with self._admitted(rpc) as access:
            asked = (request.namespace, request.source, request.table, request.operation)
            table, table_id = await self._inserts.describe(access, *asked)
            return gateway_pb2.DescribeTableReply(
                table=table.name,
                column_names=[column.name for column in table.columns],
                column_types=[str(column.type) for column in table.columns],
                primary_key=table.primary_key,
                table_id=table_id,
            )

    @asynccontextmanager
    async def _admitted(self, rpc: Any) -> AsyncIterator[Access]:
        """Authenticate the caller and hold one of its calls; an error in the block ends the call with its status."""
        async with grpc_errors(rpc):
            access = await self._admit(rpc)
            async with self._limits.calls.hold(access.caller):
                yield access

    async def _admit(self, rpc: Any) -> Access:
        shown = dict(rpc.invocation_metadata()).get("authorization")
        if shown is None and (certificate := rpc.auth_context().get("x509_pem_cert")):
            return self._authenticator.authenticate_certificate(certificate[0])
        return await self._authenticator.authenticate(shown or "")


class GrpcQueryClient:
    """A client over gRPC takes the pieces of an Arrow stream as they are."""

    large: FairQueue | None = None

    def __init__(self, rpc: Any) -> None:
        self._rpc = rpc

    def take(self, answer: QueryAnswer, data: bytes) -> bool:
        return False

    async def messages(self, answer: QueryAnswer) -> AsyncGenerator[Any, None]:
        yield gateway_pb2.QueryReply(header=header_of(answer))
        async for piece in answer.arrow:
            yield gateway_pb2.QueryReply(arrow=piece)

    async def write(self, message: Any) -> None:
        await self._rpc.write(message)


async def _body(requests: AsyncIterator[Any]) -> AsyncIterator[bytes]:
    """The pieces of a body. Raises QueryRefused where it is not complete."""
    size = 0
    async for request in requests:
        part = request.WhichOneof("part")
        if part == "end" and request.end == size:
            return
        if part != "data":
            raise QueryRefused(f"{size} bytes of the body came, and then no data: nothing is written")
        size += len(request.data)
        yield request.data
    raise QueryRefused(f"the body broke off after {size} bytes: nothing is written")


async def _read_rest(requests: AsyncIterator[Any]) -> None:
    """Read what a refused client still sends, within bounds. One whose stream ends while it sends may see a broken
    connection in the place of the refusal, and then cannot tell whether the rows were written."""
    left = REST_BYTES
    with suppress(TimeoutError, QueryRefused):
        async with asyncio.timeout(REST_SECONDS):
            async for request in requests:
                left -= request.ByteSize()
                if left < 0:
                    return


def write_private(path: Path, text: str) -> None:
    """Replace the file atomically, with mode 0600."""
    new = path.with_name(f".{path.name}.new")
    with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        file.write(text)
    os.replace(new, path)
