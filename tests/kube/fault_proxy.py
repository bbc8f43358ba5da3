"""A proxy between a client and the real API server that injects faults of networks and busy servers.

    client ──http──► FaultProxy ──https──► kube-apiserver
                       which requests (a predicate) ─► meet which fault, and how often

What is not asked for by a test passes as it is, watches line by line.
"""

from __future__ import annotations

import asyncio
import json
import ssl
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

import aiohttp
import yaml
from aiohttp import web

from tests.waiting import BOUND


class Fault(Enum):
    CONFLICT = 409
    GONE = 410
    NOWHERE = "404 page not found, as of a load balancer that has nobody behind it"
    BUSY = 429
    BROKEN = 500
    UNAVAILABLE = 503
    DONE_AND_BROKEN = "it is done, and the answer is a 500"
    DONE_AND_LOST = "it is done, and the connection ends without an answer"
    LOST = "the connection ends, and nothing is done"
    HANGS = "nobody answers"
    ENDS = "a watch ends at its first event"
    ENDS_WITHIN = "a watch ends in the middle of its first event"
    EXPIRES = "a watch says that its resource version is gone"
    FAILS = "a watch says that the server failed"
    OVERLOADED = "a watch says that the server has too much to do"


AT_ONCE = (Fault.CONFLICT, Fault.GONE, Fault.BUSY, Fault.BROKEN, Fault.UNAVAILABLE)
ERRORS = {Fault.EXPIRES: (410, "Expired"), Fault.FAILS: (500, "InternalError"), Fault.OVERLOADED: (503, "Unavailable")}
"""Events of a watch that say why it ends."""
OF_WATCHES = (Fault.ENDS, Fault.ENDS_WITHIN, *ERRORS)


@dataclass(frozen=True)
class Asked:
    """A request, as far as tests tell them apart."""

    method: str
    path: str
    watch: bool


Chosen = Callable[[Asked], Fault | None]


class FaultProxy:
    """Serves on a port of its own, from a thread of its own. `met` is what was done to whom."""

    def __init__(self, kubeconfig: Path) -> None:
        self._document = yaml.safe_load(kubeconfig.read_text())
        self._server: str = self._document["clusters"][0]["cluster"]["server"]
        self.met: list[tuple[Asked, Fault]] = []
        self._chosen: Chosen = lambda asked: None
        self._loop = asyncio.new_event_loop()
        self._ready = threading.Event()
        self.port = 0
        self._thread = threading.Thread(target=self._loop.run_until_complete, args=(self._serve(),), daemon=True)
        self._thread.start()
        assert self._ready.wait(BOUND)

    def choose(self, chosen: Chosen) -> None:
        """From now on; called once per request, on the proxy's thread."""
        self._chosen = chosen

    def heal(self) -> None:
        self.choose(lambda asked: None)

    def kubeconfig(self, path: Path) -> Path:
        """The kubeconfig of a client that comes this way, as the same user."""
        cluster = {"server": f"http://127.0.0.1:{self.port}"}
        clusters = [{**each, "cluster": cluster} for each in self._document["clusters"]]
        path.write_text(yaml.safe_dump({**self._document, "clusters": clusters}))
        return path

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._end.set)
        self._thread.join(BOUND)

    async def _serve(self) -> None:
        self._end = asyncio.Event()
        trust = ssl.create_default_context(cadata=_authority(self._document))
        connector = aiohttp.TCPConnector(ssl=trust, limit=0)
        async with aiohttp.ClientSession(connector=connector, auto_decompress=False) as self._session:
            runner = web.AppRunner(_application(self._handle), shutdown_timeout=0.1)
            await runner.setup()
            site = web.TCPSite(runner, "127.0.0.1", 0)
            await site.start()
            self.port = runner.addresses[0][1]
            self._ready.set()
            await self._end.wait()
            await runner.cleanup()
        # of connections whose clients are gone
        left = asyncio.all_tasks() - {asyncio.current_task()}
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        asked = Asked(request.method, request.path, request.query.get("watch") in ("true", "1"))
        fault = self._chosen(asked)
        if fault is not None:
            self.met.append((asked, fault))
        match fault:
            case None:
                return await self._pass(request, asked, None)
            case Fault.HANGS:
                await self._end.wait()
                return _refusal(503)
            case Fault.LOST:
                return _cut(request)
            case Fault.NOWHERE:
                return web.Response(status=404, text="404 page not found\n")
            case Fault.DONE_AND_LOST:
                await self._pass(request, asked, fault)
                return _cut(request)
            case Fault.DONE_AND_BROKEN:
                await self._pass(request, asked, fault)
                return _refusal(500)
            case _ if fault in OF_WATCHES:
                return await self._pass(request, asked, fault)
            case _:
                return _refusal(int(fault.value))

    async def _pass(self, request: web.Request, asked: Asked, fault: Fault | None) -> web.StreamResponse:
        headers = {name: value for name, value in request.headers.items() if name.lower() not in ("host",)}
        body = await request.read()
        url = self._server + str(request.rel_url)
        timeout = aiohttp.ClientTimeout(total=None)
        async with self._session.request(
            request.method, url, headers=headers, data=body or None, timeout=timeout
        ) as answer:
            if not asked.watch or fault in (Fault.DONE_AND_LOST, Fault.DONE_AND_BROKEN):
                kept = {n: v for n, v in answer.headers.items() if n.lower() in ("content-type", "content-encoding")}
                return web.Response(status=answer.status, headers=kept, body=await answer.read())
            response = web.StreamResponse(status=answer.status, headers={"Content-Type": "application/json"})
            await response.prepare(request)
            async for line in _watched(answer, fault):
                await response.write(line)
            if fault is Fault.ENDS_WITHIN:
                return _cut(request)
            return response


async def _watched(answer: aiohttp.ClientResponse, fault: Fault | None) -> AsyncIterator[bytes]:
    if fault in ERRORS:
        code, reason = ERRORS[fault]
        why = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": reason, "code": code}
        yield json.dumps({"type": "ERROR", "object": {**why, "message": fault.value}}).encode() + b"\n"
        return
    async for line in answer.content:
        if fault is Fault.ENDS:
            return
        if fault is Fault.ENDS_WITHIN:
            yield line[: len(line) // 2]
            return
        yield line


def _application(handle: Any) -> web.Application:
    application = web.Application(client_max_size=1 << 24)
    application.router.add_route("*", "/{tail:.*}", handle)
    return application


def _refusal(status: int) -> web.Response:
    """The refusal in the API server's words. A 429 says when to come back."""
    headers = {"Retry-After": "1"} if status == 429 else {}
    body = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": status, "message": "a fault"}
    return web.json_response(body, status=status, headers=headers)


def _cut(request: web.Request) -> web.Response:
    """Whatever is returned is not sent any more."""
    assert request.transport is not None
    request.transport.abort()
    return web.Response()


def _authority(document: dict[str, Any]) -> str:
    import base64

    cluster = document["clusters"][0]["cluster"]
    if "certificate-authority-data" in cluster:
        return base64.b64decode(cluster["certificate-authority-data"]).decode()
    return Path(cluster["certificate-authority"]).read_text()


@contextmanager
def fault_proxy(kubeconfig: Path) -> Iterator[FaultProxy]:
    proxy = FaultProxy(kubeconfig)
    try:
        yield proxy
    finally:
        proxy.close()
