"""Pauses after failures, which are counted."""

from __future__ import annotations

from tidemark_replica.retry import MAX_SECONDS, Backoff


def test_pauses_grow_to_the_longest_and_every_failure_has_its_number() -> None:
    """However many there are: by its number the controller tells a death from one that it has counted."""
    now = [0.0]
    backoff, numbers, pauses = Backoff(lambda: now[0]), [], []
    for _ in range(2_000):
        backoff.failed()
        numbers.append(backoff.failures)
        before = now[0]
        while not backoff.has_elapsed:
            now[0] += 0.1
        pauses.append(now[0] - before)

    assert numbers == list(range(1, 2_001))
    assert pauses[0] < 1 < MAX_SECONDS <= pauses[-1] < MAX_SECONDS + 1
