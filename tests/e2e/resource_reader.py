"""Resources as the API server has them, for tests that poll: one kubectl process per look would take the CPU that the
system needs."""

from __future__ import annotations

import http.client
from pathlib import Path
from typing import Any

from tests.kube.api_requests import ApiRequests

GROUP, VERSION = "compute.tidemark.dev", "v1alpha1"


class Unread(Exception):
    """The API server answers otherwise than with the object."""


class Reader:
    """A reader, as the user of the kubeconfig."""

    def __init__(self, kubeconfig: Path) -> None:
        self._requests = ApiRequests(kubeconfig)

    def get(self, namespace: str, kind: str, name: str) -> dict[str, Any]:
        """One of our resources, by its singular; raises Unread."""
        status, document = self._requests.send("GET", f"/apis/{GROUP}/{VERSION}/namespaces/{namespace}/{kind}s/{name}")
        if status != http.client.OK:
            raise Unread(f"{kind}/{name}: {status} {str(document)[:500]}")
        found: dict[str, Any] = document
        return found
