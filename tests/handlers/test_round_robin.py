"""Turns: all of few, a share of many, and nobody is left out."""

from __future__ import annotations

from tidemark_operator.handlers.round_robin import LEAST, TIMES, Rounds


def test_few_have_their_turn_every_time() -> None:
    """Whoever comes or goes between two times is seen, or not, at the next."""
    rounds: Rounds[int] = Rounds()
    for there in (range(LEAST), range(1, LEAST), range(2, LEAST + 2), range(0)):
        assert rounds.turn(there) == list(there)


def test_must_each_of_many_has_its_turn_once_in_ten_times() -> None:
    """In shares of about the same size."""
    rounds: Rounds[int] = Rounds()
    there = range(LEAST * TIMES + 3)
    shares = [rounds.turn(there) for _ in range(2 * TIMES)]

    assert sorted(key for share in shares[:TIMES] for key in share) == list(there)
    assert sorted(key for share in shares[TIMES:] for key in share) == list(there)
    assert max(map(len, shares)) == LEAST + 1


def test_who_is_gone_has_no_turn_and_costs_nobody_else_theirs() -> None:
    """Nor has who comes while a round is under way, before the next."""
    rounds: Rounds[int] = Rounds()
    first = rounds.turn(range(2 * LEAST))
    second = rounds.turn([*range(LEAST + 10, 2 * LEAST), 1000])

    assert first == list(range(LEAST))
    assert second == list(range(LEAST + 10, 2 * LEAST))
    assert 1000 in rounds.turn([*range(LEAST + 10, 2 * LEAST), 1000])
