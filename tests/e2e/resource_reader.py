"""Resources as the API server has them, for tests that poll: one kubectl process per look would take the CPU that the
system needs."""

from __future__ import annotations

import base64
import http.client
import json
import ssl
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from tests.waiting import BOUND

GROUP, VERSION = "compute.tidemark.dev", "v1alpha1"


class Unread(Exception):
    """The API server answers otherwise than with the object."""


class Reader:
    """As the user of the kubeconfig."""

    def __init__(self, kubeconfig: Path) -> None:
        document = json.loads(kubeconfig.read_text())
        (cluster,), (user,) = document["clusters"], document["users"]
        authority = base64.b64decode(cluster["cluster"]["certificate-authority-data"]).decode()
        self._server = urlsplit(cluster["cluster"]["server"]).netloc
        self._trust = ssl.create_default_context(cadata=authority)
        self._headers = {"Authorization": f"Bearer {user['user']['token']}"}

    def get(self, namespace: str, kind: str, name: str) -> dict[str, Any]:
        """One of our resources, by its singular; raises Unread."""
        connection = http.client.HTTPSConnection(self._server, timeout=BOUND, context=self._trust)
        path = f"/apis/{GROUP}/{VERSION}/namespaces/{namespace}/{kind}s/{name}"
        try:
            connection.request("GET", path, headers=self._headers)
            answer = connection.getresponse()
            text = answer.read()
        finally:
            connection.close()
        if answer.status != http.client.OK:
            raise Unread(f"{kind}/{name}: {answer.status} {text[:500]!r}")
        found: dict[str, Any] = json.loads(text)
        return found
