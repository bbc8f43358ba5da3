"""Observations of replicas from their pods, in the words of `kubectl get pods`."""

from __future__ import annotations

from typing import Any

import pytest

from tests.orchestrator.pods import container, pod, running, terminated_state, waiting
from tidemark_operator.orchestrator.interface import Exit, Phase, ProcessProblem
from tidemark_operator.orchestrator.kubernetes import pod_observation
from tidemark_operator.orchestrator.kubernetes.pod_observation import (
    observe,
    observe_executors,
    problem_of,
    refusal,
    vanished,
)
from tidemark_replica import __main__ as program

AT = 1767225660000
"""When containers of these tests end."""


@pytest.mark.parametrize(
    ("body", "phase", "problem"),
    [
        (pod(running()), Phase.RUNNING, None),
        (pod(container(waiting("ContainerCreating")), "Pending"), Phase.STARTING, None),
        (pod(container(waiting("ImagePullBackOff", "no such image")), "Pending"), Phase.STARTING, "ImagePullBackOff"),
        (
            pod(container(waiting("CreateContainerConfigError")), "Pending"),
            Phase.STARTING,
            "CreateContainerConfigError",
        ),
        (pod(container(waiting("CrashLoopBackOff"), terminated_state(1), 3)), Phase.BACKING_OFF, "CrashLoopBackOff"),
        (pod(container(terminated_state(1))), Phase.BACKING_OFF, None),
        (pod(running(), deletionTimestamp="2026-01-01T00:00:20Z"), Phase.STOPPING, None),
        (pod(phase="Pending"), Phase.STARTING, None),
        (pod(phase="Failed") | {"status": {"phase": "Failed", "reason": "Evicted"}}, Phase.STARTING, "Evicted"),
    ],
)
def test_the_state_of_a_container_is_the_phase(body: dict[str, Any], phase: Phase, problem: str | None) -> None:
    """And what it waits for in vain, the trouble."""
    seen = observe("a", "s", body, 0.0)

    assert (seen.phase, seen.problem and seen.problem.reason) == (phase, problem)


def test_unschedulable_is_said_with_the_schedulers_words() -> None:
    """They name what is missing."""
    body = pod(phase="Pending")
    no = {
        "type": "PodScheduled",
        "status": "False",
        "reason": "Unschedulable",
        "message": "0/1 nodes:\n Insufficient cpu.",
    }
    body["status"]["conditions"] = [no]

    assert problem_of(body) == ProcessProblem("Unschedulable", "0/1 nodes: Insufficient cpu.")


@pytest.mark.parametrize(
    ("last", "exit"),
    [
        (terminated_state(137, "OOMKilled"), Exit(137, AT, "OOMKilled")),
        (terminated_state(137), Exit(137, AT, "Killed")),
        (terminated_state(143), Exit(143, AT, "Terminated")),
        (terminated_state(11), Exit(11, AT)),
        (terminated_state(13), Exit(13, AT, "NoExecutors")),
        (terminated_state(0, "Completed"), Exit(0, AT)),
    ],
)
def test_how_it_ended_is_told_as_reason_and_code(last: dict[str, Any], exit: Exit) -> None:
    """Also once it runs again; each start is an incarnation of its own."""
    first, second = observe("a", "s", pod(container(last)), 0.0), observe("a", "s", pod(running(1, last)), 0.0)

    assert first.last_exit == second.last_exit == exit
    assert (first.incarnation, second.incarnation) == ("p1-0", "p1-1")
    assert exit.reason in ("OOMKilled", "Killed", "Terminated", "Crashed", "Completed", "NoExecutors")


def test_a_pod_that_is_gone_while_it_ran_has_not_died() -> None:
    """Told to go or not, as of the last look: its own death would have left the pod. One that was seen has."""
    settings = {"deletionTimestamp": "2026-01-01T00:00:20Z"}

    assert vanished(pod(running(), **settings), 7) == Exit(None, 7, "Terminated")
    assert vanished(pod(running()), 7) == Exit(None, 7, "Terminated")
    assert vanished(pod(container(terminated_state(1))), 7) == Exit(1, AT)
    assert vanished(pod(container(terminated_state(137, "OOMKilled")), **settings), 7) == Exit(137, AT, "OOMKilled")
    assert observe("a", "s", pod(running()), 0.0, before=Exit(None, 7, "Terminated")).last_exit == Exit(
        None, 7, "Terminated"
    )


def test_the_last_refusal_of_a_pod_is_told() -> None:
    """A quota is named as such."""
    quota = {
        "reason": "FailedCreate",
        "note": "exceeded quota: q, requested: cpu=2",
        "eventTime": "2026-01-01T00:00:02Z",
    }
    denied = {
        "reason": "FailedCreate",
        "note": "violates PodSecurity",
        "deprecatedLastTimestamp": "2026-01-01T00:00:01Z",
    }

    assert refusal([denied, quota]) == ProcessProblem("QuotaExceeded", "exceeded quota: q, requested: cpu=2")
    assert refusal([denied]) == ProcessProblem("FailedCreate", "violates PodSecurity")
    assert refusal([{"reason": "SuccessfulCreate"}]) is None


def test_executors_are_counted_and_one_of_their_troubles_is_told() -> None:
    """All of them are alike. One whose driver has not taken it in is not there yet."""
    broken = pod(container(waiting("ErrImagePull", "gone")), "Pending")
    failed = pod(container(terminated_state(52)), "Failed")

    assert observe_executors(2, [pod(running()), pod(running())]).running == 2
    assert observe_executors(2, [pod(running()), broken]).problem == ProcessProblem("ErrImagePull", "gone")
    assert observe_executors(2, [pod(running()), pod({**running(), "ready": False})]).running == 1
    assert observe_executors(2, [failed]).problem == ProcessProblem("Error", "an executor ended with exit code 52")
    assert observe_executors(2, [pod(running(), deletionTimestamp="now")]).running == 0


def test_a_pod_that_does_not_end_is_on_a_lost_node() -> None:
    """When it has been seen to end for its grace and a minute; until then it is stopping as any other. Its time may be
    long past, or to come: it is of another clock."""
    settings: dict[str, Any] = {"deletionTimestamp": "2026-01-01T00:00:20Z", "deletionGracePeriodSeconds": 30}
    body = pod(running(), name="r1-0", **settings) | {"spec": {"nodeName": "n7"}}

    soon, late = (observe("a", "s", body, seconds) for seconds in (89.9, 90.0))

    assert (soon.phase, soon.problem) == (late.phase, None) == (Phase.STOPPING, None)
    assert late.problem is not None
    assert late.problem.reason == "NodeLost"
    assert "2026-01-01T00:00:20Z" in late.problem.message
    assert "kubectl delete node n7" in late.problem.message
    assert late.problem.message.endswith("cannot write wrong data")


def test_agree_the_exit_code_of_a_driver_without_executors() -> None:
    """The operator does not import replicas: another number on one side would blame what was hydrating."""
    assert pod_observation.EXIT_NO_EXECUTORS == program.EXIT_NO_EXECUTORS
