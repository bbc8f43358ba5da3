"""Events: one for each thing that a user should notice once, such as refused SQL, or a revision that begins to serve.
Conditions have the present state.

An Event is written once per object, reason and note, not per retry; the latest REMEMBERED of them are remembered.
"""

from __future__ import annotations

import hashlib
import logging
from datetime import UTC, datetime

from tidemark_operator.kube.cache import Key
from tidemark_operator.kube.client import EVENTS, ApiError, Conflict, Kube
from tidemark_operator.lru_dict import LruDict

LOG = logging.getLogger(__name__)
REMEMBERED = 10_000
MAX_NOTE = 1000


class Events:
    """Writes Events. `reporter`: this operator's identity."""

    def __init__(self, kube: Kube, reporter: str) -> None:
        self._kube, self._reporter = kube, reporter
        self._written: LruDict[str, None] = LruDict(REMEMBERED)

    async def warn(self, key: Key, uid: str, reason: str, note: str) -> None:
        """Write a warning about an object, once. A failure to write it is logged only."""
        await self._write(key, uid, reason, note, "Warning")

    async def note(self, key: Key, uid: str, reason: str, note: str) -> None:
        """Write that something went well, once. A failure to write it is logged only."""
        await self._write(key, uid, reason, note, "Normal")

    async def _write(self, key: Key, uid: str, reason: str, note: str, type: str) -> None:
        name = f"{key.name}.{hashlib.sha256(f'{uid} {reason} {note}'.encode()).hexdigest()[:16]}"
        if name in self._written:
            return
        self._written[name] = None
        body = {
            "metadata": {"name": name},
            "eventTime": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
            "reportingController": "tidemark-operator",
            "reportingInstance": self._reporter[:128],
            "action": "Reconcile",
            "reason": reason[:128],
            "regarding": {
                "apiVersion": key.resource.api_version,
                "kind": key.resource.kind,
                "namespace": key.namespace,
                "name": key.name,
                "uid": uid,
            },
            "note": note[:MAX_NOTE],
            "type": type,
        }
        try:
            await self._kube.create(EVENTS, key.namespace, body)
        except Conflict:
            return
        except ApiError as error:
            LOG.warning("the Event for %s cannot be written: %s", key, error)
