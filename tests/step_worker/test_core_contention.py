"""When another step worker is worth its start: as tickets wait, not as they come."""

from __future__ import annotations

import pytest

from tidemark_replica.render.step_worker.core_contention import WINDOW_SECONDS, CoreContention

WINDOWS = 5
STEPS = 10


class Clock:
    """Moved by hand."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def late(tickets: list[int], processes: int) -> bool:
    """Whether it was ever time, so many tickets being there from tenth to tenth of a window, again and again."""
    clock = Clock()
    crowding, before, found = CoreContention(clock), 0, False
    for tenth in range(WINDOWS * STEPS + 1):
        clock.now = tenth * WINDOW_SECONDS / STEPS
        now = tickets[tenth % len(tickets)]
        found |= crowding.look(processes, now - before)
        before = now
    return found


@pytest.mark.parametrize(
    ("tickets", "processes", "expected"),
    [
        ([0], 1, False),
        ([1], 1, False),
        ([2], 1, True),
        ([4], 1, True),
        ([2, 1], 1, False),
        ([4, 1, 1, 0], 1, False),
        ([4, 4, 1, 0], 1, True),
        ([2], 2, False),
        ([4], 2, True),
    ],
)
def test_another_process_is_due_when_one_ticket_waits_on_average(
    tickets: list[int], processes: int, expected: bool
) -> None:
    """Whatever the number of processes, and however the waiting is spread over a window."""
    assert late(tickets, processes) is expected


def test_waiting_for_a_process_to_start_does_not_count() -> None:
    """Else the first steps of a replica would start two."""
    clock = Clock()
    crowding = CoreContention(clock)
    assert not crowding.look(1, 4)
    clock.now = WINDOW_SECONDS
    crowding.forget()
    assert not crowding.look(1, -4)
    for windows in (2, 3, 4):
        clock.now = windows * WINDOW_SECONDS
        assert not crowding.look(1)
