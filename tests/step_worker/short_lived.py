"""A driver that will be killed, whose worker hangs in a member: `python -m tests.step_worker.short_lived FOLDER`."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.oracle.variants.faults import Fault
from tests.step_worker.faulty_worker import command
from tests.step_worker.rows import Rows
from tidemark_replica.render.step_worker.pool import StepWorkers

if __name__ == "__main__":
    folder = Path(sys.argv[1])
    StepWorkers(command=command(Fault(folder / "fault", "reading", "hang", 1))).run(Rows(folder).ticket())
