"""The pods of a driver's executors: deletes those of an earlier process, counts them, and asks whether one would be
admitted.

    a driver's container dies ─► its executors end. Their pods belong to the driver's pod, which lives: they accumulate,
                                 and one that still waits for a node would join the next driver
    the next driver           ─► deletes all pods with its labels, and then starts Spark

No Kubernetes client library is used: these are single requests with the pod's token, under rights that Spark's
scheduler needs anyway.
"""

from __future__ import annotations

import json
import logging
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import quote, urlencode
from urllib.request import HTTPSHandler, ProxyHandler, Request, build_opener

from tidemark_replica.errors import ExecutorsNotDeleted, PodsUnknown

LOG = logging.getLogger(__name__)
K8S = "k8s://"
ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
REQUEST_SECONDS = 15.0
"""Seconds after which the API server counts as not answering."""
NEEDS = "; the driver's service account needs the verb deletecollection on pods"
QUOTA, REFUSED = "QuotaExceeded", "Refused"
# answers of the API server about the pod, and not about the server
_ABOUT_THE_POD = frozenset({400, 403, 404, 422})
NO_DRY_RUN = "does not support dry run"
"""A webhook for pods that does not support dry runs."""
_ENDED = frozenset({"Succeeded", "Failed"})


@dataclass(frozen=True)
class PodRefusal:
    """The reason why a pod is not admitted. The message is the API server's."""

    reason: str
    message: str


class ExecutorPods:
    """`master`: Spark's master URL. `account`: the folder with the token and the CA certificate, read at each request,
    since both change."""

    def __init__(self, master: str, namespace: str, account: Path = ACCOUNT) -> None:
        self._server, self._namespace, self._account = master.removeprefix(K8S), namespace, account

    def delete(self, labels: str) -> None:
        """Deletes all pods with these labels, without a grace period. Raises ExecutorsNotDeleted."""
        try:
            deleted = self._ask("DELETE", {"labelSelector": labels}, {"gracePeriodSeconds": 0}).get("items") or []
        except HTTPError as error:
            if error.code == HTTPStatus.NOT_FOUND:
                return  # no such namespace or kind, so no pods
            needs = NEEDS if error.code == HTTPStatus.FORBIDDEN else ""
            raise ExecutorsNotDeleted(
                f"executors of an earlier process cannot be deleted: {error.code} {error.reason}{needs}"
            ) from None
        except (URLError, HTTPException, OSError, ValueError) as error:
            raise ExecutorsNotDeleted(f"executors of an earlier process cannot be deleted: {error}") from None
        if deleted:
            LOG.info("deleted %d pods of executors that an earlier process left", len(deleted))

    def count(self, labels: str) -> int:
        """The number of pods with these labels that have not ended and are not being deleted. Raises PodsUnknown."""
        try:
            there = self._ask("GET", {"labelSelector": labels}).get("items") or []
        except (URLError, HTTPException, OSError, ValueError) as error:
            raise PodsUnknown(f"executors cannot be counted: {error}") from None
        alive = [pod for pod in there if not pod["metadata"].get("deletionTimestamp")]
        return sum((pod.get("status") or {}).get("phase") not in _ENDED for pod in alive)

    def refusal(self, pod: Mapping[str, Any]) -> PodRefusal | None:
        """The reason why such a pod would not be admitted, or None. A dry run: it creates nothing. Raises
        PodsUnknown."""
        metadata = {**pod["metadata"], "generateName": "try-"}
        try:
            self._ask("POST", {"dryRun": "All"}, {**pod, "metadata": metadata})
        except HTTPError as error:
            message = _message(error)
            if error.code not in _ABOUT_THE_POD or NO_DRY_RUN in message:
                raise PodsUnknown(f"cannot tell whether an executor pod is admitted: {error.code} {message}") from None
            return PodRefusal(QUOTA if "exceeded quota" in message else REFUSED, message)
        except (URLError, HTTPException, OSError, ValueError) as error:
            raise PodsUnknown(f"cannot tell whether an executor pod is admitted: {error}") from None
        return None

    def _ask(self, method: str, query: Mapping[str, str], body: Mapping[str, Any] | None = None) -> dict[str, Any]:
        path = f"/api/v1/namespaces/{quote(self._namespace, safe='')}/pods?{urlencode(query)}"
        request = Request(
            f"{self._server}{path}",
            data=None if body is None else json.dumps(body).encode(),
            headers={
                "Authorization": f"Bearer {(self._account / 'token').read_text().strip()}",
                "Content-Type": "application/json",
                "Accept": "application/json",
            },
            method=method,
        )
        trust = ssl.create_default_context(cafile=str(self._account / "ca.crt"))
        opener = build_opener(ProxyHandler({}), HTTPSHandler(context=trust))
        with opener.open(request, timeout=REQUEST_SECONDS) as answer:
            found: dict[str, Any] = json.load(answer)
        return found


def _message(error: HTTPError) -> str:
    try:
        return str(json.load(error).get("message") or error.reason)
    except (HTTPException, OSError, ValueError):
        return str(error.reason)
