"""How far a published view is on a replica, as its statuses say.

Status published {time: 1732147200000, rows: 10, bytes: 2048}
Status published {time: ..., rows: ..., bytes: ..., problem: "..."}      the last attempt failed
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class PublicationReport:
    """`time`: that of the table's rows, in milliseconds since 1970; None before there is a table. `problem`: why the
    last attempt failed; empty where it did not."""

    time: int | None
    rows: int
    bytes: int
    problem: str


def publication_report(fields: Mapping[str, str]) -> PublicationReport | None:
    """The report in the fields of a status; None where there is none, or for an image with another format."""
    if not fields:
        return None
    try:
        numbers = {name: int(fields[name]) for name in ("time", "rows", "bytes") if name in fields}
    except ValueError:
        return None
    return PublicationReport(
        numbers.get("time"), numbers.get("rows", 0), numbers.get("bytes", 0), fields.get("problem", "")
    )


def furthest(reports: Iterable[PublicationReport]) -> PublicationReport | None:
    """The report of the newest rows: replicas take turns, and each knows what it has published or found."""
    return max(reports, key=lambda report: (report.time or -1, not report.problem), default=None)
