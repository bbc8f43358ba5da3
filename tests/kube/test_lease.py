"""A standby takes the Lease only if it has not changed for its duration, by the standby's own clock."""

from __future__ import annotations

import asyncio
import inspect
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

from tests.waiting import BOUND
from tidemark_operator.kube import leadership
from tidemark_operator.kube.client import Body
from tidemark_operator.kube.leadership import Leadership
from tidemark_operator.kube.lease import PROCESS, LeaseObserver, now_seconds
from tidemark_operator.kube.lease_holder_process import has_ended, this_process


def lease(holder: str = "a", renewed: str = "1", term: int = 3, process: str = "") -> Body:
    spec = {"holderIdentity": holder, "renewTime": renewed, "leaseTransitions": term, "leaseDurationSeconds": 10}
    return {"metadata": {"annotations": {PROCESS: process}}, "spec": spec}


HISTORIES: dict[str, tuple[list[tuple[float, Body | None]], bool]] = {
    "there is none": ([(0, None)], True),
    "it was let go of": ([(0, lease()), (1, lease(holder=""))], True),
    "it is ours, by a request whose answer was lost": ([(0, lease(holder="me"))], True),
    "seen for the first time, however long ago it was renewed": ([(1e9, lease(renewed="1970"))], False),
    "renewed now and then": ([(t, lease(renewed=str(t))) for t in range(0, 100, 9)], False),
    "as long as it lasts": ([(0, lease()), (10, lease())], False),
    "longer than it lasts": ([(0, lease()), (10.1, lease())], True),
    "counted from the last renewal": ([(0, lease()), (9, lease(renewed="2")), (18, lease(renewed="2"))], False),
    "another took it meanwhile": ([(0, lease()), (9, lease(holder="b")), (18, lease(holder="b"))], False),
    "it was deleted and made anew": ([(0, lease(term=7)), (9, lease(term=1)), (18, lease(term=1))], False),
    "nobody looked for long, and it was renewed": ([(0, lease()), (1e6, lease(renewed="2"))], False),
    "without a duration": ([(0, {"metadata": {}, "spec": {"holderIdentity": "a"}}), (14, lease())], False),
    "without a word": ([(0, {"metadata": {}})], True),
    "deleted under its holder": ([(0, lease()), (10, None), (20, None)], False),
    "deleted under its holder, who is late by then": ([(0, lease()), (10, None), (20.1, None)], True),
    "deleted, and made anew by its holder": ([(0, lease()), (9, None), (18, lease()), (28, lease())], False),
}


@pytest.mark.parametrize("history", HISTORIES)
def test_a_lease_is_free_once_it_has_not_changed_for_as_long_as_it_lasts(history: str) -> None:
    """At the last of the looks, each at its time."""
    now = 0.0
    seen = LeaseObserver("me", lambda: now)
    looks, expected = HISTORIES[history]

    found = []
    for now, body in looks:  # noqa: B007 - the clock
        found.append(seen.is_free(body, has_ended=lambda _: False))

    assert found[-1] is expected
    assert not any(found[:-1])


def test_a_lease_that_was_let_go_of_and_then_deleted_is_free_at_once() -> None:
    """Nobody writes any more; there is nothing to wait for."""
    seen = LeaseObserver("me", lambda: 0.0)
    looks = [lease(), lease(holder=""), None]

    assert [seen.is_free(body, has_ended=lambda _: False) for body in looks] == [False, True, True]


def test_a_standby_leads_within_twenty_seconds() -> None:
    """At the worst: the last renewal is seen a look late, its end too, and both requests take their time."""
    looks = 2 * (leadership.LOOK_SECONDS + leadership.PATIENCE_SECONDS)
    assert leadership.LEASE_SECONDS + looks < 20


def test_the_clock_goes_on_while_the_machine_sleeps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where it has such a clock: a leader that woke up would count the sleep as nothing, and write."""
    clocks = {time.CLOCK_BOOTTIME: 7.0, time.CLOCK_MONOTONIC: 3.0}
    with monkeypatch.context() as patched:
        patched.setattr(time, "clock_gettime", clocks.__getitem__)
        asleep_too = now_seconds()
        patched.delattr(time, "CLOCK_BOOTTIME")
        elsewhere = now_seconds()

    assert (asleep_too, elsewhere) == (7.0, 3.0)
    assert inspect.signature(Leadership).parameters["clock"].default is now_seconds


def test_a_lease_is_free_at_once_when_the_process_that_holds_it_has_ended() -> None:
    """A process on its machine alone can know that."""
    seen = LeaseObserver("me", lambda: 0.0)

    assert not seen.is_free(lease(process="alive"), has_ended=lambda process: process == "dead")
    assert seen.is_free(lease(process="dead"), has_ended=lambda process: process == "dead")


def test_a_process_that_runs_has_not_ended_and_one_that_ended_has() -> None:
    """Known by its pid and when it began."""
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    boot, space, pid, _ = this_process().split("/")
    began = _started(child.pid)
    there = f"{boot}/{space}/{child.pid}/{began}"

    assert int(pid) == os.getpid()
    assert not has_ended(this_process())
    assert not has_ended(there)
    assert has_ended(f"{boot}/{space}/{child.pid}/{began - 1}"), "its pid was another's"
    child.communicate(timeout=BOUND)
    assert has_ended(there)


def _started(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])


GARBLE: list[Callable[[str, str, str, str], str]] = [
    lambda boot, space, pid, started: f"another-{boot}/{space}/999999999/{started}",
    lambda boot, space, pid, started: f"{boot}/1/999999999/{started}",
    lambda boot, space, pid, started: f"{boot}/{space}/-1/{started}",
    lambda boot, space, pid, started: f"{boot}/{space}/../x",
    lambda boot, space, pid, started: f"{boot}/{space}/{pid}",
    lambda boot, space, pid, started: "",
]


@pytest.mark.parametrize("garble", GARBLE)
def test_of_another_machine_and_of_nonsense_nothing_is_known(garble: Callable[[str, str, str, str], str]) -> None:
    """Whoever cannot know waits until the Lease has run out."""
    boot, space, pid, started = this_process().split("/")

    assert not has_ended(garble(boot, space, pid, started))


def test_an_api_server_that_does_not_answer_is_named_as_the_reason(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A time-out has no text of its own."""

    class Silent:
        async def get(self, *_: object) -> None:
            await asyncio.sleep(BOUND)

    async def stand_by() -> None:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(Leadership(cast(Any, Silent()), "ns", "me").stand_by(), 0.5)

    monkeypatch.setattr(leadership, "PATIENCE_SECONDS", 0.01)
    asyncio.run(stand_by())

    assert "standing by, the Lease cannot be read: no answer within 0 s" in caplog.text
