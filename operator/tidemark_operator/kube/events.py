"""Events: for what a user should notice once, such as SQL that was refused. Status says what holds; this, what came.

One for each new thing (kind, uid, reason, note), not one per retry; what was said is remembered up to a bound.
"""

from __future__ import annotations

import hashlib
import logging
from collections import OrderedDict
from datetime import UTC, datetime

from tidemark_operator.kube.cache import Key
from tidemark_operator.kube.client import EVENTS, ApiError, Conflict, Kube

LOG = logging.getLogger(__name__)
REMEMBERED = 10_000
MAX_NOTE = 1000


class Events:
    def __init__(self, kube: Kube, reporter: str) -> None:
        self._kube, self._reporter = kube, reporter
        self._said: OrderedDict[str, None] = OrderedDict()

    async def warn(self, key: Key, uid: str, reason: str, note: str) -> None:
        """Says it, unless it was said. An Event that cannot be written is not worth a failure."""
        name = f"{key.name}.{hashlib.sha256(f'{uid} {reason} {note}'.encode()).hexdigest()[:16]}"
        if name in self._said:
            return
        self._said[name] = None
        if len(self._said) > REMEMBERED:
            self._said.popitem(last=False)
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
            "type": "Warning",
        }
        try:
            await self._kube.create(EVENTS, key.namespace, body)
        except Conflict:
            return
        except ApiError as error:
            LOG.warning("no Event for %s: %s", key, error)
