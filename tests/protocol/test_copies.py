"""Locations of copies: inside the folder of the namespace alone."""

from __future__ import annotations

import pytest

from tidemark_protocol.copy_location import copies_folder, copy_location, folder_of

STORE = "/var/lib/tidemark"
FOLDER = copies_folder(STORE, "team-a")


@pytest.mark.parametrize(
    ("to", "location"),
    [
        ("flights", f"{FOLDER}/flights"),
        ("daily/date=2026-01-31/", f"{FOLDER}/daily/date=2026-01-31"),
        (f"{FOLDER}/a/b.v1", f"{FOLDER}/a/b.v1"),
        (f"file://{FOLDER}/a", f"{FOLDER}/a"),
    ],
)
def test_a_place_below_the_folder_for_copies(to: str, location: str) -> None:
    """A relative path and an absolute one give the same location."""
    assert copy_location(FOLDER, to) == location
    assert folder_of(STORE, location) == FOLDER


@pytest.mark.parametrize(
    ("to", "message"),
    [
        ("", "is not a location for a copy"),
        (".", "is not a location for a copy"),
        ("../team-b/_copies/x", "is not a location for a copy"),
        ("a/../../x", "is not a location for a copy"),
        ("a//b", "is not a location for a copy"),
        (".staging/x", "is not a location for a copy"),
        ("a\nb", "is not a location for a copy"),
        ("a b", "is not a location for a copy"),
        ("a" * 200, "is not a location for a copy"),
        ("/".join("abcdefghijklmnopq"), "is not a location for a copy"),
        (FOLDER, f"is outside the folder for copies: give a path relative to {FOLDER}"),
        ("/etc/cron.d/x", f"give a path relative to {FOLDER}"),
        (f"{STORE}/team-b/_copies/x", "is outside the folder for copies"),
        (f"file://{FOLDER}/%2e%2e/x", "is not a location for a copy"),
        ("s3://bucket/x", "s3:// is not supported"),
        ("file://host/x", "file:// is not supported"),
    ],
)
def test_any_other_place_is_refused(to: str, message: str) -> None:
    """The error says what to write instead."""
    with pytest.raises(ValueError, match=message):
        copy_location(FOLDER, to)


def test_in_an_object_store_the_places_are_the_same() -> None:
    """Locations lie below the prefix; all others are refused."""
    folder = copies_folder("s3://bucket/x/", "team-a")
    assert folder == "s3://bucket/x/team-a/_copies"
    for to in ("day/1", f"{folder}/day/1"):
        assert copy_location(folder, to) == f"{folder}/day/1"
    assert folder_of("s3://bucket/x", f"{folder}/day/1") == folder
    for to in ("s3://bucket/x/team-a/tpch/orders/v1", "s3://other/y", f"{folder}/../y", "/etc/x"):
        with pytest.raises(ValueError, match="cop"):
            copy_location(folder, to)


@pytest.mark.parametrize(
    "location",
    [
        f"{STORE}/team-a/tpch/orders/v1",
        f"{STORE}/team-a/_copies",
        f"{STORE}/team-a/_copies/",
        f"{STORE}/team-a/_copies/../x",
        f"{STORE}/a/b/_copies/x",
        f"{STORE}/_copies/x",
        f"{STORE}/../_copies/x",
        "/elsewhere/team-a/_copies/x",
        f"{STORE}x/team-a/_copies/x",
    ],
)
def test_a_replica_refuses_copies_that_no_gateway_sends(location: str) -> None:
    """A replica knows the storage of the instance, and no namespace."""
    with pytest.raises(ValueError, match=r"is not below|is not a location|is outside the folder"):
        folder_of(STORE, location)
