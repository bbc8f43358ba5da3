"""A middleman before the API server that answers in its place, or loses its answers.

client ──HTTP──► middleman ──TLS──► API server
                    │  before: the request never arrives, and is answered with an error
                    └  after:  the request is done, and an error is answered all the same
"""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import aiohttp
from aiohttp import web
from kubernetes.aio import client, config

from tidemark_devcluster.control_plane.control_plane import ControlPlane
from tidemark_operator.kube.client import Kube


@dataclass
class Faults:
    """`fault` gives the status to answer with, and whether the request is done before, for each method and path."""

    fault: Callable[[str, str], tuple[int, bool] | None]
    told: list[str] = field(default_factory=list)


@asynccontextmanager
async def through_faults(plane: ControlPlane, namespace: str, faults: Faults) -> AsyncIterator[Kube]:
    """A client that reaches the API server through the middleman."""
    configuration = client.Configuration()
    await config.load_kube_config(str(plane.kubeconfig), client_configuration=configuration, persist_config=False)
    real, trust = configuration.host, ssl.create_default_context(cafile=configuration.ssl_ca_cert)

    async def answer(request: web.Request) -> web.Response:
        found = faults.fault(request.method, request.path)
        if found is not None:
            faults.told.append(f"{found[0]} {request.method} {request.path}")
        if found is None or found[1]:
            headers = {k: v for k, v in request.headers.items() if k.lower() not in ("host", "accept-encoding")}
            whole = f"{real}{request.raw_path}"
            sent = session.request(request.method, whole, data=await request.read(), headers=headers, ssl=trust)
            async with sent as got:
                body, status, kind = await got.read(), got.status, got.content_type
        if found is not None:
            settings = {"kind": "Status", "status": "Failure", "message": "planted", "code": found[0]}
            return web.json_response(settings, status=found[0])
        return web.Response(body=body, status=status, content_type=kind)

    async with aiohttp.ClientSession(auto_decompress=True) as session:
        app = web.Application(client_max_size=1 << 24)
        app.router.add_route("*", "/{path:.*}", answer)
        runner = web.AppRunner(app)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        configuration.host = f"http://127.0.0.1:{runner.addresses[0][1]}"
        try:
            async with client.ApiClient(configuration) as api:
                yield Kube(api, (namespace,))
        finally:
            await runner.cleanup()
