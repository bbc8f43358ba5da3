"""One export on all replicas: the frontiers of each, the furthest, and what it keeps readable.

    replica r1   write 900  input 905  output 900 ┐
    replica r2   write 700  input 705  output 700 ┴► write 900 (furthest)
                                                     since = write - lag (index), write - 1 (view), < until
                                                     inputs held at min(since, slowest input - 1)

Inputs are shards and indexes. Indexes are other collections of the instance; peeks and importers hold them by name.

Frontiers of a replica only advance: a report below its as_of, or behind its last one, is counted and ignored. Where a
replica reports that a table is finished, `Dataflows.conclude` decides whose end that is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tidemark_operator.controller.frontiers.read_policy import before, bounded, trailing
from tidemark_operator.controller.reports.catch_up import CatchUp, catch_up
from tidemark_operator.controller.reports.hydration_progress import HydrationProgress, hydration_progress
from tidemark_operator.controller.reports.operator_costs import operator_costs
from tidemark_operator.controller.reports.recomputation import (
    BEGUN,
    GIVEN_UP,
    Recomputation,
    given_up,
    recomputation,
    recomputing,
)
from tidemark_operator.controller.reports.recomputation import KIND as RECOMPUTED
from tidemark_operator.controller.reports.task_time import TaskTime
from tidemark_protocol.frontier import EMPTY_SENTINEL, Frontier, join, meet
from tidemark_protocol.ids import GlobalId, ReplicaId, ShardId, Time
from tidemark_protocol.messages.responses import Failure, FailureKind, Frontiers

STRIDES = 10
"""A since advances in strides of this part of the lag, as each one is a command to every replica."""
_KINDS = ("write", "input", "output")
_FOR_GOOD = (FailureKind.REFUSED, FailureKind.FENCED)
_OF_STEPS = (FailureKind.RENDER, FailureKind.STEP)


@dataclass
class ExportOnReplica:
    """The export on one replica. `as_of`: the time at which this replica began; `earlier`: it continues from before
    the as_of of other replicas; `excluded`: the replica is not sent the dataflow, because it is finished or because
    the image has `missing_features` (replicas/excluded_dataflows.py)."""

    as_of: Frontier
    write: Frontier | None = None
    input: Frontier | None = None
    output: Frontier | None = None
    earlier: bool = False
    excluded: bool = False
    missing_features: frozenset[str] = frozenset()
    refused_reports: int = 0
    statuses: dict[str, Mapping[str, str]] = field(default_factory=dict)
    failures: dict[FailureKind, Failure] = field(default_factory=dict)
    task_time: TaskTime | None = None

    @staticmethod
    def finished(as_of: Frontier) -> ExportOnReplica:
        """The state of a finished export: the replica has nothing of it, and nothing to do for it."""
        end = Frontier.empty()
        return ExportOnReplica(as_of, end, end, end, excluded=True)

    @staticmethod
    def not_understood(id: GlobalId, as_of: Frontier, lacks: frozenset[str]) -> ExportOnReplica:
        """The state on a replica whose image lacks features of the plan: it has nothing of it, and computes nothing."""
        why = f"its image does not know {', '.join(sorted(lacks))}"
        refused = Failure(id, FailureKind.REFUSED, why, stopped=True)
        return ExportOnReplica(as_of, excluded=True, missing_features=lacks, failures={refused.kind: refused})

    @property
    def hydrated(self) -> bool:
        """Whether the replica has output beyond its as_of."""
        return self.output is not None and (self.as_of < self.output or self.output.is_empty)

    @property
    def hydrating(self) -> HydrationProgress | None:
        """The progress that the replica reports; None once it is hydrated."""
        return None if self.hydrated else hydration_progress(self.statuses.get("hydration", {}))

    def take_costs(self, now_ms: int) -> None:
        """Count the time of the tasks that the status `operators` has."""
        total = sum(cost.elapsed_ms for cost in operator_costs(self.statuses["operators"]))
        self.task_time = self.task_time.after(total, now_ms) if self.task_time else TaskTime(now_ms, total)

    @property
    def rows(self) -> int | None:
        """About how many rows the replica reports of the export; None where it reports none."""
        rows = self.statuses.get("rows", {}).get("rows", "")
        return int(rows) if rows.isdecimal() and len(rows) < 20 else None

    @property
    def recomputed(self) -> Recomputation | None:
        """The last time at which the replica has computed the views anew, by policy auto; None: it has not."""
        return recomputation(self.statuses.get(RECOMPUTED, {}))

    @property
    def recomputing(self) -> str:
        """The recomputation that runs on the replica now, and its reason; empty: none."""
        return recomputing(self.statuses.get(BEGUN, {}), self.recomputed)

    @property
    def recomputations_given_up(self) -> str:
        """The reason why the replica computes the views anew no more, in spite of policy auto; empty: it does."""
        return given_up(self.statuses.get(GIVEN_UP, {}))

    @property
    def catching_up(self) -> CatchUp | None:
        """The replica's progress in steps of bounded rows; None where it takes all that has come in one."""
        return catch_up(self.statuses.get("catch_up", {}))

    @property
    def is_gone(self) -> bool:
        """Whether all three frontiers are empty, so the replica is done with the export, or never had it."""
        return bool(self.missing_features) or all(
            (f := getattr(self, kind)) is not None and f.is_empty for kind in _KINDS
        )

    @property
    def reads_from(self) -> int:
        """The least time of its inputs that the replica may still read, encoded as an int: this runs for every
        export on every replica once a second."""
        least = self.as_of.encode()
        if self.input is None:
            return EMPTY_SENTINEL if self.missing_features else least
        return EMPTY_SENTINEL if self.input.is_empty else max(least, self.input.encode() - 1)

    @property
    def table_changed(self) -> str:
        """The change by another program to a table that the export reads or writes, for which the replica computed it
        again; empty: nothing."""
        return self.statuses.get("table_changed", {}).get("message", "")

    def take(self, report: Frontiers) -> bool:
        """Take a report; return whether a frontier advanced. No loop over the kinds: this runs some ten thousand
        times a second."""
        write, input, output = self.write, self.input, self.output
        if (new := report.write) is not None and new is not write:
            self.write = self._advanced(new, write)
        if (new := report.input) is not None and new is not input:
            self.input = self._advanced(new, input)
        if (new := report.output) is not None and new is not output:
            self.output = self._advanced(new, output)
        wrote, stepped = self.write is not write, self.input is not input
        if self.failures:
            self._recovered(wrote=wrote and write is not None, stepped=stepped and input is not None)
        return wrote or stepped or self.output is not output

    def _advanced(self, new: Frontier, known: Frontier | None) -> Frontier | None:
        """`new` where it is beyond `known`, or is the first and not before the as_of; else `known`."""
        if known is None:
            if self.as_of <= new:
                return new
        elif known < new:
            return new
        elif known <= new:
            return known
        self.refused_reports += 1
        return known

    def _recovered(self, *, wrote: bool, stepped: bool) -> None:
        """Clear failures that a retry has mended: a step failure by another step, which moves the input frontier, a
        sink failure by another append. The first report of a frontier is no progress: it may be older than the failure.
        A sink that stopped for good stays failed, though another replica appends to its table."""
        for kind, failed in list(self.failures.items()):
            mended = kind in _OF_STEPS and stepped, kind == FailureKind.SINK and wrote and not failed.stopped
            if any(mended):
                del self.failures[kind]


@dataclass
class Collection:
    """One export. `shard`: the shard that a view or continual task writes; None for an index. `imports`: the indexes
    that it reads. `reads_own`: it reads its own shard, a millisecond late. `holds`: of an index, its readers and the
    frontier from which each reads. `away`: the least time that each disconnected replica may still read. `until`:
    the time at which it ends."""

    id: GlobalId
    owner: str
    as_of: Time
    inputs: tuple[ShardId, ...]
    lag_ms: int
    shard: ShardId | None = None
    imports: tuple[GlobalId, ...] = ()
    reads_own: bool = False
    until: Time | None = None
    since: Frontier = field(default_factory=Frontier.minimum)
    write: Frontier | None = None
    dropped: bool = False
    claimed_end: bool = False
    replicas: dict[ReplicaId, ExportOnReplica] = field(default_factory=dict)
    holds: dict[str, Frontier] = field(default_factory=dict)
    away: dict[ReplicaId, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.since = Frontier.at(self.as_of)

    @property
    def holder(self) -> str:
        """Its name among the holders of its inputs."""
        return f"export {self.id}"

    @property
    def hydrated(self) -> bool:
        """Whether reads give results: a replica is hydrated, and the shard of a view is written beyond the as_of."""
        if self.shard is not None and (self.write is None or self.write.less_equal(self.as_of)):
            return False
        for replica in self.replicas.values():  # noqa: SIM110 (asked with every report; a generator takes thrice as long)
            if replica.hydrated:
                return True
        return False

    @property
    def hydrating(self) -> HydrationProgress | None:
        """The progress of the furthest replica, before one is hydrated."""
        known = [h for r in self.replicas.values() if (h := r.hydrating) is not None]
        return max(known, default=None) if not self.hydrated else None

    @property
    def computing(self) -> list[tuple[ReplicaId, ExportOnReplica]]:
        """The replicas that have the export, in order of name."""
        return sorted((name, on) for name, on in self.replicas.items() if not on.excluded)

    @property
    def lacking(self) -> list[tuple[ReplicaId, frozenset[str]]]:
        """The replicas whose image cannot compute the export, in order of name, with the features that each lacks."""
        return sorted((name, on.missing_features) for name, on in self.replicas.items() if on.missing_features)

    @property
    def input(self) -> Frontier | None:
        """The furthest input frontier of all replicas."""
        return self._furthest("input")

    @property
    def output(self) -> Frontier | None:
        """The furthest output frontier of all replicas."""
        return self._furthest("output")

    def hold(self, holder: str, frontier: Frontier) -> None:
        """Let `holder` read the index from `frontier` on; an empty frontier ends the hold."""
        if frontier.is_empty:
            self.holds.pop(holder, None)
        else:
            self.holds[holder] = frontier

    def observe(self, replica: ReplicaId, report: Frontiers) -> bool:
        """Take a replica's report; return whether a frontier advanced. A replica to which the dataflow is not sent
        may report until it has dropped what it had before."""
        state = self.replicas.get(replica)
        if state is not None and state.missing_features:
            state.refused_reports += 1
            return False
        if state is None or state.excluded or not state.take(report):
            return False
        write = state.write
        if write is None or self.dropped or (self.write is not None and write <= self.write):
            return True
        if write.is_empty:
            self.claimed_end = True
        else:
            self.write = write
        return True

    def policy(self, now_ms: int) -> Frontier:
        """The since that the read policy allows. It stays where nothing is known, and at the end: a table that
        another revision wrote may be finished, and no dataflow can begin at the end."""
        if self.write is None or self.write.is_empty:
            return self.since
        write = bounded(self.write, now_ms)
        policy = trailing(write, self.lag_ms) if self.shard is None else before(write)
        return policy if self.until is None else min(policy, Frontier.at(Time(self.until - 1)))

    def next_since(self, now_ms: int) -> Frontier:
        """The since from now on: policy and holds, in strides of a tenth of the lag; never behind the present since."""
        if self.dropped:
            return Frontier.empty()
        since = min(self.policy(now_ms), meet(self.holds.values()))
        stride = max(self.lag_ms // STRIDES, 1)
        return since if since.encode() - self.since.encode() >= stride else self.since

    def input_hold(self) -> Frontier:
        """The frontier from which the inputs must stay readable: for the since, and for the slowest replica."""
        reading = (r.reads_from for r in self.replicas.values())
        if self.dropped:
            return Frontier.decode(min(reading, default=EMPTY_SENTINEL))
        replicas = Frontier.decode(min((*reading, *self.away.values()), default=EMPTY_SENTINEL))
        if self.write is not None and self.write.is_empty and self.shard is not None:
            return replicas
        return min(self.since, replicas)

    @property
    def is_gone(self) -> bool:
        """Whether the export is dropped and every replica is done with it."""
        return self.dropped and all(r.is_gone for r in self.replicas.values())

    def _furthest(self, kind: str) -> Frontier | None:
        known = [f for r in self.replicas.values() if (f := getattr(r, kind)) is not None]
        return join(known) if known else None


def failures(on: ExportOnReplica) -> list[str]:
    """The obstacles that keep the export from continuing on a replica, in the replica's words."""
    first = (on.failures[kind] for kind in _FOR_GOOD if kind in on.failures)
    failed = (each for kind, each in on.failures.items() if kind not in _FOR_GOOD)
    return [*(f"{each.kind}: {each.message}" for each in first), *(f"{e.kind} failed: {e.message}" for e in failed)]
