"""spec_digest: a digest of all fields that a plan depends on.

It only decides whether to plan again. Replicas compare plan_digest, so an edit of white space is planned again, found
to be the same plan, and rehydrates nothing. Labels, `readPolicy`, `suspend` and `deletionPolicy` are not part of it;
the annotation that asks for a new plan is. The two ways to write a Dataflow with one export are equal.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any, NewType

from tidemark_operator.resources.manifest.dataflow import Dataflow
from tidemark_operator.resources.manifest.publish import OnError, PublishSpec
from tidemark_operator.resources.manifest.refresh import RefreshPolicy
from tidemark_protocol.messages.planning import ExportRequest
from tidemark_protocol.plan.codec import digest

SpecDigest = NewType("SpecDigest", str)

_FORMAT = 1
"""Raised when the meaning of a field changes, so that digests of old and new differ."""


def spec_digest(dataflow: Dataflow) -> SpecDigest:
    text = json.dumps(_semantic_fields(dataflow), sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return SpecDigest("sha256:" + hashlib.sha256(text.encode()).hexdigest())


def _semantic_fields(dataflow: Dataflow) -> dict[str, Any]:
    """Later fields are left out where they are absent, so stored digests stay valid."""
    fields: dict[str, Any] = {
        "format": _FORMAT,
        "dialect": dataflow.dialect.value,
        "asOf": dataflow.as_of,
        # views in order: one may name an earlier one
        "views": [[view.name, view.sql] for view in dataflow.views],
        # exports by name: their order means nothing
        "exports": {export.name: _export(export) for export in dataflow.exports},
    }
    if dataflow.until is not None:
        fields["until"] = dataflow.until
    if (refresh := dataflow.refresh) is not None:
        fields["refresh"] = [refresh.every_ms, refresh.aligned_to, refresh.at]
    if dataflow.refresh_policy is not RefreshPolicy.INCREMENTAL:
        fields["refreshPolicy"] = dataflow.refresh_policy.value
    if dataflow.publishes:
        fields["publish"] = {name: _publish(publish) for name, publish in dataflow.publishes.items()}
    if dataflow.sinks:
        fields["sinks"] = {name: [digest(each) for each in sinks.all] for name, sinks in dataflow.sinks.items()}
    if dataflow.replan:
        fields["replan"] = dataflow.replan
    return fields


def _publish(publish: PublishSpec) -> list[Any]:
    """A published table. Later fields are left out where they have their default."""
    later: list[Any] = [publish.on_error.value] if publish.on_error is not OnError.KEEP else []
    later += ["changeDataFeed"] if publish.change_data_feed else []
    if publish.partition_by or publish.file_bytes:
        later += [[publish.partition_by, publish.file_bytes]]
    later += [f"at {publish.location}"] if publish.location else []
    later += [f"iceberg {publish.iceberg}"] if publish.iceberg else []
    return [publish.every_ms, publish.retention_hours, *later]


def _export(export: ExportRequest) -> dict[str, Any]:
    fields: dict[str, Any] = {"kind": export.kind, "from": export.view, "key": export.key}
    if (task := export.task) is not None:
        fields |= {"watch": task.watch, "delete": task.delete}
        fields["columns"] = [[c.name, str(c.type)] for c in task.columns] if task.columns else None
    return fields
