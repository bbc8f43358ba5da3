"""What replicas report is what statuses show: both sides name counters and errors alike."""

from __future__ import annotations

from tidemark_operator.handlers.statuses import _files, _first_error
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


def test_an_error_in_a_view_is_told_with_its_place() -> None:
    """Which file or expression to look at, and how many more there are."""
    assert _first_error({"errors": "1", "code": "SCHEMA_MISMATCH", "expression": "x.csv"}) == "SCHEMA_MISMATCH in x.csv"
    assert _first_error({"errors": "3", "code": "DIVIDE_BY_ZERO"}) == "DIVIDE_BY_ZERO, and 2 more"


def test_sources_without_files_show_none() -> None:
    """A generator counts nothing. Nor does a replica that tells half of it."""
    assert _files({}) is None
    assert _files({"files": 1}) is None


def vars_of(counters: FileCounters | None) -> list[int]:
    assert counters is not None
    return [counters.read, counters.waiting, counters.changed, counters.refused]
