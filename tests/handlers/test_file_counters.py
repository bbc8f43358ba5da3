"""What an ingester counts is what a status shows: the two sides name counters alike."""

from __future__ import annotations

from tidemark_operator.handlers.statuses import _files
from tidemark_operator.resources.status import FileCounters
from tidemark_protocol.storage import FilesSource
from tidemark_replica.storage.files.source import FilesIngestion


def test_counters_of_files_are_all_shown() -> None:
    """As the ingester of this release names them."""
    counters = dict(FilesIngestion(FilesSource(()), None).counters())  # type: ignore[arg-type]
    assert _files(counters) == FileCounters(0, 0, 0, 0)

    for n, name in enumerate(counters):
        counters[name] = n
    assert sorted(vars_of(_files(counters))) == list(range(len(counters)))


def test_sources_without_files_show_none() -> None:
    """A generator counts nothing."""
    assert _files({}) is None


def vars_of(counters: FileCounters | None) -> list[int]:
    assert counters is not None
    return [counters.read, counters.waiting, counters.changed, counters.refused]
