"""The leader's gateway in the cluster: the one EndpointSlice of a Service without a selector.

    the operator leads      ─► endpoints: its pod; annotation ca.crt: the authority of the gateway's certificate
    it is told to end       ─► endpoints: none, before it releases the Lease
    it is killed            ─► unchanged, until the next leader writes its own

A standby operator has no gateway, so a Service that selected all operators would route half of the calls to nothing.
The chart creates the EndpointSlice; the leader may change this one and create no other.
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
class GatewayService:
    """The name of the Service and its EndpointSlice, and this operator's pod and its IP address: the endpoint."""

    name: str
    pod: str
    address: str

    def hosts(self, namespace: str) -> tuple[str, ...]:
        """The names of the Service in the cluster's DNS."""
        below = f"{self.name}.{namespace}"
        return (f"{below}.svc", self.name, below, f"{below}.svc.cluster.local")


class EndpointPublisher:
    """Publishes the leader's endpoint. `authorities`: the certificates (PEM) that clients must trust; None: no TLS."""

    def __init__(
        self, kube: Kube, namespace: str, service: GatewayService, authorities: Callable[[], bytes | None]
    ) -> None:
        self._kube, self._namespace, self._service, self._authorities = kube, namespace, service, authorities

    async def run(self) -> None:
        """Keep the endpoint published, until cancelled. Logs each new reason of a failure once, and retries with pauses
        of AGAIN_SECONDS to LOOK_SECONDS."""
        logged, again = "", AGAIN_SECONDS
        while True:
            try:
                await self.publish()
                logged, pause, again = "", LOOK_SECONDS, AGAIN_SECONDS
            except OperatorError as error:
                if str(error) != logged:
                    LOG.warning(
                        "Service %s/%s does not route to this operator yet: %s",
                        self._namespace,
                        self._service.name,
                        error,
                    )
                logged, pause, again = str(error), again, min(LOOK_SECONDS, 2 * again)
            await asyncio.sleep(pause)

    async def publish(self) -> None:
        """Write the endpoint if it is not there. Raises OperatorError."""
        there = await self._slice()
        authorities = (self._authorities() or b"").decode()
        wanted = with_endpoints(there, [endpoint(self._service, self._namespace)], authorities)
        if wanted != there:
            await self._kube.replace(SLICES, self._namespace, self._service.name, wanted)
            LOG.info("Service %s/%s routes to this operator", self._namespace, self._service.name)

    async def withdraw(self) -> None:
        """Remove this operator's endpoint. One try of PATIENCE_SECONDS: the next leader writes its own endpoint."""
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                there = await self._slice()
                if there.get("endpoints") == [endpoint(self._service, self._namespace)]:
                    await self._kube.replace(SLICES, self._namespace, self._service.name, {**there, "endpoints": []})
        except (OperatorError, TimeoutError) as error:
            LOG.info("Service %s/%s still routes to this operator: %s", self._namespace, self._service.name, error)

    async def _slice(self) -> Body:
        found = await self._kube.get(SLICES, self._namespace, self._service.name)
        if found is None:
            raise ApiError(
                404, f"EndpointSlice {self._namespace}/{self._service.name} does not exist: helm upgrade creates it"
            )
        return found


def endpoint(service: GatewayService, namespace: str) -> dict[str, Any]:
    return {
        "addresses": [service.address],
        "conditions": {"ready": True, "serving": True, "terminating": False},
        "targetRef": {"kind": "Pod", "name": service.pod, "namespace": namespace},
    }


def with_endpoints(there: Body, endpoints: list[dict[str, Any]], authorities: str) -> Body:
    """The EndpointSlice with these endpoints and authorities; the rest of it is the chart's."""
    metadata = there["metadata"]
    annotations = {**(metadata.get("annotations") or {}), AUTHORITY: authorities}
    return {**there, "metadata": {**metadata, "annotations": annotations}, "endpoints": endpoints}
