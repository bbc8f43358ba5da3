"""Run by test_executors.py, in a process of its own: dataflows on two executor processes, one of which is killed.

driver JVM ── executor 1 (killed while a task hangs in it)
           └─ executor 2 (the task is run again here)

agree      cases of the oracle
at_home    steps of several dataflows land where their state is open (`at_home`)
lost       the home of some of them dies
survive    a small step, one task: the executor that has it dies
exchange   a large delta, exchanged among both: one of them dies as it reads
asked      fewer are asked for, as where more are not admitted, and then as many as before

Several, parted by commas, are done one after the other by one driver. The outcome is on standard output; what
the JVMs say while they end is of no interest.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa

from tests.oracle.cases import CASES
from tests.oracle.harness import SINK, DataflowHarness, Updates, consolidated, delta, harness
from tests.oracle.histories import random_history
from tests.oracle.kinds import named
from tests.oracle.oracle import Oracle
from tests.oracle.plans import PLANS
from tests.oracle.variants.executor_affinity import at_home, lost
from tests.oracle.variants.faults import Fault, run_faulty
from tests.waiting import until
from tidemark_protocol.frontier import Frontier
from tidemark_replica.command_loop.executors import request_executors
from tidemark_replica.render.dataflow import RenderedDataflow
from tidemark_replica.render.execution import prepare
from tidemark_replica.render.execution.step_shape import ExchangePolicy
from tidemark_replica.render.stepped_dataflow import StepOutcome
from tidemark_replica.spark.session import start_spark

PATIENCE_SECONDS = 400.0
AGREE = ("join and reduce", "let used twice", "divide")
SURVIVE = "join after reduce"


def main(what: str, folder: Path) -> None:
    spark = start_spark("local-cluster[2,1,1024]", "1g", folder)
    for part in what.split(","):
        PARTS[part](spark, folder / part)
        print("done:", part, flush=True)
    spark.stop()


def agree(spark: Any, folder: Path) -> None:
    """The batch engines' answers."""
    oracle = Oracle(spark)
    for case in CASES:
        if case.name in AGREE:
            oracle.check(case, 1, folder / case.name.replace(" ", "-"))
            print("agrees:", case.name, flush=True)


def survive(spark: Any, folder: Path) -> None:
    """A step whose executor dies gives what an undisturbed one gives."""
    case = next(c for c in PLANS if c.name == SURVIVE)
    assert case.plan is not None
    history = random_history(case.tables, 11)
    end = history.last + 1
    with harness(spark, folder / "quiet", case.tables, history) as quiet:
        expected = quiet.run(quiet.describe(case.plan), [end])
    assert expected
    with harness(spark, folder / "killed", case.tables, history) as disturbed:
        fault = Fault(folder / "fault", "reading", "hang", 1)
        prepare.run_stage = partial(run_faulty, fault)  # type: ignore[attr-defined]
        dataflow = disturbed.build(disturbed.describe(case.plan))
        outcome = run_and_kill(disturbed, dataflow, end, fault)
        dataflow.commit(outcome)
        assert consolidated(delta(outcome, SINK)) == expected
        check_files(disturbed)


def exchange(where: str, spark: Any, folder: Path) -> None:
    """Compare with Spark's answer as a batch, at every frontier."""
    oracle, case = Oracle(spark), named("join and reduce")
    history = random_history(case.tables, 11, times=9, changes=60)
    small, large, end = history.times[1] + 1, history.times[-2] + 1, history.last + 1
    with harness(spark, folder / "exchanged", case.tables, history) as disturbed:
        fault = Fault(disturbed.folder / "fault", where, "hang", 1)
        prepare.run_stage = partial(run_faulty, fault)  # type: ignore[attr-defined]
        description = oracle.describe(case, disturbed)
        dataflow = disturbed.build(description, exchange_policy=ExchangePolicy(2, from_rows=0))
        made = Updates(disturbed.steps(dataflow, [small]))
        outcome = run_and_kill(disturbed, dataflow, large, fault)
        assert outcome.folder is not None
        assert any(outcome.folder.glob("*.1.*.report")), "the delta was not divided among two tasks"
        dataflow.commit(outcome)
        made.update(delta(outcome, SINK))
        made.update(disturbed.steps(dataflow, [end]))
        oracle.check_updates(case, history, description, consolidated(made))
        check_files(disturbed)


def asked(spark: Any, folder: Path) -> None:
    """Two are killed. One comes back where one is asked for, and the other when two are."""
    backend = spark.sparkContext._jsc.sc()
    until(lambda: backend.getExecutorIds().size() == 2)
    request_executors(spark, 1)
    processes = set(spark.range(64).repartition(8).mapInArrow(whose, "pid long").toPandas()["pid"])
    for executor in {under(jvm_of(spark), process) for process in processes}:
        os.kill(executor, signal.SIGKILL)
    until(lambda: sorted(ids(backend)) == ["2"])
    request_executors(spark, 2)
    until(lambda: sorted(ids(backend)) == ["2", "3"])


def ids(backend: Any) -> list[str]:
    return str(backend.getExecutorIds().mkString(",")).split(",")


def whose(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The Python worker that has the rows."""
    for _ in batches:
        yield pa.RecordBatch.from_pydict({"pid": [os.getpid()]})


def run_and_kill(of: DataflowHarness, dataflow: RenderedDataflow, upper: int, fault: Fault) -> StepOutcome:
    """A step in which the fault strikes, and the executor in which it does is killed."""
    fault.folder.mkdir()
    killed: list[int] = []
    killer = threading.Thread(target=kill_one, args=(fault, jvm_of(of.session), killed))
    killer.start()
    outcome = dataflow.run(dataflow.plan_step(Frontier.at(upper), of.inputs(dataflow, upper)))
    killer.join()
    assert killed, "no executor was killed"
    return outcome


def check_files(made: DataflowHarness) -> None:
    """The files of the lost attempt are in no manifest, and a sweep takes them away."""
    named = {file for manifest in made.store.arrangements() for file in manifest.files}
    made.store.sweep(())
    left = {str(p.relative_to(made.store.directory)) for p in made.store.directory.glob("*/*") if p.is_file()}
    assert left == named, left ^ named


PARTS: Mapping[str, Callable[[Any, Path], None]] = {
    "agree": agree,
    "at_home": at_home,
    "lost": lost,
    "survive": survive,
    "exchange": partial(exchange, "reading"),
    "asked": asked,
}


def jvm_of(spark: Any) -> int:
    return int(spark._jvm.java.lang.ProcessHandle.current().pid())


def kill_one(fault: Fault, jvm: int, killed: list[int]) -> None:
    """SIGKILL for the executor that runs the hanging task, whose Python worker goes with it."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not (struck := struck_in(fault)):
        assert time.monotonic() < deadline, "no task came to the place where it hangs"
        time.sleep(0.05)
    executor = under(jvm, struck)
    os.kill(executor, signal.SIGKILL)
    killed.append(executor)


def struck_in(fault: Fault) -> int:
    """The process in which the fault has struck; 0 as long as it has not."""
    return next((int(claim.read_text() or 0) for claim in fault.folder.iterdir()), 0)


def under(jvm: int, process: int) -> int:
    """The executor that a process belongs to."""
    while (above := parent(process)) != jvm:
        process = above
    return process


def parent(pid: int) -> int:
    """By /proc; the name of a program may hold blanks and parentheses."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


if __name__ == "__main__":
    try:
        main(sys.argv[1], Path(sys.argv[2]))
    except BaseException:
        traceback.print_exc(file=sys.stdout)
        raise
