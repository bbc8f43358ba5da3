"""The materialized-view sink: keeps a shard equal to the view, also where others write to it.

    steps ──staged files──► progress ──► append on a pool ──► Appended       the shard moved; files are removed
                                                          ├─► UpperMismatch  another replica was faster: plan again
                                                          ├─► Fenced         a newer term took over: stop for good
                                                          └─► unknown        again, with the same commit id and term

The sink is read-only until AllowWrites gives it a term: it follows the shard's upper, and compacts its staged output
where much accumulates (staged_compaction.py). Another revision, with other contents, may write meanwhile, so the sink
compares only once the shard was written under its own term. Where another revision has written after the sink released
its staged output, the sink cannot correct the shard and stops. Where another program has changed the table, has put a
backup in its place, or has deleted a file of it (lost_files.py), the dataflow begins anew (`check_table`), and its next
sink corrects the table. Whenever the process dies, the shard holds the whole append or nothing of it, and the next
process begins by comparing.
"""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from tidemark_persist import (
    Appended,
    CommitForgotten,
    Fenced,
    ForeignCommit,
    PartGone,
    Shard,
    ShardDeleted,
    ShardMismatch,
    ShardNotFound,
    StagedFile,
)
from tidemark_protocol.frontier import Frontier
from tidemark_protocol.ids import GlobalId, WriterTerm
from tidemark_protocol.messages.responses import DescribedShard, Failure, FailureKind, Response
from tidemark_protocol.plan.dataflow import ShardMetadata
from tidemark_replica.events.jobs import Done, Failed, Job, Outcome, Pool
from tidemark_replica.retry import Backoff
from tidemark_replica.shards.shards import ShardHandles, ShardWatch
from tidemark_replica.sinks.destinations.backup_check import BackupCheck
from tidemark_replica.sinks.destinations.publisher import Publisher
from tidemark_replica.sinks.interface import Sink
from tidemark_replica.sinks.sink_progress import AppendAttempt, CompactionInput, Comparison, SinkProgress, Staged
from tidemark_replica.sinks.table.lost_files import LostFileCheck
from tidemark_replica.sinks.table.refresh_progress import RefreshProgress
from tidemark_replica.sinks.table.shard_updates import discard_staged, equal, stage
from tidemark_replica.sinks.table.staged_compaction import CompactedStage, compact_staged
from tidemark_replica.sinks.table.task_writes import TaskWriter
from tidemark_replica.values.failure_text import log_text, public_text

LOG = logging.getLogger(__name__)
WAITING_ROWS = 4_000_000
"""Steps wait while this many staged updates cannot be written to the shard: they are in scratch."""
DIVERGED = (
    "another revision has written the table after this one; its contents are unknown to this replica, which appends "
    "nothing more. Restart the replica to compute the view again"
)
WENT_BACK = "the table {} ends earlier than this replica has seen it end: somebody put a backup in its place"


@dataclass(frozen=True)
class AppendOutcome:
    """The outcome of an append, and the shard's upper, term and updates in one version of its table."""

    won: bool
    upper: int
    term: int
    rows: int


class MaterializedViewSink(Sink):
    """Runs on the command loop; appends on a pool, one at a time."""

    corrects = True
    """Whether the sink can write again what the table has lost."""

    def __init__(
        self,
        id: GlobalId,
        shard: ShardMetadata,
        as_of: Frontier,
        handles: ShardHandles,
        watch: ShardWatch,
        jobs: Pool,
        respond: Callable[[Response], None],
        moved: Callable[[], None] | None = None,
        progress: SinkProgress | None = None,
        publishers: Sequence[Publisher] = (),
        backup_check: BackupCheck | None = None,
        tasks: TaskWriter | None = None,
    ) -> None:
        """`moved` is called when the shard has moved. `publishers`: write the view to its destinations, at which
        `backup_check` runs before the first append. `tasks`: writes large appends; None: the driver does."""
        self._id, self._shard, self._handles, self._watch = id, shard, handles, watch
        self._jobs, self._respond = jobs, respond
        self._as_of = as_of.encode()
        self._progress = progress or SinkProgress(self._as_of, new_commit_id)
        self._publishers, self._backup_check = publishers, backup_check
        self._lost_files, self._tasks = LostFileCheck(shard, handles, jobs), tasks
        self._term: WriterTerm | None = None
        self._job: Job | None = None
        self._maintenance_job: Job | None = None
        self._stopped = self._dropped = False
        self._failure: Failure | None = None
        self._written = self._went_back = False
        self._rows: int | None = None
        self.correction_seconds = 0.0
        """The seconds that the last append that compared the view with the shard ran."""
        self._epoch: int | None = None
        """The epoch of the table, when the sink first looked at its contents."""
        self._backoff, self._compare_backoff, self._compaction_backoff = Backoff(), Backoff(), Backoff()
        watch.follow(shard.shard_id, shard.location, self, moved)

    @property
    def write_frontier(self) -> Frontier:
        return Frontier.minimum() if self._progress.upper is None else Frontier.decode(self._progress.upper)

    def step_goal(self, upper: Frontier) -> Frontier:
        """The frontier that the dataflow must step to, given that its inputs are complete up to `upper`."""
        return Frontier.decode(self._progress.step_goal(upper.encode()))

    @property
    def settled_until(self) -> Frontier | None:
        """The first refresh at or after the frontier; empty: there is none. None: the shard lacks an earlier one, or
        the sink is at work, or has stopped."""
        if not isinstance(self._progress, RefreshProgress) or self._job is not None or self._stopped:
            return None
        until = self._progress.settled_until
        return None if until is None else Frontier.decode(until)

    @property
    def is_own(self) -> bool:
        """Whether the shard was last written under the sink's term."""
        return self._progress.is_own

    def next_refresh(self, at: int) -> int:
        """The first refresh at or after `at`, or NEVER; every time is one of a view without a schedule."""
        return self._progress.next_refresh(at)

    @property
    def may_begin_anew(self) -> bool:
        """Whether no append or comparison needs the staged output."""
        return self._job is None and (self._stopped or not self._progress.is_pending)

    def may_begin_anew_at(self, at: int) -> bool | None:
        """Whether the shard has all changes before `at`, and no append or comparison runs. None: the sink cannot
        write, so that may never be so."""
        if self.term is None or self._failure is not None:
            return None
        has_all = self._progress.has_all_before(at)
        return has_all and self.may_begin_anew

    def begin_anew(self, as_of: Frontier, *, is_blank: bool = False) -> None:
        """Forgets the staged output: the dataflow computes the view anew from `as_of`, or from the next refresh on
        (`is_blank`)."""
        if not self.may_begin_anew:
            raise AssertionError(f"the sink of {self._id} cannot begin anew")
        _release(self._progress.all_staged)
        self._progress = self._progress.anew(as_of.encode(), is_blank=is_blank)

    @property
    def upper_is_known(self) -> bool:
        """Whether the shard's upper was read, or that the shard does not exist."""
        return self._progress.upper is not None

    @property
    def is_superseded(self) -> bool:
        """Whether another revision has written the shard, so that this sink cannot go on."""
        return self._progress.is_superseded

    @property
    def term(self) -> WriterTerm | None:
        """The writer term; None: the sink may not write, or has stopped."""
        return None if self._stopped else self._term

    @property
    def is_full(self) -> bool:
        """Whether so much waits to be appended, beyond the view's own size, that the dataflow should not step."""
        base = self._progress.base_rows
        return self._progress.waiting_rows - base >= max(WAITING_ROWS, 2 * base)

    def allow_writes(self, term: WriterTerm) -> None:
        """Takes a newer term; a fenced sink may write again."""
        if self._term is None or term > self._term:
            self._term, self._stopped, self._failure = term, False, None
            self._progress.term = term

    def stage(self, staged: Staged) -> None:
        """Takes the output of a committed step. The sink owns the files from now on."""
        self._progress.stage(staged)

    def advance(self) -> None:
        """Starts the next append, comparison or compaction; called at every maintenance."""
        shard = self._watch.state(self._shard.shard_id)
        if shard is not None and shard.error is None and (shard.exists or self._progress.upper is None):
            self._progress.observe(shard.upper.encode(), shard.term)
        if self.term is not None and self._is_under_own_term(shard):
            for publisher in self._publishers:
                publisher.advance(self._progress.upper or 0, self.term)
            if self.corrects and not self.write_frontier.is_empty:
                self._lost_files.advance()
        if self._job is not None or self._stopped:
            return
        if self._progress.has_diverged:
            self._stop_for_good(DIVERGED)
            return
        _release(self._progress.release())
        # a large compaction goes before the next append: appends that only move the upper might follow without an end
        if (compaction := self._compaction_due(WAITING_ROWS)) is not None:
            self._submit_compaction(compaction)
            return
        append = None if self._term is None else self._progress.next()
        if append is not None:
            if self._backoff.has_elapsed and (self._backup_check is None or self._backup_check.is_over()):
                self._submit_append(append)
        elif (compaction := self._compaction_due(WAITING_ROWS // 2)) is not None:
            self._submit_compaction(compaction)
        elif (
            self._is_under_own_term(shard)
            and self._compare_backoff.has_elapsed
            and (comparison := self._progress.comparison())
        ):
            self._submit_comparison(comparison)

    def check_table(self) -> None:
        """Raises ForeignCommit where another program is known to have changed the table since the sink first looked at
        its contents. Never waits."""
        location = self._shard.location
        if self._went_back:
            raise ForeignCommit(WENT_BACK.format(location))
        reader = self._handles.cached_reader(location, self._shard.shard_id)
        if reader is not None:
            reader.check_epoch(self._epoch)

    def _compaction_due(self, rows: int) -> CompactionInput | None:
        """The staged output to compact, if any: never while an append uses its files."""
        if self._progress.is_pending or not self._compaction_backoff.has_elapsed:
            return None
        return self._progress.compaction_due(rows)

    def _is_under_own_term(self, shard: DescribedShard | None) -> bool:
        """Whether the shard was last written under this sink's term: then all writers compute the same view."""
        return shard is not None and self._term is not None and shard.term == self._term

    @property
    def rows(self) -> int | None:
        """The updates in the files of the shard, as of the last append that this replica has tried."""
        return self._rows

    def stop(self) -> None:
        """Appends nothing more and reports nothing: another export may have its id. An append that runs may still
        land."""
        self._give_up()
        self._dropped = True
        for publisher in self._publishers:
            publisher.stop()

    def _stop_for_good(self, why: str) -> None:
        self._give_up()
        LOG.warning("the sink of %s: %s", self._id, why)
        self._report(FailureKind.SINK, why)

    def _give_up(self) -> None:
        self._stopped = True
        self._watch.unfollow(self)

    def report_again(self) -> None:
        """Repeats the failure that keeps it from writing, for a new client."""
        if self._failure is not None:
            self._respond(replace(self._failure, repeated=True))

    def _submit_append(self, append: AppendAttempt) -> None:
        self._job = self._jobs.submit(
            f"append to {self._id}", lambda: self._append(append), lambda outcome: self._appended(append, outcome)
        )

    def _submit_comparison(self, comparison: Comparison) -> None:
        term = self._term or 0
        self._job = self._jobs.submit(
            f"compare {self._id}",
            lambda: self._equal(comparison),
            lambda outcome: self._compared(comparison, term, outcome),
        )

    def _submit_compaction(self, compaction: CompactionInput) -> None:
        self._job = self._jobs.submit(
            f"compact the staged output of {self._id}",
            lambda: compact_staged(self._existing(), compaction),
            self._compacted,
        )

    def _compacted(self, outcome: Outcome[CompactedStage]) -> None:
        """A failed compaction is retried: without it the dataflow may have to wait."""
        self._job = None
        if isinstance(outcome, Failed):
            LOG.warning("the sink of %s could not compact its staged output and retries: %s", self._id, outcome.error)
            self._compaction_backoff.failed()
        else:
            self._compaction_backoff.reset()
            self._progress.replace_staged(outcome.value.compaction, outcome.value.staged)
            _release(outcome.value.released)

    def _compared(self, comparison: Comparison, term: int, outcome: Outcome[bool]) -> None:
        """End a comparison of the shard with the view. After a difference or a failure it is repeated later: an append
        may correct the shard meanwhile."""
        self._job = None
        if isinstance(outcome, Done) and outcome.value:
            self._progress.found_equal(term)
            self._compare_backoff.reset()
            return
        if isinstance(outcome, Done):
            self._progress.found_different(comparison)
        self._compare_backoff.failed()

    def _append(self, append: AppendAttempt) -> AppendOutcome:
        """Runs on a pool. Raises PersistError and OSError."""
        began = time.monotonic()
        shard = self._existing() if self._written else self._handles.writer(self._shard)
        epoch = self._epoch_of(shard)
        try:
            outcome = append_to(shard, append, epoch, self._tasks)
        except ShardDeleted as deleted:
            outcome = append_to(self._reopened(deleted), append, epoch, self._tasks)
        except PartGone:  # a correction goes on from nothing that was read before
            if not append.correct or not shard.look_for_lost_files():
                raise
            self._epoch = shard.epoch
            outcome = append_to(shard, append, self._epoch, self._tasks)
        if append.correct and outcome.won:
            self.correction_seconds = time.monotonic() - began
        return outcome

    def _equal(self, comparison: Comparison) -> bool:
        """Runs on a pool. Raises PersistError and OSError."""
        shard = self._existing()
        epoch = self._epoch_of(shard)
        is_equal = equal(shard, comparison)
        shard.check_epoch(epoch)
        return is_equal

    def _epoch_of(self, shard: Shard) -> int:
        if self._epoch is None:
            self._epoch = shard.epoch
        return self._epoch

    def _reopened(self, deleted: ShardDeleted) -> Shard:
        """The shard by a new handle, since the old one may be of an earlier table. A deleted shard is not created
        again."""
        self._handles.forget(self._shard.location)
        try:
            return self._existing()
        except ShardDeleted:
            raise deleted from None

    def _existing(self) -> Shard:
        """The shard, which exists. Raises ShardDeleted where it does not; it is not created again."""
        try:
            return self._handles.existing_writer(self._shard.location, self._shard.shard_id)
        except (ShardNotFound, ShardMismatch) as gone:
            raise ShardDeleted(f"the sink's shard was deleted: {gone}") from gone

    def _maintain(self) -> None:
        """Runs on a pool: checkpoints, compaction and vacuum of the shard. It may be repeated or interrupted."""
        shard = self._existing()
        for work in shard.maintenance_due():
            shard.run_maintenance(work)

    def _maintained(self, outcome: Outcome[None]) -> None:
        self._maintenance_job = None
        if isinstance(outcome, Failed):
            LOG.warning("the sink of %s: maintenance of its shard failed and is retried: %s", self._id, outcome.error)

    def _appended(self, append: AppendAttempt, outcome: Outcome[AppendOutcome]) -> None:
        self._job = None
        if isinstance(outcome, Failed):
            if isinstance(outcome.error, Fenced) and self._term is not None and self._term > append.term:
                self._progress.abandon()
            elif isinstance(outcome.error, ForeignCommit):  # `check_table` tells it next
                self._backoff.failed()
            else:
                self._failed(outcome.error)
            return
        self._backoff.reset()
        self._failure = None
        self._written = True
        now = outcome.value
        self._rows = now.rows
        if now.upper < append.expected_upper:
            self._went_back = True
            return
        self._progress.resolved(append, won=now.won, upper=now.upper, term=now.term)
        _release(self._progress.release())
        if now.won:
            for publisher in self._publishers:
                publisher.appended(now.upper)
        since = None if append.since is None or not now.won else Frontier.at(append.since)
        self._watch.observe(self._shard.shard_id, Frontier.decode(now.upper), since, WriterTerm(now.term))
        if now.won and self._maintenance_job is None and not self._stopped:
            self._maintenance_job = self._jobs.submit(
                f"maintain the shard of {self._id}", self._maintain, self._maintained
            )

    def _failed(self, error: Exception) -> None:
        """Stops for a fenced or deleted shard; retries all other failures with the same commit id."""
        if isinstance(error, Fenced | ShardDeleted):
            self._stopped = True
        else:
            self._backoff.failed()
        kind = FailureKind.FENCED if isinstance(error, Fenced) else FailureKind.SINK
        LOG.warning("the sink of %s: %s", self._id, log_text(error))
        self._report(kind, public_text(error))

    def _report(self, kind: FailureKind, message: str) -> None:
        self._failure = Failure(self._id, kind, message, stopped=self._stopped)
        if not self._dropped:
            self._respond(self._failure)


def append_to(
    shard: Shard, append: AppendAttempt, epoch: int | None = None, tasks: TaskWriter | None = None
) -> AppendOutcome:
    """Runs on a pool. Raises PersistError and OSError; ForeignCommit where the table is of another epoch."""
    shard.check_epoch(epoch)
    upper = shard.refresh().upper
    # where the upper has moved on, only the outcome is needed: the contents to compare with may be compacted by now
    lost = shard.lost_files() if append.correct and append.syncs else frozenset[str]()
    files: list[StagedFile] = []
    if upper == append.expected_upper and append.syncs:
        by_tasks = None if tasks is None else tasks.stage(shard, append, lost)
        files = stage(shard, append, lost) if by_tasks is None else by_tasks
    try:
        ended = shard.compare_and_append(
            files,
            expected_upper=append.expected_upper,
            new_upper=append.new_upper,
            term=append.term,
            commit_id=append.commit_id,
            since=append.first_time if lost else append.since,  # earlier contents lack what was lost
            epoch=epoch,
            lost=lost,
        )
    except CommitForgotten:
        ended = None
    except (Fenced, ForeignCommit, ShardDeleted):
        discard_staged(shard, files)
        raise
    # after Appended, files that are not live were compacted; vacuum removes them, since somebody may be reading them
    if not isinstance(ended, Appended):  # another replica was faster
        discard_staged(shard, files)
    now = shard.state()
    return AppendOutcome(isinstance(ended, Appended), now.upper, now.term, shard.size().rows)


def new_commit_id() -> str:
    return uuid.uuid4().hex


def _release(released: tuple[Staged, ...]) -> None:
    for staged in released:
        staged.release()
