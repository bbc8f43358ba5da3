"""Status changes that follow at once are written together, under the test's clock."""

from __future__ import annotations

from itertools import pairwise

from tidemark_operator.handlers.publish.status_pauses import PAUSE_SECONDS, StatusPauses


def test_the_first_change_is_written_at_once_and_the_following_ones_later_together() -> None:
    """Each object has a pause of its own."""
    pauses: StatusPauses[str] = StatusPauses()
    assert not pauses.holds("a", 10.0)
    pauses.written("a", 10.0)

    assert pauses.holds("a", 10.1)
    assert pauses.holds("a", 10.2)
    assert not pauses.holds("b", 10.2)
    assert pauses.take_due(10.0 + PAUSE_SECONDS / 2) == []
    assert pauses.take_due(10.0 + PAUSE_SECONDS) == ["a"]
    assert pauses.take_due(10.0 + PAUSE_SECONDS) == []
    assert not pauses.holds("a", 10.0 + PAUSE_SECONDS)


def test_must_constant_writes_prolong_no_wait() -> None:
    """A replica's record of who hydrates there is written again and again; its conditions have their turn."""
    pauses: StatusPauses[str] = StatusPauses()
    turns = []
    for moment in (number / 10 for number in range(100)):
        pauses.written("r", moment)
        pauses.holds("r", moment)
        turns += [moment for _ in pauses.take_due(moment)]

    assert len(turns) >= 100 / 10 / PAUSE_SECONDS - 1
    assert all(b - a <= PAUSE_SECONDS + 0.2 for a, b in pairwise(turns))


def test_nothing_is_remembered_for_ever() -> None:
    """Neither of objects that are gone, nor of pauses that are over."""
    pauses: StatusPauses[int] = StatusPauses()
    for key in range(100):
        pauses.written(key, 1.0)
        pauses.holds(key, 1.0)
    pauses.keep({7})

    assert pauses.take_due(1.0 + PAUSE_SECONDS) == [7]
    assert not pauses._written
    assert not pauses._due
