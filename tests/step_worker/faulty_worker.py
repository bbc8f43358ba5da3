"""A step worker in which a fault strikes: `python -m tests.step_worker.faulty_worker FOLDER WHERE HOW TIMES FD`."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.oracle.variants.faults import Fault, FaultyStage
from tidemark_replica.render.step_worker.__main__ import main
from tidemark_replica.render.step_worker.worker_members import MemberRunner
from tidemark_replica.render.task.description import StageReport


def command(fault: Fault) -> tuple[str, ...]:
    """The command that `StepWorkers` is to start."""
    fault.folder.mkdir(exist_ok=True)
    what = (str(fault.folder), fault.where, fault.how, str(fault.times))
    return (sys.executable, "-m", "tests.step_worker.faulty_worker", *what)


class ReportingStage(FaultyStage):
    """A fault may also strike once the report is there, though not sent."""

    def finish(self, name: str) -> StageReport:
        report = super().finish(name)
        self.fault.strike("after report")
        return report


if __name__ == "__main__":
    folder, where, how, times, fd = sys.argv[1:]
    ReportingStage.fault = Fault(Path(folder), where, how, int(times))
    main(MemberRunner(ReportingStage), int(fd))
