"""Where a dataflow begins. This module alone asks for an as_of (controller/frontiers/as_of.py has the rule).

    first_as_of          before a revision is stored       the revision has it, as a lower bound
    installation_as_of   each time it is installed         what replicas are told: never before the inputs' sinces,
                                                            which may have moved since
    check_beginning      where nothing is stored           what both would raise now

Frontiers move while a revision is stored, and while an operator or a replica is away. So the stored as_of is only a
bound, and an installation selects anew (docs/decisions/0030-as-of-is-selected-at-installation.md).
"""

from __future__ import annotations

from collections.abc import Iterable

from tidemark_operator.catalogue.dataflow_state import DataflowState
from tidemark_operator.catalogue.registry import Registry
from tidemark_operator.controller.frontiers.as_of import AsOfRequest, select_as_of
from tidemark_operator.errors import Waiting
from tidemark_operator.fleet.running_instance import RunningInstance
from tidemark_operator.handlers.revisions.import_frontiers import import_frontiers
from tidemark_operator.handlers.revisions.revision_ends import is_sealed, may_be_finished
from tidemark_operator.planning.assemble import with_as_of
from tidemark_operator.planning.revision import view_shards
from tidemark_protocol.frontier import Frontier, meet
from tidemark_protocol.ids import Time
from tidemark_protocol.messages.responses import Description
from tidemark_protocol.plan.dataflow import DataflowDescription


def first_as_of(
    running: RunningInstance, registry: Registry, state: DataflowState, description: DataflowDescription
) -> Time:
    """The as_of that a revision is stored with: `spec.asOf`, or as late as the inputs are complete.

    Raises:
        Waiting: an input is unknown, or has no data yet.
        Rejected: the inputs cannot be read at `spec.asOf`, or not before `spec.until`.
    """
    is_task, uppers = description.continual_task is not None, _uppers(running, description)
    # an edited view has a new table; a task keeps its table, and the first revision keeps adopted tables
    keeps_tables = state.active is None or is_task
    sealed = keeps_tables and is_sealed(running, description)
    # a task that adopts a table may leave out no time; for an edited task that is checked at its installation
    exact = is_task and state.active is None and any(upper > Frontier.minimum() for upper in uppers)
    requested = None if state.spec.as_of is None else Time(state.spec.as_of)
    return _select(running, registry, state, description, requested=requested, exact=exact, sealed=sealed)


def installation_as_of(
    running: RunningInstance, registry: Registry, state: DataflowState, description: DataflowDescription, sealed: bool
) -> Time:
    """The as_of that replicas are told for a stored revision. `sealed`: all that it exports is finished.

    Raises:
        Waiting: an input is unknown.
        Rejected: the inputs can be read after `spec.until` only, or a continual task would leave out a time.
    """
    exact = description.continual_task is not None
    unsure = not sealed and may_be_finished(running, description)
    return _select(
        running, registry, state, description, stored=description.as_of, exact=exact, sealed=sealed, unsure=unsure
    )


def check_beginning(
    running: RunningInstance, registry: Registry, state: DataflowState, description: DataflowDescription
) -> None:
    """Raises what keeps a new revision with this description from its beginning: Waiting, Rejected. The description may
    have no as_of yet."""
    as_of = first_as_of(running, registry, state, description)
    if description.continual_task is not None:  # its installation alone checks that it leaves out no time
        installation_as_of(running, registry, state, with_as_of(description, as_of), is_sealed(running, description))


def _select(
    running: RunningInstance,
    registry: Registry,
    state: DataflowState,
    description: DataflowDescription,
    *,
    exact: bool,
    sealed: bool,
    stored: Time | None = None,
    requested: Time | None = None,
    unsure: bool = False,
) -> Time:
    inputs = import_frontiers(running, registry, state, description, sealed)
    uppers = _uppers(running, description)
    goes_on_at = running_sinces(description, [r.description for r in running.replicas.values() if r.description])
    if exact and not uppers and not goes_on_at:  # a replica that has the task has a since behind its table's upper
        raise Waiting("WaitingForInput", "waiting for a replica to report how far its own table is")
    return select_as_of(
        AsOfRequest(
            inputs=inputs,
            sinks=tuple(upper for upper in uppers if upper > Frontier.minimum()),
            stored=stored,
            running=tuple(goes_on_at),
            requested=requested,
            exact=exact,
            until=description.until,
            sealed=sealed,
            unsure=unsure,
        )
    )


def _uppers(running: RunningInstance, description: DataflowDescription) -> list[Frontier]:
    """The uppers of the tables that the dataflow writes, as far as they are known."""
    known = (running.shards.frontiers(shard.shard_id) for shard in view_shards(description))
    return [frontiers.upper for frontiers in known if frontiers is not None]


def running_sinces(description: DataflowDescription, descriptions: Iterable[Description]) -> list[Frontier]:
    """Sinces of the exports on replicas that run this dataflow, with the same plan."""
    wanted, digest = set(description.export_ids), description.plan_digest
    sinces = []
    for replica in descriptions:
        if any(d.digest == digest and set(d.export_ids) == wanted for d in replica.dataflows):
            there = [c.since for c in replica.collections if c.id in wanted and not c.since.is_empty]
            # the least: an index may keep times that a view of the same Dataflow has compacted
            sinces += [meet(there)] if there else []
    return sinces
