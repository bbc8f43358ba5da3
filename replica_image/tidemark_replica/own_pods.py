"""The executors that an earlier process of this pod left behind.

    driver's container dies ─► its executors end by themselves; their pods are owned by the driver's pod, which lives:
                               they pile up, and one that still waits for a node would join the next driver
    the next one            ─► deletes all that have its labels, and then starts Spark

No client library: one request, with the pod's own token, by the right that Spark's scheduler needs anyway.
"""

from __future__ import annotations

import json
import logging
import ssl
from http.client import HTTPException
from pathlib import Path
from urllib.error import HTTPError, URLError
from urllib.parse import quote, urlencode
from urllib.request import HTTPSHandler, ProxyHandler, Request, build_opener

from tidemark_replica.errors import ExecutorsLeft

LOG = logging.getLogger(__name__)
K8S = "k8s://"
ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
REQUEST_SECONDS = 15.0


class OwnPods:
    """`master`: as Spark is told. `account`: the folder with the token, and the authority that the API server has its
    certificate from; read each time, since both change."""

    def __init__(self, master: str, namespace: str, account: Path = ACCOUNT) -> None:
        self._server, self._namespace, self._account = master.removeprefix(K8S), namespace, account

    def delete(self, labels: str) -> None:
        """All pods with these labels, without a grace: they have nothing to finish. Raises ExecutorsLeft."""
        path = f"/api/v1/namespaces/{quote(self._namespace, safe='')}/pods?{urlencode({'labelSelector': labels})}"
        try:
            request = Request(
                f"{self._server}{path}",
                data=json.dumps({"gracePeriodSeconds": 0}).encode(),
                headers={
                    "Authorization": f"Bearer {(self._account / 'token').read_text().strip()}",
                    "Content-Type": "application/json",
                    "Accept": "application/json",
                },
                method="DELETE",
            )
            trust = ssl.create_default_context(cafile=str(self._account / "ca.crt"))
            opener = build_opener(ProxyHandler({}), HTTPSHandler(context=trust))
            with opener.open(request, timeout=REQUEST_SECONDS) as answer:
                deleted = json.load(answer).get("items") or []
        except HTTPError as error:
            raise ExecutorsLeft(
                f"executors of an earlier process cannot be deleted: {error.code} {error.reason}; the driver's service "
                "account needs the verb deletecollection on pods"
            ) from None
        except (URLError, HTTPException, OSError, ValueError) as error:
            raise ExecutorsLeft(f"executors of an earlier process cannot be deleted: {error}") from None
        if deleted:
            LOG.info("deleted %d pods of executors that an earlier process left", len(deleted))
