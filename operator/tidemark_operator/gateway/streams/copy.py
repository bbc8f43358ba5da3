"""Copies: the rows of a subject at one time, as files below the instance's storage.

right to copy ──► plan ──► right to read
    ──► dataflow with until = as_of + 1 on all replicas ──► the first replica that has moved its files answers
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tidemark_operator.controller.frontiers.dataflows import Dataflow
from tidemark_operator.errors import QueryRefused
from tidemark_operator.gateway.admission import wait_policy
from tidemark_operator.gateway.admission.limits import GatewayLimits
from tidemark_operator.gateway.admission.wait_policy import time_limit
from tidemark_operator.gateway.auth.access import Access
from tidemark_operator.gateway.query.plan_again import plan_again
from tidemark_operator.gateway.streams.stream_dataflow import (
    PlannedSubject,
    build_dataflow,
    plan_subject,
)
from tidemark_operator.handlers.reconcile_context import ReconcileContext
from tidemark_protocol.copy_location import FORMATS, copies_folder, copy_location
from tidemark_protocol.ids import Time
from tidemark_protocol.messages.responses import CopyToFailed
from tidemark_protocol.pb import gateway_pb2
from tidemark_protocol.plan.dataflow import CopyToSink
from tidemark_protocol.types import Column


class Copies:
    """The copies of one gateway. A copy that waits for its plan or for a replica is not one of those that run."""

    def __init__(self, context: ReconcileContext, limits: GatewayLimits) -> None:
        self._context, self._limits = context, limits

    async def serve(self, access: Access, request: Any) -> Any:
        """Write the copy; return its reply.

        Raises:
            QueryRefused: the copy failed, or cannot be made as asked.
            AnswerTimedOut: it took longer than COPY_SECONDS.
            TooMany, Forbidden, PlannerUnavailable: as `plan_subject`.
        """
        self._limits.copies.check(access.caller)
        ready, made, location = await plan_again(access, request.namespace, lambda: self._begin(access, request))
        async with self._limits.copies.hold(access.caller), time_limit(wait_policy.COPY_SECONDS):
            result = await ready.instance.clients.copy(made)
        if isinstance(result, CopyToFailed):
            raise QueryRefused(result.message)
        return gateway_pb2.CopyReply(as_of=made.description.as_of, row_count=result.row_count, location=location)

    async def _begin(self, access: Access, request: Any) -> tuple[PlannedSubject, Dataflow, str]:
        await access.check_copies(request.namespace)
        as_of = request.as_of if request.HasField("as_of") else None
        ready = await plan_subject(self._context, self._limits, access, request, "copy")
        _check_format(request.format, ready.columns)
        copies = copies_folder(ready.instance.config.storage_location, request.namespace)
        try:
            location = copy_location(copies, request.to)
        except ValueError as error:
            raise QueryRefused(str(error)) from None
        made = await build_dataflow(self._context, ready, CopyToSink(ready.columns, location, request.format), as_of)
        until = Time(made.description.as_of + 1)
        return ready, replace(made, description=replace(made.description, until=until)), location


def _check_format(format: str, columns: tuple[Column, ...]) -> None:
    if format not in FORMATS:
        raise QueryRefused(f"{format!r:.40} is not a format for copies: choose one of {', '.join(FORMATS)}")
    for column in columns:
        if format == "csv" and (column.type.is_array or column.type.is_struct or column.type.name == "binary"):
            raise QueryRefused(f"CSV cannot hold column {column.name} of type {column.type}: copy it as parquet")
