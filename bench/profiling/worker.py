"""`python -m bench.profiling.worker FD`: a step worker that tells where its time goes; `shapes.workers` starts it."""

from __future__ import annotations

import sys

from bench.profiling import spans
from tidemark_replica.render.step_worker.__main__ import main
from tidemark_replica.render.step_worker.wire import StageAnswer, StageRequest
from tidemark_replica.render.step_worker.worker_members import MemberRunner


class Timed(MemberRunner):
    """Members' calls, timed as those of a task are."""

    def answer(self, member: StageRequest) -> StageAnswer:
        with spans.call(member.stage):
            return super().answer(member)


if __name__ == "__main__":
    main(Timed(), int(sys.argv[1]))
