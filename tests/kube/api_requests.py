"""Requests to a test's API server within this process: a kubectl process for each takes a tenth of a second of CPU."""

from __future__ import annotations

import base64
import http.client
import json
import ssl
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from tests.waiting import BOUND


class ApiRequests:
    """Requests as the user of the kubeconfig. A connection for each request: the caller may be of any thread."""

    def __init__(self, kubeconfig: Path) -> None:
        document = json.loads(kubeconfig.read_text())
        (cluster,), (user,) = document["clusters"], document["users"]
        authority = base64.b64decode(cluster["cluster"]["certificate-authority-data"]).decode()
        self._server = urlsplit(cluster["cluster"]["server"]).netloc
        self._trust = ssl.create_default_context(cadata=authority)
        self._headers = {"Authorization": f"Bearer {user['user']['token']}", "Content-Type": "application/json"}

    def send(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        """The answer's status, and its document."""
        connection = http.client.HTTPSConnection(self._server, timeout=BOUND, context=self._trust)
        try:
            connection.request(method, path, None if body is None else json.dumps(body), self._headers)
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read())
        finally:
            connection.close()

    def create_namespace(self, name: str) -> None:
        """Create it, without waiting for its service account."""
        status, document = self.send("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
        assert status == http.client.CREATED, document

    def has_service_account(self, namespace: str) -> bool:
        """Whether the namespace has its default one; a pod that is created before it is refused."""
        status, _ = self.send("GET", f"/api/v1/namespaces/{namespace}/serviceaccounts/default")
        return status == http.client.OK

    def delete_namespace(self, name: str) -> None:
        """Begin its deletion; nothing where it is gone."""
        status, document = self.send("DELETE", f"/api/v1/namespaces/{name}")
        assert status in (http.client.OK, http.client.CONFLICT, http.client.NOT_FOUND), document
