"""Rows over HTTP: what reaches the ingester, and the status of each failure."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from typing import Any, cast

import aiohttp
import pytest

from tests.authorities import Authority
from tests.gateway.server.served_http import until
from tests.waiting import BOUND
from tidemark_operator.errors import OperatorError, QueryNotReady, QueryRefused, TooMany, WriteRefused, WriteUnknown
from tidemark_operator.gateway.admission import write_rate
from tidemark_operator.gateway.admission.limits import CALLS, GatewayLimits
from tidemark_operator.gateway.admission.write_rate import WriteRate
from tidemark_operator.gateway.auth.access import Access, Authenticator, Forbidden
from tidemark_operator.gateway.server import http_body, http_rows
from tidemark_operator.gateway.server.http_rows import HttpRows
from tidemark_operator.gateway.server.http_server import HttpServer
from tidemark_operator.gateway.streams.insert import Inserts, WriteTarget
from tidemark_protocol.pb.gateway_pb2 import InsertReply
from tidemark_protocol.tls.folder import Material
from tidemark_protocol.wire.password_login import PasswordLogin, encode

PATH = "/v1/namespaces/a/datasources/shop/tables/orders/rows"
TOKEN = {"Authorization": "Bearer token", "Content-Type": "application/json"}


class Ingester:
    """The other side: takes bodies, or fails."""

    def __init__(self, failure: Exception | None = None) -> None:
        self.failure = failure
        self.taken: list[tuple[WriteTarget, bytes]] = []
        self.begun, self.ended = asyncio.Event(), asyncio.Event()

    async def write(self, access: Access, target: WriteTarget, pieces: AsyncIterator[bytes]) -> InsertReply:
        self.begun.set()
        try:
            body = b"".join([piece async for piece in pieces])
        finally:
            self.ended.set()
        if self.failure is not None:
            raise self.failure
        self.taken.append((target, body))
        return InsertReply(table=target.table, time=1000, rows=2)


def rows(ingester: Ingester) -> HttpRows:
    return HttpRows(cast(Inserts, ingester), Authenticator("token", None), GatewayLimits())


def served(ingester: Ingester, calls: Any, material: Material | None = None) -> Any:
    """The result of `calls(session, url)` while HTTP is served."""

    async def scenario() -> Any:
        certified = None if material is None else lambda: material
        http = HttpServer([rows(ingester)], certified)
        port = await http.start("127.0.0.1", 0)
        try:
            async with aiohttp.ClientSession() as session:
                return await calls(session, f"{'https' if material else 'http'}://127.0.0.1:{port}{PATH}")
        finally:
            await http.close()

    return asyncio.run(scenario())


async def posted(session: aiohttp.ClientSession, url: str, body: Any = b"[]", **headers: str) -> tuple[int, Any]:
    async with session.post(url, data=body, headers=TOKEN | headers) as answer:
        return answer.status, await answer.json()


def test_a_post_is_one_call() -> None:
    ingester = Ingester()

    async def calls(session: aiohttp.ClientSession, url: str) -> Any:
        query = f"{url}?operation=upsert"
        return await posted(session, query, b"id\n1\n", **{"Content-Type": "text/csv", "Idempotency-Key": "k"})

    answer = {"table": "orders", "time": 1000, "rows": 2, "repeated": False}
    assert served(ingester, calls) == (200, answer)
    assert ingester.taken == [(WriteTarget("a", "shop", "orders", "upsert", "csv", "k"), b"id\n1\n")]


@pytest.mark.parametrize(
    ("failure", "status", "reason"),
    [
        (WriteRefused("DUPLICATE_KEY: x"), 400, "INVALID_ARGUMENT"),
        (QueryRefused("there is no DataSource"), 400, "INVALID_ARGUMENT"),
        (Forbidden("may not"), 403, "PERMISSION_DENIED"),
        (TooMany("slower"), 429, "RESOURCE_EXHAUSTED"),
        (QueryNotReady("not now"), 503, "FAILED_PRECONDITION"),
        (OperatorError("x"), 500, "INTERNAL"),
    ],
)
def test_each_failure_has_its_status(failure: Exception, status: int, reason: str) -> None:
    async def calls(session: aiohttp.ClientSession, url: str) -> Any:
        async with session.post(url, data=b"{}", headers=TOKEN) as answer:
            return answer.status, "Retry-After" in answer.headers, await answer.json()

    answer = {"error": str(failure), "reason": reason}
    assert served(Ingester(failure), calls) == (status, status in (429, 503), answer)


def test_a_call_without_a_key_is_not_to_be_repeated_after_a_lost_answer() -> None:
    async def calls(session: aiohttp.ClientSession, url: str) -> Any:
        answers = []
        for key in ({"Idempotency-Key": "k"}, {"Idempotency-Key": ""}, {}):
            async with session.post(url, data=b"{}", headers=TOKEN | key) as answer:
                answers.append((answer.status, "Retry-After" in answer.headers, (await answer.json())["error"]))
        return answers

    without = (500, False, "lost")
    assert served(Ingester(WriteUnknown("lost")), calls) == [(503, True, "lost"), without, without]


def test_unknown_callers_and_bodies_are_refused_before_the_ingester(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_rows, "BODY_BYTES_MAX", 1000)

    async def chunks() -> AsyncIterator[bytes]:
        for _ in range(20):
            yield b"x" * 100

    async def calls(session: aiohttp.ClientSession, url: str) -> list[int]:
        answers = [
            await posted(session, url, Authorization="Bearer guessed"),
            await posted(session, url, Authorization=f"Bearer {encode(PasswordLogin('ns', 'anne', 'token'))}"),
            await posted(session, url, **{"Content-Type": "text/plain"}),
            await posted(session, url, b"x" * 1001),
            await posted(session, url, chunks()),
        ]
        return [status for status, _ in answers]

    ingester = Ingester()
    assert served(ingester, calls) == [401, 401, 415, 413, 413]
    assert ingester.taken == []


def test_a_body_that_breaks_off_is_not_written() -> None:
    ingester = Ingester()

    async def calls(session: aiohttp.ClientSession, url: str) -> None:
        host, port = url.split("/")[2].split(":")
        _, writer = await asyncio.open_connection(host, int(port))
        head = f"POST {PATH} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer token\r\nContent-Type: application/json\r\n"
        writer.write(f"{head}Content-Length: 100\r\n\r\n[{{".encode())
        await writer.drain()
        async with asyncio.timeout(BOUND):
            await ingester.begun.wait()
            writer.close()
            await ingester.ended.wait()

    served(ingester, calls)
    assert ingester.taken == []


class Ticking(Ingester):
    """Writes at the next tick."""

    def __init__(self) -> None:
        super().__init__()
        self.read, self.tick = asyncio.Event(), asyncio.Event()

    async def write(self, access: Access, target: WriteTarget, pieces: AsyncIterator[bytes]) -> InsertReply:
        self.begun.set()
        try:
            body = b"".join([piece async for piece in pieces])
            self.read.set()
            await self.tick.wait()
            self.taken.append((target, body))
        finally:
            self.ended.set()
        return InsertReply(table=target.table, time=1000, rows=2)


@pytest.mark.parametrize("length", [2, 3])
def test_crash_a_client_that_goes_once_its_body_is_complete_has_written(length: int) -> None:
    """The client is a webhook, say, that waits for no tick. An incomplete body is not written."""

    async def scenario() -> Any:
        ingester, limits = Ticking(), GatewayLimits()
        http = HttpServer([HttpRows(cast(Inserts, ingester), Authenticator("token", None), limits)], None)
        _, writer = await asyncio.open_connection("127.0.0.1", await http.start("127.0.0.1", 0))
        head = f"POST {PATH} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer token\r\nContent-Type: application/json\r\n"
        writer.write(f"{head}Content-Length: {length}\r\n\r\n[]".encode())
        await (ingester.read if length == 2 else ingester.begun).wait()
        writer.close()
        server = cast(Any, http._runner).server
        await until(lambda: not server.connections)
        ingester.tick.set()
        await ingester.ended.wait()
        await until(lambda: limits.calls.free == CALLS)
        await http.close()
        return [body for _, body in ingester.taken]

    async def bounded() -> Any:
        async with asyncio.timeout(BOUND):
            return await scenario()

    assert asyncio.run(bounded()) == ([b"[]"] if length == 2 else [])


def test_an_unknown_content_type_is_answered_with_those_that_are_known() -> None:
    async def calls(session: aiohttp.ClientSession, url: str) -> Any:
        return await posted(session, url, **{"Content-Type": "application/xml"})

    status, answer = served(Ingester(), calls)
    assert status == 415
    assert answer["error"].startswith("Content-Type 'application/xml' is not one of application/json, ")


def test_a_call_that_waits_holds_up_the_end_of_the_gateway_for_a_moment() -> None:
    """Long before the minute that aiohttp would wait for it."""

    class Waiting(Ingester):
        async def write(self, access: Access, target: WriteTarget, pieces: AsyncIterator[bytes]) -> InsertReply:
            self.begun.set()
            try:
                await asyncio.Event().wait()
            finally:
                self.ended.set()
            raise AssertionError("nobody answers")

    async def scenario() -> None:
        ingester = Waiting()
        http = HttpServer([rows(ingester)], None)
        port = await http.start("127.0.0.1", 0)
        async with aiohttp.ClientSession() as session:
            call = asyncio.create_task(posted(session, f"http://127.0.0.1:{port}{PATH}"))
            await ingester.begun.wait()
            async with asyncio.timeout(30):
                await http.close()
                await ingester.ended.wait()
            with pytest.raises(aiohttp.ClientError):
                await call

    asyncio.run(scenario())


def test_a_slow_body_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_body, "BODY_SECONDS", 0.2)

    async def slow() -> AsyncIterator[bytes]:
        yield b"["
        await asyncio.sleep(1)
        yield b"]"

    status, answer = served(Ingester(), lambda session, url: posted(session, url, slow()))
    assert (status, "was not complete within" in answer["error"]) == (400, True)


def test_http_has_the_gateways_certificate() -> None:
    authority = Authority.named("gateway")
    pair = authority.server("127.0.0.1")
    material = Material(pair.certificate, pair.key, authority.pair.certificate)

    async def calls(session: aiohttp.ClientSession, url: str) -> Any:
        trusting = ssl.create_default_context(cadata=authority.pair.certificate.decode())
        trusting.check_hostname = False
        async with session.post(url, data=b"{}", headers=TOKEN, ssl=trusting) as answer:
            return answer.status

    assert served(Ingester(), calls, material) == 200


def test_a_caller_writes_so_often_and_delays_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    rate = WriteRate(lambda: now[0])
    for _ in range(int(write_rate.BURST_CALLS)):
        rate.take("anne")
    with pytest.raises(TooMany, match="anne writes more than 50 times a second"):
        rate.take("anne")
    rate.take("bob")
    now[0] = 0.1
    for _ in range(5):
        rate.take("anne")
    with pytest.raises(TooMany):
        rate.take("anne")
