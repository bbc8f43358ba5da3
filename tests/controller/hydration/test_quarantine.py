"""Quarantine: a table of deaths and the standing of a dataflow after them."""

from __future__ import annotations

import pytest

from tidemark_operator.controller.hydration.quarantine import (
    Death,
    HydrationStanding,
    Suspicion,
    blamed,
    unless_released,
)

R1 = [Death("r1", f"incarnation {n}") for n in range(5)]
R2 = [Death("r2", f"incarnation {n}") for n in range(5)]


@pytest.mark.parametrize(
    ("deaths", "standing"),
    [
        pytest.param([R1[0]], HydrationStanding.SUSPECT, id="one"),
        pytest.param([R1[0], R1[0], R1[0]], HydrationStanding.SUSPECT, id="the same one, heard of again after a crash"),
        pytest.param([R1[0], R1[1]], HydrationStanding.SUSPECT, id="two"),
        pytest.param([R1[0], R2[0], R1[1]], HydrationStanding.QUARANTINED, id="three, of two replicas"),
        pytest.param([R1[0], R1[1], R1[2], R1[3]], HydrationStanding.QUARANTINED, id="more"),
    ],
)
def test_three_deaths_are_enough(deaths: list[Death], standing: HydrationStanding) -> None:
    """The deaths may be of any replicas; each counts once."""
    suspicion = None
    for death in deaths:
        suspicion = blamed(suspicion, "d-r1", death, "")

    assert suspicion is not None
    assert suspicion.standing is standing
    assert len(suspicion.deaths) <= 3


@pytest.mark.parametrize("replicas", [3, 5])
def test_a_dataflow_beside_a_guilty_one_on_many_replicas_stays_a_suspect(replicas: int) -> None:
    """All of them die at first. Alone afterwards, one clears itself, and the other is found guilty at once."""
    suspicion = None
    for n in range(replicas):
        suspicion = blamed(suspicion, "d-r1", Death(f"r{n}", "first"), "", alone=False)
        assert suspicion.standing is HydrationStanding.SUSPECT

    assert suspicion is not None
    guilty = blamed(suspicion, "d-r1", Death("r1", "second"), "")
    assert guilty.standing is HydrationStanding.QUARANTINED
    assert blamed(guilty, "d-r1", Death("r9", "first"), "", alone=False).standing is HydrationStanding.QUARANTINED


def test_another_revision_is_another_matter() -> None:
    """The spec has changed."""
    old = Suspicion("d-r1", tuple(R1[:3]))

    assert blamed(old, "d-r2", R1[3], "").standing is HydrationStanding.SUSPECT


@pytest.mark.parametrize(
    ("release", "left"),
    [
        pytest.param("", True, id="no annotation"),
        pytest.param("monday", True, id="what was there when it was blamed"),
        pytest.param("tuesday", False, id="another value"),
    ],
)
def test_another_value_of_the_annotation_releases(release: str, left: bool) -> None:
    """Once: the same value does not release it from what comes later."""
    suspicion = Suspicion("d-r1", tuple(R1[:3]), release="monday")

    assert unless_released(suspicion, release) == (suspicion if left else None)
    assert unless_released(None, release) is None
