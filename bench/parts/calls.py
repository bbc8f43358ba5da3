"""The cost of a small step's kernels, without Spark: `python -m bench.parts.calls [--json]`.

The views of `bench.step --parts plans` take deltas of 100 lines in this process, as a step worker beside the driver
takes them: description, tree, files and report are the same. So it can be profiled, and CPU time be read to the
microsecond, also on a busy machine.

    NAME_kernels_cpu_ms   median of a step's CPU in the worker's place (`_min`: the least)
    NAME_driver_cpu_ms    median of the driver's thread: listing, description, report, commit
    NAME_calls            calls of functions in the worker's place, per step

Views are compared with DuckDB's answer at the end. `--profile` prints the functions that took the most.
"""

from __future__ import annotations

import argparse
import cProfile
import pstats
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from bench.harness.answers import check
from bench.harness.clock import p50
from bench.harness.context import bench_parser, load, progress, report
from bench.harness.engine import View
from bench.harness.query import Planner, describe, planner
from bench.harness.workload.queries import PLANS, Query
from bench.harness.workload.tpch_history import TpchHistory
from tidemark_replica.render.step_worker.pool import StepWorkers
from tidemark_replica.render.step_worker.wire import StageRequest
from tidemark_replica.render.step_worker.work_ticket import WorkTicket
from tidemark_replica.render.step_worker.worker_members import MemberRunner
from tidemark_replica.render.task.description import StageReport

WARM_UP = 10


class Here(StepWorkers):
    """Step workers without processes: the caller runs the members itself."""

    def __init__(self) -> None:
        super().__init__()
        self._members, self._known = MemberRunner(), set[str]()
        self.cpu = 0.0
        """Milliseconds that members have taken so far."""
        self.profile: cProfile.Profile | None = None

    def start(self) -> None:
        """Nothing is started."""

    def run(self, ticket: WorkTicket) -> StageReport:
        """To its end."""
        member = ticket.member
        if member.key in self._known:
            member = StageRequest(member.number, member.stage, member.description, member.key, None)
        self._known.add(member.key)
        if self.profile is not None:
            self.profile.enable()
        begin = time.process_time()
        answer = self._members.answer(member)
        self.cpu += (time.process_time() - begin) * 1e3
        if self.profile is not None:
            self.profile.disable()
        ticket.settle_answer(answer)
        return ticket.wait()


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print."""
    given = _arguments(arguments)
    names = {query.name: query for query in PLANS.values()}
    queries = [names[name] for name in given.queries.split(",")]
    before, figures = load(), dict[str, float]()
    with tempfile.TemporaryDirectory(prefix="tidemark-bench-") as scratch:
        folder = Path(scratch)
        history = TpchHistory(
            folder, given.lines, queries, [given.delta_rows] * (len(queries) * (WARM_UP + 2 * given.steps))
        )
        with planner(folder) as plan:
            for query in queries:
                figures |= _figures(_Stepped(history, plan, query), given)
        history.close()
    settings = {"lines": given.lines, "steps": given.steps, "load_before": before, "load_after": load()}
    report("calls", figures, settings, given.json)


def _arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = bench_parser(__doc__)
    parser.add_argument("--lines", type=int, default=200_000, help="of lineitem (%(default)s)")
    parser.add_argument("--steps", type=int, default=40, help="that are timed, and as many that are counted")
    parser.add_argument("--delta-rows", type=int, default=100, help="rows of a delta (%(default)s)")
    names = ",".join(query.name for query in PLANS.values())
    parser.add_argument("--queries", default=names, help="which of them (%(default)s)")
    parser.add_argument("--profile", type=int, default=0, metavar="N", help="print the N functions that took the most")
    return parser.parse_args(arguments)


class _Stepped:
    """One view over a history that no other view uses meanwhile."""

    def __init__(self, history: TpchHistory, plan: Planner, query: Query) -> None:
        self.history, self.query, self.workers = history, query, Here()
        home = Path(tempfile.mkdtemp(prefix=query.name, dir=history.folder))
        sources = {name: history.sources[name] for name in query.tables}
        shards = {name: (source.location, source.schema) for name, source in sources.items()}
        description = describe(plan, query.sql, shards, history.now)
        session: Any = SimpleNamespace(sparkContext=SimpleNamespace(defaultParallelism=1))
        self.view = View(session, home, description, sources, self.workers, float("inf"))
        self.view.hydrate()
        progress(f"{query.name} is hydrated")

    def step(self) -> tuple[float, float]:
        """A delta; CPU milliseconds of (the worker's part, the driver's)."""
        self.history.tick()
        before, begin = self.workers.cpu, time.process_time()
        self.view.step()
        whole = (time.process_time() - begin) * 1e3
        return self.workers.cpu - before, whole - (self.workers.cpu - before)

    def close(self) -> None:
        """It is right, and goes."""
        check(f"{self.query.name}, compared with DuckDB", self.view.answer(), self.history.answer(self.query)[1])
        self.view.close()


def _figures(stepped: _Stepped, given: argparse.Namespace) -> dict[str, float]:
    name, timed = stepped.query.name, []
    for number in range(WARM_UP + given.steps):
        costs = stepped.step()
        if number >= WARM_UP:
            timed.append(costs)
    stepped.workers.profile = profile = cProfile.Profile(time.process_time)
    for _ in range(given.steps):
        stepped.step()
    stepped.close()
    stats = pstats.Stats(profile, stream=sys.stderr)
    if given.profile:
        stats.sort_stats("tottime").print_stats(given.profile)
    kernels = [kernel for kernel, _ in timed]
    return {
        f"{name}_kernels_cpu_ms": round(p50(kernels), 3),
        f"{name}_kernels_cpu_ms_min": round(min(kernels), 3),
        f"{name}_driver_cpu_ms": round(p50([driver for _, driver in timed]), 3),
        f"{name}_calls": round(stats.total_calls / given.steps),  # type: ignore[attr-defined]
    }


if __name__ == "__main__":
    main()
