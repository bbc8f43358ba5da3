"""The Observation of a driver's process, from its pod. Pure: objects of the API server in, an Observation out.

    no pod       ─► why the StatefulSet could not make it: quota, admission
    Pending      ─► Unschedulable, ImagePullBackOff, ...: the reason that `kubectl get pods` shows
    Running      ─► the container, its restarts, and its last exit
    Terminating  ─► NodeLost, if the node does not confirm the end within a minute of the grace period

The incarnation is the pod's uid and its container's restart count. Reasons and messages go into conditions; they are
the API server's own words and hold no secrets.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

from tidemark_operator.kube.client import Body
from tidemark_operator.orchestrator.interface import NO_EXECUTORS, Exit, Observation, Phase, ProcessProblem, Workers

MAX_MESSAGE = 512
# waiting reasons of a container that is starting normally
_NORMAL_WAITS = frozenset({"ContainerCreating", "PodInitializing"})
BACKING_OFF = "CrashLoopBackOff"
NODE_LOST = "NodeLost"
LOST_SECONDS = 60.0
SIGKILL, SIGTERM = 128 + 9, 128 + 15
EXIT_NO_EXECUTORS = 13  # a replica's exit code (tidemark_replica/__main__.py)


def observe(
    address: str,
    shape: str,
    pod: Body | None,
    ending_seconds: float,
    refused: ProcessProblem | None = None,
    executors: Workers | None = None,
    before: Exit | None = None,
) -> Observation:
    """The Observation of a driver's pod; `pod` None: there is none. `ending_seconds`: time since the pod was first
    observed with a deletion timestamp. `refused`: why the pod cannot be made. `before`: the exit of the previous
    pod."""
    if pod is None:
        return Observation(Phase.STARTING, address, last_exit=before, shape=shape, problem=refused, executors=executors)
    container = _container(pod)
    started = pod["metadata"].get("creationTimestamp")
    running = (container.get("state") or {}).get("running") or {}
    restarts = int(container.get("restartCount") or 0)
    return Observation(
        phase=_phase(pod, container),
        address=address,
        incarnation=f"{pod['metadata']['uid']}-{restarts}",
        started_at_ms=milliseconds(running.get("startedAt") or started),
        restarts=restarts,
        last_exit=_last_exit(container) or before,
        shape=shape,
        problem=node_lost_problem(pod, ending_seconds) or problem_of(pod),
        executors=executors,
    )


def observe_executors(wanted: int, pods: Sequence[Body]) -> Workers:
    """The state of the executors, from their pods."""
    alive = [pod for pod in pods if not pod["metadata"].get("deletionTimestamp")]
    running = sum(is_up(pod) for pod in alive)
    problems = (problem_of_executor(pod) for pod in alive)
    return Workers(wanted, running, next((t for t in problems if t), None))


def is_up(pod: Body) -> bool:
    """Whether the pod runs and is ready. An executor is ready once it has registered with its driver (its probe)."""
    containers = (pod.get("status") or {}).get("containerStatuses") or ()
    return _pod_phase(pod) == "Running" and all(container.get("ready") for container in containers)


def problem_of(pod: Body) -> ProcessProblem | None:
    """The reason why the pod does not run; None: it runs, or it is starting normally."""
    status = pod.get("status") or {}
    for container in status.get("containerStatuses") or ():
        waiting = (container.get("state") or {}).get("waiting") or {}
        if waiting.get("reason") and waiting["reason"] not in _NORMAL_WAITS:
            return problem(waiting["reason"], waiting.get("message"))
    for condition in status.get("conditions") or ():
        if condition["type"] == "PodScheduled" and condition["status"] == "False":
            return problem(condition.get("reason") or "Unschedulable", condition.get("message"))
    if _pod_phase(pod) == "Failed":
        return problem(status.get("reason") or "Failed", status.get("message"))
    return None


def node_lost_problem(pod: Body, ending_seconds: float) -> ProcessProblem | None:
    """NodeLost, if the pod has been ending for a minute more than its grace period; else None.

    The StatefulSet makes no other pod meanwhile: only the node, or a person who knows that the node is off, can tell
    that the process has ended. The function compares durations of the operator's clock. The deletion timestamp is of
    the API server's clock, and an operator's clock ahead of it would declare every ending pod lost."""
    due = pod["metadata"].get("deletionTimestamp")
    grace = float(pod["metadata"].get("deletionGracePeriodSeconds") or 0)
    if due is None or ending_seconds < grace + LOST_SECONDS:
        return None
    name, node = pod["metadata"]["name"], (pod.get("spec") or {}).get("nodeName") or "its node"
    return problem(
        NODE_LOST,
        f"pod {name} should have ended at {due}, but node {node} has not confirmed it: the node may be off or cut off. "
        f"The replica starts elsewhere once the node answers. If the node is gone, remove it (kubectl delete node "
        f"{node}) or the pod (kubectl delete pod {name} --force). Both are safe: a process that still runs cannot "
        f"write wrong data",
    )


def refusal(events: Iterable[Body]) -> ProcessProblem | None:
    """The reason why a StatefulSet could not make its pod: the last of its FailedCreate events; None: there is none."""
    failed = [event for event in events if event.get("reason") == "FailedCreate"]
    if not failed:
        return None
    note = max(failed, key=_event_time).get("note") or ""
    return problem("QuotaExceeded" if "exceeded quota" in note else "FailedCreate", note)


def problem(reason: str, message: str | None) -> ProcessProblem:
    """A ProcessProblem whose reason and message are cut to the size of a condition."""
    return ProcessProblem(reason[:128], " ".join((message or reason).split())[:MAX_MESSAGE])


def milliseconds(timestamp: str | None) -> int | None:
    """Milliseconds since 1970 of a timestamp of the API server."""
    return None if timestamp is None else int(datetime.fromisoformat(timestamp).timestamp() * 1000)


def vanished(pod: Body, at_ms: int) -> Exit:
    """The exit of a pod that is gone while it should run; `at_ms`: milliseconds since 1970, now.

    The kubelet restarts a container that dies in the same pod. A container that ran until its pod was gone was
    therefore
    ended with the pod (eviction, drain, lost node, deletion), and did not die by itself. The last list may be older
    than
    the pod's deletion timestamp."""
    deleted = pod["metadata"].get("deletionTimestamp")
    container = _container(pod)
    ended = (container.get("state") or {}).get("terminated")
    if ended and (ended.get("reason") == "OOMKilled" or not deleted):
        return _exit(ended)
    return Exit(None, at_ms, "Terminated")


def _container(pod: Body) -> dict[str, Any]:
    """The status of the pod's only container; empty before it exists."""
    statuses: list[dict[str, Any]] = (pod.get("status") or {}).get("containerStatuses") or [{}]
    return statuses[0]


def _phase(pod: Body, container: dict[str, Any]) -> Phase:
    state = container.get("state") or {}
    if pod["metadata"].get("deletionTimestamp"):
        return Phase.STOPPING
    if state.get("running"):
        return Phase.RUNNING
    if state.get("terminated") or (state.get("waiting") or {}).get("reason") == BACKING_OFF:
        return Phase.BACKING_OFF
    return Phase.STARTING


def _last_exit(container: dict[str, Any]) -> Exit | None:
    """The exit of this container, or else of the one before it in the same pod."""
    states = (container.get("state") or {}, container.get("lastState") or {})
    ended = next((state["terminated"] for state in states if state.get("terminated")), None)
    return _exit(ended) if ended else None


def _exit(ended: dict[str, Any]) -> Exit:
    code = int(ended.get("exitCode") or 0)
    reason = {SIGKILL: "Killed", SIGTERM: "Terminated", EXIT_NO_EXECUTORS: NO_EXECUTORS}.get(code, "")
    if ended.get("reason") == "OOMKilled":
        reason = "OOMKilled"
    return Exit(code, milliseconds(ended.get("finishedAt")) or 0, reason)


def problem_of_executor(pod: Body) -> ProcessProblem | None:
    """The problem of an executor's pod that failed or does not run; None: it has none.

    A reason that the node gives for the whole pod (Evicted, OutOfcpu, NodeShutdown) takes precedence: it is the cause,
    and an exit code is a consequence. The pod may never have had a container."""
    status = pod.get("status") or {}
    if _pod_phase(pod) == "Failed" and status.get("reason"):
        return problem(status["reason"], status.get("message"))
    for container in status.get("containerStatuses") or ():
        ended = (container.get("state") or {}).get("terminated") or {}
        if ended.get("exitCode"):
            reason = ended.get("reason") or "Error"
            remedy = "; give executors more memory: spec.executors.resources" if reason == "OOMKilled" else ""
            return problem(reason, f"an executor ended with exit code {ended['exitCode']}{remedy}")
    return problem_of(pod)


def _pod_phase(pod: Body) -> str:
    return str((pod.get("status") or {}).get("phase") or "Pending")


def _event_time(event: Body) -> str:
    """The time when the event was last seen, as text that sorts by time; empty if it does not say."""
    series = event.get("series") or {}
    return str(series.get("lastObservedTime") or event.get("eventTime") or event.get("deprecatedLastTimestamp") or "")
