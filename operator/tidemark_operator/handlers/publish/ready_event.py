"""The Event of a revision that begins to serve: one for each revision, not one for each reconcile.

It is written before the status that it is about. An operator that dies between both writes it again, which the API
server takes for the same Event.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tidemark_operator.kube.cache import Key
from tidemark_operator.kube.client import DATAFLOWS, Body
from tidemark_operator.kube.events import Events
from tidemark_operator.resources.conditions.dataflow import serves
from tidemark_operator.resources.conditions.instance import READY


async def note_ready(events: Events, key: Key, body: Body, status: Mapping[str, Any]) -> None:
    """Emits the Event if a revision serves by the new status of the Dataflow and did not by the stored one."""
    if key.resource != DATAFLOWS:
        return
    before, after = _serving(body.get("status") or {}), _serving(status)
    if after and after != before:
        await events.note(key, body["metadata"]["uid"], READY, after)


def _serving(status: Mapping[str, Any]) -> str:
    """The message of Ready if a revision of the present spec serves; else empty. The condition has the revision, since
    `status.revision` is already that of a takeover when its conditions are written."""
    found = [c["message"] for c in status.get("conditions") or () if c["type"] == READY and c["status"] == "True"]
    revision = (status.get("revision") or {}).get("name", "")
    return serves(revision) if serves(revision) in found else ""
