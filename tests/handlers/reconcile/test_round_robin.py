"""Round robin: all of a few keys, a share of many, each key once per round."""

from __future__ import annotations

from tidemark_operator.handlers.round_robin import BATCHES, MIN_BATCH, RoundRobin


def test_few_have_their_turn_every_time() -> None:
    """Whoever comes or goes between two times is seen, or not, at the next."""
    rounds: RoundRobin[int] = RoundRobin()
    for there in (range(MIN_BATCH), range(1, MIN_BATCH), range(2, MIN_BATCH + 2), range(0)):
        assert rounds.next(there) == list(there)


def test_must_each_of_many_has_its_turn_once_in_ten_times() -> None:
    """In shares of about the same size."""
    rounds: RoundRobin[int] = RoundRobin()
    there = range(MIN_BATCH * BATCHES + 3)
    shares = [rounds.next(there) for _ in range(2 * BATCHES)]

    assert sorted(key for share in shares[:BATCHES] for key in share) == list(there)
    assert sorted(key for share in shares[BATCHES:] for key in share) == list(there)
    assert max(map(len, shares)) == MIN_BATCH + 1


def test_a_removed_key_costs_no_other_key_its_turn() -> None:
    """Nor has who comes while a round is under way, before the next."""
    rounds: RoundRobin[int] = RoundRobin()
    first = rounds.next(range(2 * MIN_BATCH))
    second = rounds.next([*range(MIN_BATCH + 10, 2 * MIN_BATCH), 1000])

    assert first == list(range(MIN_BATCH))
    assert second == list(range(MIN_BATCH + 10, 2 * MIN_BATCH))
    assert 1000 in rounds.next([*range(MIN_BATCH + 10, 2 * MIN_BATCH), 1000])
