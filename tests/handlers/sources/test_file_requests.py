"""Requests about files, as the status of a DataSource keeps them."""

from __future__ import annotations

import pytest

from tidemark_operator.catalogue.file_requests import (
    FINISHED_MAX,
    UNFINISHED_MAX,
    RecordedRequest,
    added,
    recorded,
    settled,
    unfinished,
)
from tidemark_operator.errors import QueryNotReady, TooMany
from tidemark_protocol.messages.commands import RELEASE, REREAD, FileRequest
from tidemark_protocol.messages.responses import FileOutcome


def test_a_request_is_kept_until_its_outcome_is_known() -> None:
    """And sent again until then, also by an operator that begins from the status."""
    requests, id = added((), RELEASE, "t", "1.csv", 1000)
    requests, other = added(requests, REREAD, "t", "2.csv", 1000)
    assert (id, other) == (1000, 1001)
    stored = {"fileRequests": [r.document() for r in requests]}
    assert recorded(stored) == requests
    assert unfinished(recorded(stored)) == (
        FileRequest(1000, RELEASE, "t", "1.csv"),
        FileRequest(1001, REREAD, "t", "2.csv"),
    )
    requests = settled(requests, [FileOutcome(1000), FileOutcome(1001, "FILE_MISSING: it is gone"), FileOutcome(7)])
    assert unfinished(requests) == ()
    assert [r.document() for r in requests] == [
        {"id": 1000, "action": RELEASE, "table": "t", "file": "1.csv", "outcome": "done"},
        {
            "id": 1001,
            "action": REREAD,
            "table": "t",
            "file": "2.csv",
            "outcome": "refused",
            "message": "FILE_MISSING: it is gone",
        },
    ]
    assert settled(requests, [FileOutcome(1001)]) == requests


def test_a_file_has_one_unfinished_request() -> None:
    """The same one again is that one; another one waits."""
    requests, id = added((), RELEASE, "t", "1.csv", 1000)
    assert added(requests, RELEASE, "t", "1.csv", 2000) == (requests, id)
    with pytest.raises(QueryNotReady, match=r"file t/1.csv has an unfinished request \(release\)"):
        added(requests, REREAD, "t", "1.csv", 2000)
    finished = settled(requests, [FileOutcome(id)])
    assert added(finished, REREAD, "t", "1.csv", 500)[1] == 1001, "the clock went back"


def test_requests_are_bounded() -> None:
    """Unfinished ones are refused beyond a number; of the finished ones the newest stay."""
    many = tuple(RecordedRequest(FileRequest(i, RELEASE, "t", f"{i}")) for i in range(UNFINISHED_MAX))
    with pytest.raises(TooMany):
        added(many, RELEASE, "t", "more", 1000)
    left = settled(many, [FileOutcome(i) for i in range(UNFINISHED_MAX)])
    assert [r.request.id for r in left] == list(range(UNFINISHED_MAX - FINISHED_MAX, UNFINISHED_MAX))
