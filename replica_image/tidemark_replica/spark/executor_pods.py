"""The pods of a driver's executors: what an earlier process of this pod left, what there is, and whether one more would
be admitted.

    driver's container dies ─► its executors end by themselves; their pods are owned by the driver's pod, which lives:
                               they pile up, and one that still waits for a node would join the next driver
    the next one            ─► deletes all that have its labels, and then starts Spark

No client library: single requests, with the pod's own token, by rights that Spark's scheduler needs anyway.
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
"""Without a sign of the API server."""
NEEDS = "; the driver's service account needs the verb deletecollection on pods"
QUOTA, REFUSED = "QuotaExceeded", "Refused"
# an answer of the API server that is about the pod, and not about how it is itself
_ABOUT_THE_POD = frozenset({400, 403, 404, 422})
NO_DRY_RUN = "does not support dry run"
"""A webhook that is to be asked about pods, and does not allow that they are only tried."""
_ENDED = frozenset({"Succeeded", "Failed"})


@dataclass(frozen=True)
class Refusal:
    """Why a pod is not admitted; the message is the API server's."""

    reason: str
    message: str


class ExecutorPods:
    """`master`: as Spark is told. `account`: the folder with the token, and the authority that the API server has its
    certificate from; read each time, since both change."""

    def __init__(self, master: str, namespace: str, account: Path = ACCOUNT) -> None:
        self._server, self._namespace, self._account = master.removeprefix(K8S), namespace, account

    def delete(self, labels: str) -> None:
        """All pods with these labels, without a grace: they have nothing to finish. Raises ExecutorsNotDeleted."""
        try:
            deleted = self._ask("DELETE", {"labelSelector": labels}, {"gracePeriodSeconds": 0}).get("items") or []
        except HTTPError as error:
            if error.code == HTTPStatus.NOT_FOUND:
                return  # there is nothing of that kind, and nobody to delete
            needs = NEEDS if error.code == HTTPStatus.FORBIDDEN else ""
            raise ExecutorsNotDeleted(
                f"executors of an earlier process cannot be deleted: {error.code} {error.reason}{needs}"
            ) from None
        except (URLError, HTTPException, OSError, ValueError) as error:
            raise ExecutorsNotDeleted(f"executors of an earlier process cannot be deleted: {error}") from None
        if deleted:
            LOG.info("deleted %d pods of executors that an earlier process left", len(deleted))

    def count(self, labels: str) -> int:
        """Those with these labels that have not ended, and were not told to. Raises PodsUnknown."""
        try:
            there = self._ask("GET", {"labelSelector": labels}).get("items") or []
        except (URLError, HTTPException, OSError, ValueError) as error:
            raise PodsUnknown(f"executors cannot be counted: {error}") from None
        alive = [pod for pod in there if not pod["metadata"].get("deletionTimestamp")]
        return sum((pod.get("status") or {}).get("phase") not in _ENDED for pod in alive)

    def refusal(self, pod: Mapping[str, Any]) -> Refusal | None:
        """Whether such a pod would be admitted now, which makes none (`dryRun`). Raises PodsUnknown."""
        metadata = {**pod["metadata"], "generateName": "try-"}
        try:
            self._ask("POST", {"dryRun": "All"}, {**pod, "metadata": metadata})
        except HTTPError as error:
            message = _message(error)
            if error.code not in _ABOUT_THE_POD or NO_DRY_RUN in message:
                raise PodsUnknown(f"whether an executor would be admitted: {error.code} {message}") from None
            return Refusal(QUOTA if "exceeded quota" in message else REFUSED, message)
        except (URLError, HTTPException, OSError, ValueError) as error:
            raise PodsUnknown(f"whether an executor would be admitted: {error}") from None
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
