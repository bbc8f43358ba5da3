"""Watches, by kopf: every event of our four kinds goes to the operator, which keeps a cache and a queue of its own.

Only `on.event` is used: it stores nothing in the objects (no last-handled annotation, which grows with the spec), adds
no finalizer and cannot fail for good. kopf's part is what it does well: listing, watching, reconnecting, credentials.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterable, Iterator
from itertools import repeat
from pathlib import Path
from typing import Any

import kopf

from tidemark_operator.kube.client import OURS, Body, Resource
from tidemark_operator.resources.meta import GROUP

Observed = Callable[[Resource, Body, bool], None]


def registry_of(observed: Observed, kubeconfig: Path | None) -> kopf.OperatorRegistry:
    """Handlers of our own registry: nothing global."""
    registry = kopf.OperatorRegistry()

    @kopf.on.login(registry=registry)
    def login(**arguments: Any) -> kopf.ConnectionInfo | None:
        if kubeconfig is None:
            return kopf.login_with_service_account(**arguments)
        return kopf.login_with_kubeconfig(**arguments)

    for resource in OURS:
        _watch(registry, resource, observed)
    return registry


def _watch(registry: kopf.OperatorRegistry, resource: Resource, observed: Observed) -> None:
    @kopf.on.event(resource.group, resource.version, resource.plural, registry=registry, id=f"watch-{resource.plural}")
    async def handle(event: Any, **_: Any) -> None:
        observed(resource, dict(event["object"]), event["type"] == "DELETED")


class Forever(Iterable[float]):
    """Pauses between attempts, without an end: kopf gives up after a finite number of them, and takes all with it."""

    def __iter__(self) -> Iterator[float]:
        yield from (1.0, 2.0, 4.0)
        yield from repeat(8.0)


class Uncompared(kopf.DiffBaseStorage):
    """Nothing to compare objects with: no handler is for changes, and kopf would copy each at each of its events."""

    def build(self, *, body: kopf.Body, extra_fields: object = None) -> kopf.BodyEssence:
        return kopf.BodyEssence()

    def fetch(self, *, body: kopf.Body) -> kopf.BodyEssence | None:
        return None

    def store(self, *, body: kopf.Body, patch: kopf.Patch, essence: kopf.BodyEssence) -> None:
        """Nothing: it is never there to be fetched."""


def settings() -> kopf.OperatorSettings:
    settings = kopf.OperatorSettings()
    settings.posting.enabled = False
    settings.peering.standalone = True
    settings.persistence.finalizer = f"{GROUP}/kopf"
    settings.persistence.diffbase_storage = Uncompared()
    settings.watching.server_timeout = 600
    settings.watching.client_timeout = 660
    settings.networking.request_timeout = 30
    settings.networking.error_backoffs = Forever()
    settings.scanning.disabled = True
    return settings


async def watch(observed: Observed, kubeconfig: Path | None, namespaces: tuple[str, ...], stop: asyncio.Event) -> None:
    """Until `stop`. kopf cancels every task that began after it: whatever else runs must have ended by then."""
    if kubeconfig is not None:
        os.environ["KUBECONFIG"] = str(kubeconfig)
    await kopf.operator(
        registry=registry_of(observed, kubeconfig),
        settings=settings(),
        standalone=True,
        clusterwide=not namespaces,
        namespaces=namespaces,
        stop_flag=stop,
    )
