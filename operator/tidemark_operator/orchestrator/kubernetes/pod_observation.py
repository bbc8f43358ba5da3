"""What a driver's pod says of the process in it. Pure: objects of the API server in, an Observation out.

    no pod       ─► why the StatefulSet could not make it: quota, admission
    Pending      ─► Unschedulable, ImagePullBackOff, ...: the word that `kubectl get pods` shows
    Running      ─► the container, how often it was started again, and how it ended before
    Terminating  ─► NodeLost, where nobody says for a minute that it has ended

The incarnation is the pod and how often its container was started. What is said here goes into conditions, so it holds
no secrets: the API server's own reasons and messages.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

from tidemark_operator.kube.client import Body
from tidemark_operator.orchestrator.interface import NO_EXECUTORS, Exit, Observation, Phase, Trouble, Workers

MAX_MESSAGE = 512
# a container that waits for these only waits for its turn
_PASSING = frozenset({"ContainerCreating", "PodInitializing"})
BACKING_OFF = "CrashLoopBackOff"
NODE_LOST = "NodeLost"
LOST_SECONDS = 60.0
SIGKILL, SIGTERM = 128 + 9, 128 + 15
EXIT_NO_EXECUTORS = 13  # of a replica (tidemark_replica/__main__.py)


def observe(
    address: str,
    shape: str,
    pod: Body | None,
    ending_seconds: float,
    refused: Trouble | None = None,
    executors: Workers | None = None,
    before: Exit | None = None,
) -> Observation:
    """`ending_seconds`: for how long it has been seen to be told to end; `refused`: why there is no pod; `before`: how
    the pod before this one ended."""
    if pod is None:
        return Observation(Phase.STARTING, address, last_exit=before, shape=shape, trouble=refused, executors=executors)
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
        trouble=lost(pod, ending_seconds) or trouble_of(pod),
        executors=executors,
    )


def observe_executors(wanted: int, pods: Sequence[Body], lost: Trouble | None = None) -> Workers:
    """Of the executors' pods that are there now; `lost`: what ended the last one that failed."""
    alive = [pod for pod in pods if not pod["metadata"].get("deletionTimestamp")]
    running = sum(is_up(pod) for pod in alive)
    troubles = (trouble_of_executor(pod) for pod in alive)
    return Workers(wanted, running, next((t for t in troubles if t), None), lost)


def is_up(pod: Body) -> bool:
    """Whether all in it runs and is ready: an executor once its driver has taken it in, as its probe tells."""
    containers = (pod.get("status") or {}).get("containerStatuses") or ()
    return _pod_phase(pod) == "Running" and all(container.get("ready") for container in containers)


def trouble_of(pod: Body) -> Trouble | None:
    """Why it does not run; None where it does, or nothing is wrong with it."""
    status = pod.get("status") or {}
    for container in status.get("containerStatuses") or ():
        waiting = (container.get("state") or {}).get("waiting") or {}
        if waiting.get("reason") and waiting["reason"] not in _PASSING:
            return trouble(waiting["reason"], waiting.get("message"))
    for condition in status.get("conditions") or ():
        if condition["type"] == "PodScheduled" and condition["status"] == "False":
            return trouble(condition.get("reason") or "Unschedulable", condition.get("message"))
    if _pod_phase(pod) == "Failed":
        return trouble(status.get("reason") or "Failed", status.get("message"))
    return None


def lost(pod: Body, ending_seconds: float) -> Trouble | None:
    """Where it should have ended long since. A StatefulSet makes no other pod meanwhile: whether it has ended only its
    node can say, or whoever knows that the node is off.

    By how long it was seen to end, not by the time that it is due: that is of the API server's clock, and a clock here
    that is ahead of it would take each pod that ends for lost."""
    due = pod["metadata"].get("deletionTimestamp")
    grace = float(pod["metadata"].get("deletionGracePeriodSeconds") or 0)
    if due is None or ending_seconds < grace + LOST_SECONDS:
        return None
    name, node = pod["metadata"]["name"], (pod.get("spec") or {}).get("nodeName") or "its node"
    return trouble(
        NODE_LOST,
        f"pod {name} should have ended at {due}, and node {node} does not say that it has: is it off, or cut off? The "
        f"replica starts elsewhere once the node answers, or is removed (kubectl delete node {node}), or on kubectl "
        f"delete pod {name} --force, which is safe: should the process run on, it writes nothing wrong",
    )


def refusal(events: Iterable[Body]) -> Trouble | None:
    """Why a StatefulSet could not make its pod, by the last of its events."""
    failed = [event for event in events if event.get("reason") == "FailedCreate"]
    if not failed:
        return None
    note = max(failed, key=_when).get("note") or ""
    return trouble("QuotaExceeded" if "exceeded quota" in note else "FailedCreate", note)


def trouble(reason: str, message: str | None) -> Trouble:
    """Bounded: it goes into a condition."""
    return Trouble(reason[:128], " ".join((message or reason).split())[:MAX_MESSAGE])


def milliseconds(timestamp: str | None) -> int | None:
    return None if timestamp is None else int(datetime.fromisoformat(timestamp).timestamp() * 1000)


def vanished(pod: Body, at_ms: int) -> Exit:
    """A pod that is gone while it should run. A container that dies is started again in the same pod, so one that ran
    until its pod was gone was ended with it (an eviction, a drain, a lost node, somebody's delete): that is no death of
    its own. A look may miss that the pod was told to."""
    told = pod["metadata"].get("deletionTimestamp")
    container = _container(pod)
    ended = (container.get("state") or {}).get("terminated")
    if ended and (ended.get("reason") == "OOMKilled" or not told):
        return _exit(ended)
    return Exit(None, at_ms, "Terminated")


def _container(pod: Body) -> dict[str, Any]:
    """The status of its only container; empty before there is one."""
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
    """Of the container before this one, or of this one where none has followed yet."""
    states = (container.get("state") or {}, container.get("lastState") or {})
    ended = next((state["terminated"] for state in states if state.get("terminated")), None)
    return _exit(ended) if ended else None


def _exit(ended: dict[str, Any]) -> Exit:
    code = int(ended.get("exitCode") or 0)
    said = {SIGKILL: "Killed", SIGTERM: "Terminated", EXIT_NO_EXECUTORS: NO_EXECUTORS}.get(code, "")
    if ended.get("reason") == "OOMKilled":
        said = "OOMKilled"
    return Exit(code, milliseconds(ended.get("finishedAt")) or 0, said)


def trouble_of_executor(pod: Body) -> Trouble | None:
    """How it ended, if it failed, or why it does not run. What its node says of the pod as a whole (Evicted, OutOfcpu,
    NodeShutdown) is the cause: its container may never have been there, and an exit code only follows from it."""
    status = pod.get("status") or {}
    if _pod_phase(pod) == "Failed" and status.get("reason"):
        return trouble(status["reason"], status.get("message"))
    for container in status.get("containerStatuses") or ():
        ended = (container.get("state") or {}).get("terminated") or {}
        if ended.get("exitCode"):
            reason = ended.get("reason") or "Error"
            remedy = "; give executors more memory: spec.executors.resources" if reason == "OOMKilled" else ""
            return trouble(reason, f"one ended with exit code {ended['exitCode']}{remedy}")
    return trouble_of(pod)


def _pod_phase(pod: Body) -> str:
    return str((pod.get("status") or {}).get("phase") or "Pending")


def _when(event: Body) -> str:
    series = event.get("series") or {}
    return str(series.get("lastObservedTime") or event.get("eventTime") or event.get("deprecatedLastTimestamp") or "")
