"""Frontiers: order, meet, join and the number that stands for the empty one."""

from __future__ import annotations

import pytest

from tidemark_protocol.frontier import EMPTY_SENTINEL, Frontier, join, meet
from tidemark_protocol.ids import MAX_TIME


def test_the_empty_frontier_is_beyond_every_time() -> None:
    """The empty frontier is the greatest, and no time is beyond it."""
    assert Frontier.at(MAX_TIME) < Frontier.empty()
    assert not Frontier.empty().less_equal(MAX_TIME)


def test_meet_and_join_of_none_are_the_ends() -> None:
    """The meet of no frontiers is the empty frontier."""
    assert meet([]) == Frontier.empty()
    assert join([]) == Frontier.minimum()
    assert meet([Frontier.at(3), Frontier.at(2)]) == Frontier.at(2)
    assert join([Frontier.at(3), Frontier.empty()]) == Frontier.empty()


@pytest.mark.parametrize("frontier", [Frontier.minimum(), Frontier.at(MAX_TIME), Frontier.empty()])
def test_a_frontier_survives_as_a_number(frontier: Frontier) -> None:
    """The sentinel of the empty frontier is not a time."""
    assert Frontier.decode(frontier.encode()) == frontier


@pytest.mark.parametrize("number", [-1, EMPTY_SENTINEL + 1])
def test_numbers_outside_the_range_are_refused(number: int) -> None:
    """Negative times and times beyond 63 bits are refused."""
    with pytest.raises(ValueError, match="outside"):
        Frontier.decode(number)


def test_a_frontier_is_less_equal_at_its_own_time() -> None:
    assert Frontier.at(5).less_equal(5)
    assert not Frontier.at(5).less_equal(4)
