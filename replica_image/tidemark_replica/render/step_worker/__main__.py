"""`python -m tidemark_replica.render.step_worker FD`: a step worker at the other end of socket FD."""

from __future__ import annotations

import signal
import sys
from multiprocessing.connection import Connection

from tidemark_replica.kernels.worker import freeze_imports
from tidemark_replica.render.step_worker.worker_members import MemberRunner, end_with_the_driver


def main(members: MemberRunner, fd: int) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal sends it to the driver too, which ends us
    end_with_the_driver()
    freeze_imports()
    members.serve(Connection(fd))


if __name__ == "__main__":
    main(MemberRunner(), int(sys.argv[1]))
