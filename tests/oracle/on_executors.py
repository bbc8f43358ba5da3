"""Run by test_executors.py, in a process of its own: the oracle on two executor processes, one of which is killed.

driver JVM ── executor 1 (killed while a task hangs in it)
           └─ executor 2 (the task is run again here)
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from functools import partial
from pathlib import Path
from typing import Any

from tests.oracle.cases import CASES
from tests.oracle.faults import Fault, run_faulty
from tests.oracle.histories import random_history
from tests.oracle.oracle import Oracle
from tests.oracle.world import SINK, World, consolidated, delta, world
from tidemark_protocol.frontier import Frontier
from tidemark_replica.render import prepare
from tidemark_replica.spark_session import start_spark

PATIENCE_SECONDS = 120.0
AGREE = ("join and reduce", "let used twice", "divide")


def main(folder: Path) -> None:
    spark = start_spark("local-cluster[2,1,1024]", "1g", folder)
    oracle = Oracle(spark)
    for case in CASES:
        if case.name in AGREE:
            oracle.check(case, 1, folder / case.name.replace(" ", "-"))
            print("agrees:", case.name, flush=True)
    survive(oracle, folder)
    print("survived", flush=True)
    spark.stop()


def survive(oracle: Oracle, folder: Path) -> None:
    """A step whose executor dies gives what an undisturbed one gives."""
    case = next(c for c in CASES if c.name == AGREE[0])
    history = random_history(case.tables, 11)
    end = history.last + 1
    with world(oracle.spark, folder / "quiet", case.tables, history) as quiet:
        expected = quiet.run(oracle.describe(case, quiet), [end])
    with world(oracle.spark, folder / "killed", case.tables, history) as disturbed:
        fault = Fault(folder / "fault", "reading", "hang", 1)
        fault.folder.mkdir()
        prepare.run_stage = partial(run_faulty, fault)
        dataflow = disturbed.build(oracle.describe(case, disturbed))
        killer = threading.Thread(target=kill_one, args=(fault, jvm_of(oracle.spark)))
        killer.start()
        outcome = dataflow.run(dataflow.plan_step(Frontier.at(end), disturbed.inputs(dataflow, end)))
        killer.join()
        dataflow.commit(outcome)
        assert consolidated(delta(outcome, SINK)) == expected
        check_files(disturbed)


def check_files(made: World) -> None:
    """What the lost attempt wrote is in no manifest, and a sweep takes it away."""
    named = {file for manifest in made.store.arrangements() for file in manifest.files}
    made.store.sweep(())
    left = {str(p.relative_to(made.store.directory)) for p in made.store.directory.glob("*/*") if p.is_file()}
    assert left == named, left ^ named


def jvm_of(spark: Any) -> int:
    return int(spark._jvm.java.lang.ProcessHandle.current().pid())


def kill_one(fault: Fault, jvm: int) -> None:
    """SIGKILL for the executor that runs the hanging task, whose Python worker goes with it."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not fault.strikes and time.monotonic() < deadline:
        time.sleep(0.05)
    while not (struck := next(fault.folder.iterdir()).read_text()):
        time.sleep(0.05)
    executor = int(struck)
    while parent(executor) != jvm:
        executor = parent(executor)
    os.kill(executor, signal.SIGKILL)


def parent(pid: int) -> int:
    """By /proc; the name of a program may hold blanks and parentheses."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


if __name__ == "__main__":
    main(Path(sys.argv[1]))
