"""The way to who leads: the one EndpointSlice of a Service that selects nothing.

    leads          ─► endpoints: this pod; annotation ca.crt: who signed the gateway's certificate
    is told to end ─► endpoints: none, before it lets go of the Lease
    is killed      ─► as it was, until the next one leads and writes its own

Who stands by has no gateway, so a Service that selected all operators would lead to nobody half of the time. The object
itself is the chart's: who leads may change this one, and can make no other.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tidemark_operator.errors import OperatorError
from tidemark_operator.kube.client import ApiError, Body, Kube, Resource
from tidemark_operator.resources.manifest.meta import GROUP

LOG = logging.getLogger(__name__)
SLICES = Resource("discovery.k8s.io", "v1", "endpointslices", "EndpointSlice")
AUTHORITY = f"{GROUP}/ca.crt"
LOOK_SECONDS = 30.0
AGAIN_SECONDS = 2.0
PATIENCE_SECONDS = 3.0


@dataclass(frozen=True)
class Service:
    """Its name, which its EndpointSlice has too, and this operator's pod: what the Service leads to."""

    name: str
    pod: str
    address: str

    def hosts(self, namespace: str) -> tuple[str, ...]:
        """What the cluster's DNS calls it."""
        below = f"{self.name}.{namespace}"
        return (f"{below}.svc", self.name, below, f"{below}.svc.cluster.local")


class Announced:
    """Of who leads. `authorities`: whom clients are to trust."""

    def __init__(self, kube: Kube, namespace: str, service: Service, authorities: Callable[[], bytes | None]) -> None:
        self._kube, self._namespace, self._service, self._authorities = kube, namespace, service, authorities

    async def run(self) -> None:
        """Sees to it that the Service leads here, until cancelled. Why it does not is said once, and again when that
        changes; it is tried ever more rarely."""
        said, again = "", AGAIN_SECONDS
        while True:
            try:
                await self.announce()
                said, pause, again = "", LOOK_SECONDS, AGAIN_SECONDS
            except OperatorError as error:
                if str(error) != said:
                    LOG.warning("Service %s/%s does not lead here yet: %s", self._namespace, self._service.name, error)
                said, pause, again = str(error), again, min(LOOK_SECONDS, 2 * again)
            await asyncio.sleep(pause)

    async def announce(self) -> None:
        """Raises OperatorError."""
        there = await self._slice()
        authorities = (self._authorities() or b"").decode()
        wanted = announced(there, [endpoint(self._service, self._namespace)], authorities)
        if wanted != there:
            await self._kube.replace(SLICES, self._namespace, self._service.name, wanted)
            LOG.info("Service %s/%s leads to this operator", self._namespace, self._service.name)

    async def withdraw(self) -> None:
        """Nobody is led here any more. Tried once: the next one writes its own."""
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                there = await self._slice()
                if there.get("endpoints") == [endpoint(self._service, self._namespace)]:
                    await self._kube.replace(SLICES, self._namespace, self._service.name, {**there, "endpoints": []})
        except (OperatorError, TimeoutError) as error:
            LOG.info("Service %s/%s still leads here: %s", self._namespace, self._service.name, error)

    async def _slice(self) -> Body:
        found = await self._kube.get(SLICES, self._namespace, self._service.name)
        if found is None:
            raise ApiError(404, f"there is no EndpointSlice {self._service.name}: helm upgrade makes it anew")
        return found


def endpoint(service: Service, namespace: str) -> dict[str, Any]:
    return {
        "addresses": [service.address],
        "conditions": {"ready": True, "serving": True, "terminating": False},
        "targetRef": {"kind": "Pod", "name": service.pod, "namespace": namespace},
    }


def announced(there: Body, endpoints: list[dict[str, Any]], authorities: str) -> Body:
    """The EndpointSlice as it should be: what else is in it is the chart's."""
    metadata = there["metadata"]
    annotations = {**(metadata.get("annotations") or {}), AUTHORITY: authorities}
    return {**there, "metadata": {**metadata, "annotations": annotations}, "endpoints": endpoints}
