"""The status of a ComputeReplica, from what the orchestrator and the connections report of its processes."""

from __future__ import annotations

from typing import Any

from tidemark_operator.controller.frontiers.collection import Collection
from tidemark_operator.fleet.running_instance import RunningInstance
from tidemark_operator.handlers.hydration.hydration_slot_record import dataflows_of
from tidemark_operator.handlers.publish import status_documents
from tidemark_operator.handlers.reconcile_context import ReconcileContext
from tidemark_operator.handlers.replica_specs import replica_spec
from tidemark_operator.kube.cache import Key
from tidemark_operator.kube.client import Body
from tidemark_operator.orchestrator.interface import NO_EXECUTORS, Observation, Phase, Workers, replica_id
from tidemark_operator.resources.conditions import replica as replica_conditions
from tidemark_operator.resources.conditions.frontier import timestamp
from tidemark_operator.resources.conditions.instance import ReplicaProblem
from tidemark_operator.resources.conditions.replica import (
    Answering,
    Down,
    ExecutorFacts,
    Process,
    ReplicaFacts,
    Starting,
)
from tidemark_operator.resources.manifest.replica import ComputeReplica
from tidemark_protocol.ids import ReplicaId

MAX_NAMES = 3
"""The names that a message lists."""
NOT_STARTED = ("NotStarted", "the process has not been started")


def replica_status_of(context: ReconcileContext, key: Key, body: Body, now: status_documents.Now) -> dict[str, Any]:
    """The status of the process that serves. A process that hydrates beside it has a condition."""
    replica = ComputeReplica.parse(body)
    running = context.running(key.namespace, replica.instance)
    observed = context.orchestrator.observe(replica.meta.uid)
    serving = observed[0] if observed else None
    id = replica_id(key.name, serving.shape if serving else "")
    state = running.replicas.get(id) if running else None
    facts = ReplicaFacts(
        context.instance_facts(key.namespace, replica.instance),
        replica.suspend,
        _process(context, replica, body, running, serving),
        _hydrating_process(context, replica, body, running, observed[1]) if len(observed) > 1 else None,
        _executors(serving.executors, running.executor_problem(id) if running else None)
        if serving and serving.executors
        else None,
        process_exists=bool(observed),
    )
    online = state is not None and state.online
    installed, hydrated = hydrated_on(running, id)
    return status_documents.replica_status(
        now,
        replica_conditions.replica_conditions(facts),
        process_document(serving),
        dataflows=installed if online else None,
        dataflows_hydrated=hydrated if online else None,
        hydrations=state.description.hydrations if state and state.description and online else None,
    )


def hydrated_on(running: RunningInstance | None, replica: ReplicaId) -> tuple[int, int]:
    """The numbers of dataflows that are installed, and that are hydrated, on the replica."""
    if running is None:
        return 0, 0
    dataflows = [running.collections_of(owner) for owner in running.owners()]
    installed = [exports for exports in dataflows if all(_is_installed(c, replica) for c in exports)]
    return len(installed), sum(all(c.replicas[replica].hydrated for c in exports) for exports in installed)


def _is_installed(collection: Collection, replica: ReplicaId) -> bool:
    """Whether the replica has it, or lacks it only because its image is too old."""
    on = collection.replicas.get(replica)
    return on is not None and (not on.excluded or bool(on.missing_features)) and not collection.dropped


def lacking_on(running: RunningInstance | None, replica: ReplicaId) -> str:
    """The plan features that its image lacks, and the Dataflows that need them; empty if there are none."""
    if running is None:
        return ""
    found = dict[str, frozenset[str]]()
    for collection in running.collections():
        on, dataflow = collection.replicas.get(replica), running.dataflow(collection.owner)
        if on is not None and on.missing_features and dataflow is not None and not dataflow.dropped:
            found[dataflow.description.name] = on.missing_features
    if not found:
        return ""
    names, words = sorted(found), sorted(frozenset().union(*found.values()))
    return f"its image does not know {', '.join(words)}, and computes nothing of {_some(names)}"


def _process(
    context: ReconcileContext,
    replica: ComputeReplica,
    body: Body,
    running: RunningInstance | None,
    observed: Observation | None,
) -> Process:
    if observed is None:
        instance = context.instance(replica.meta.namespace, replica.instance)
        refusal = context.orchestrator.refusal(replica_spec(replica, instance))
        if refusal:
            return Down("NotSupported", refusal)
        uncertified = context.peers.refusal(replica.meta)
        return Down(*(("CertificateRefused", uncertified) if uncertified else NOT_STARTED))
    id = replica_id(replica.meta.name, observed.shape)
    state = running.replicas.get(id) if running else None
    if state is not None and state.online:
        return Answering(*hydrated_on(running, id), lacking_on(running, id))
    return _process_that_is_down(observed, state.last_error if state else "", dataflows_of(body, observed.shape))


def _hydrating_process(
    context: ReconcileContext,
    replica: ComputeReplica,
    body: Body,
    running: RunningInstance | None,
    observed: Observation,
) -> Process:
    """The process that hydrates beside the serving one. Without the executors that it needs the process counts as
    down."""
    process = _process(context, replica, body, running, observed)
    if not isinstance(process, Answering) or observed.executors is None:
        return process
    id = replica_id(replica.meta.name, observed.shape)
    executors = _executors(observed.executors, running.executor_problem(id) if running else None)
    if executors.reason and executors.running < executors.wanted:
        return Down(executors.reason, f"{executors.count}: {executors.message}")
    return process


def _process_that_is_down(observed: Observation, last_error: str, hydrating: list[str]) -> Process:
    """`hydrating`: Dataflows in its slots, one of which may have caused its end."""
    if observed.phase is Phase.BACKING_OFF and observed.last_exit is not None:
        last = observed.last_exit
        code = "" if last.code is None else f" with exit code {last.code}"
        return Down(
            last.reason,
            f"the process ended{code}{_while(hydrating)}, {observed.restarts} restarts so far; it is started again"
            f"{_remedy(last.reason)}",
        )
    if observed.problem is not None:
        return Down(observed.problem.reason, observed.problem.message)
    if observed.phase is Phase.STOPPING:
        return Down("Stopping", "the process is being stopped")
    if observed.phase is Phase.RUNNING and last_error:
        return Down("NotConnected", f"the process runs, but does not answer: {last_error}")
    return Starting()


def _while(hydrating: list[str]) -> str:
    return f" while it hydrated {_some(hydrating)}" if hydrating else ""


def _some(names: list[str]) -> str:
    return ", ".join(names[:MAX_NAMES]) + (f" and {len(names) - MAX_NAMES} more" if len(names) > MAX_NAMES else "")


def _remedy(reason: str) -> str:
    if reason == NO_EXECUTORS:
        return "; no executor of it ever came up: the condition ExecutorsReady says how the last one ended"
    return "; give it more memory: spec.resources.limits.memory" if reason == "OOMKilled" else ""


def _executors(workers: Workers, refused: ReplicaProblem | None) -> ExecutorFacts:
    """The executors. The problem shown is what keeps one from running or being created."""
    problem = workers.problem or refused
    return ExecutorFacts(
        workers.wanted,
        workers.running,
        problem.reason if problem else "",
        problem.message if problem else "",
    )


def process_document(observed: Observation | None) -> dict[str, Any] | None:
    """A replica's process. Its id is never used twice; arrangements end with the process."""
    if observed is None or observed.incarnation is None:
        return None
    last, started = observed.last_exit, observed.started_at_ms
    present = status_documents.present
    return present(
        id=observed.incarnation,
        startedAt=None if started is None else timestamp(started),
        restarts=observed.restarts,
        lastExit=last and present(reason=last.reason, exitCode=last.code, at=timestamp(last.at_ms)),
    )
