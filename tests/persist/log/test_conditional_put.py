"""One of several conditional PUTs wins, on disk and in an object store, also with lost replies."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.persist.stores.s3_proxy import Middleman, middleman
from tests.s3_fixtures import Place
from tests.s3_server import S3Server
from tidemark_persist import IndeterminateCommit, StorageError, put_if_absent
from tidemark_persist.log.conditional_put import read_record
from tidemark_persist.storage.storage import Storage

IMPATIENT = {"timeout": "2s", "max_retries": "0"}


@pytest.fixture
def between(s3: S3Server) -> Iterator[Middleman]:
    with middleman(s3.port) as running:
        yield running


def test_must_tell_all_claimants_the_first_one(place: Place) -> None:
    """At once, and ever after; before that there is none."""
    assert read_record(Storage.at(place.location)) is None
    with ThreadPoolExecutor(8) as pool:
        winners = list(pool.map(lambda n: put_if_absent(place.location, {"attempt": n}), range(8)))
    assert winners == [winners[0]] * 8
    assert put_if_absent(place.location, {"attempt": 99}) == winners[0] == read_record(Storage.at(place.location))


@pytest.mark.parametrize(
    "faults",
    [["reply_lost"], ["reply_lost"] * 5, ["request_lost"], ["refused"] * 2, ["lied"], ["lied", "reply_lost"]],
    ids="-".join,
)
def test_crash_of_a_claims_connection_is_resolved_inside(s3: S3Server, between: Middleman, faults: list[str]) -> None:
    """Landed or not, what is there tells."""
    location = s3.location(f"claims/{'-'.join(faults)}")
    between.meet("commits", *faults)
    assert put_if_absent(location, {"attempt": 1}, s3.through(between.port)) == {"attempt": 1}
    assert put_if_absent(location, {"attempt": 2}, s3.environ) == {"attempt": 1}


def test_crash_a_claim_that_is_stuck_loses_to_one_that_is_not(s3: S3Server, between: Middleman) -> None:
    """It arrives later, and changes nothing."""
    location = s3.location("claims/stuck")
    between.meet("commits", "held")
    assert put_if_absent(location, {"attempt": 1}, {**s3.through(between.port), **IMPATIENT}) == {"attempt": 1}
    assert between.release() == 412
    assert put_if_absent(location, {"attempt": 2}, s3.environ) == {"attempt": 1}


def test_a_store_that_does_not_answer_before_anything_was_asked_of_it_knows_of_no_claim(s3: S3Server) -> None:
    """Certainly not there: the attempt may be taken back."""
    with pytest.raises(StorageError):
        put_if_absent(
            s3.location("claims/dead"), {"attempt": 1}, {**s3.environ, "AWS_ENDPOINT_URL": "http://127.0.0.1:1"}
        )


def test_crash_a_claim_without_an_answer_is_indeterminate(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was sent, and from then on nothing is heard."""
    location, put = s3.location("claims/unknown"), put_if_absent.__globals__["_put"]
    heard = Storage.read

    def sent_and_gone(storage: Storage, record: dict[str, int]) -> None:
        put(storage, record)

        def gone(storage: Storage, path: str, table: Any = None) -> None:
            raise StorageError("nothing is heard")

        monkeypatch.setattr(Storage, "read", gone)

    monkeypatch.setitem(put_if_absent.__globals__, "_put", sent_and_gone)
    with pytest.raises(IndeterminateCommit, match="may be claimed or not"):
        put_if_absent(location, {"attempt": 1}, s3.environ)
    monkeypatch.setattr(Storage, "read", heard)
    assert put_if_absent(location, {"attempt": 2}, s3.environ) == {"attempt": 1}
