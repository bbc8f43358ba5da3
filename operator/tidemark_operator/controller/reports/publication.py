"""The progress of a destination of a view on a replica, as its statuses say.

Status published {time: 1732147200000, rows: 10, bytes: 2048}
Status published {time: ..., rows: ..., bytes: ..., problem: "..."}     the last attempt failed
Status postgresSink {time: ..., problem: "...", reason: KeyNotUnique}   it fails until somebody mends the named thing
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

_REASON = re.compile(r"[A-Z][A-Za-z]{1,63}")


@dataclass(frozen=True)
class PublicationReport:
    """`time`: that of the destination's rows, in milliseconds since 1970; None before it has any. `problem`: why the
    last attempt failed; empty where it did not. `reason`: CamelCase where the problem has one, else empty.
    `iceberg_time`: that of the rows of the Iceberg table, where there is one."""

    time: int | None
    rows: int
    bytes: int
    problem: str
    reason: str = ""
    iceberg_time: int | None = None


def publication_report(fields: Mapping[str, str]) -> PublicationReport | None:
    """The report in the fields of a status; None where there is none, or for an image with another format."""
    if not fields:
        return None
    try:
        numbers = {name: int(fields[name]) for name in ("time", "rows", "bytes", "icebergTime") if name in fields}
    except ValueError:
        return None
    reason = fields.get("reason", "")
    return PublicationReport(
        numbers.get("time"),
        numbers.get("rows", 0),
        numbers.get("bytes", 0),
        fields.get("problem", ""),
        reason if _REASON.fullmatch(reason) else "",
        numbers.get("icebergTime"),
    )


def furthest(reports: Iterable[PublicationReport]) -> PublicationReport | None:
    """The report of the newest rows: replicas take turns, and each knows what it has published or found."""
    return max(reports, key=lambda report: (report.time or -1, not report.problem), default=None)
