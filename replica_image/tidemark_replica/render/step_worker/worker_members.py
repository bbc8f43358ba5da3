"""Inside the step worker: members run one after the other while the driver lives.

An error of a member is its answer; only the end of the driver ends the process.
"""

from __future__ import annotations

import logging
import os
import pickle
import sys
import threading
from multiprocessing.connection import Connection
from pathlib import Path

from tidemark_replica.arrangement.errors import StepAbandoned
from tidemark_replica.render.plan.pipeline import Pipeline
from tidemark_replica.render.step_worker.wire import MAX_TREES, Ready, StageAnswer, StageRequest
from tidemark_replica.render.task.jvm_input_slots import JvmInputSlots
from tidemark_replica.render.task.stage import Stage
from tidemark_replica.values.failure_text import log_text, public_text_with_type

LOG = logging.getLogger(__name__)


def end_with_the_driver() -> None:
    """End this process when its standard input ends, that is, when the driver does, whatever it runs."""

    def watch() -> None:
        sys.stdin.buffer.read()
        os._exit(0)

    threading.Thread(target=watch, name="end with the driver", daemon=True).start()


class MemberRunner:
    """Runs members. Keeps the trees that it was sent."""

    def __init__(self, stage: type[Stage] = Stage) -> None:
        self._stage = stage
        self._trees: dict[str, Pipeline] = {}

    def serve(self, driver: Connection) -> None:
        """Answer members until the driver closes the connection."""
        try:
            driver.send(Ready())
            while True:
                driver.send(self.answer(driver.recv()))
        except (EOFError, OSError) as closed:
            LOG.debug("the driver is gone: %s", closed)

    def answer(self, member: StageRequest) -> StageAnswer:
        """Run a member to its end."""
        tree = self._tree(member)
        description = Path(member.description)
        try:
            stage = self._stage(description, member.number, JvmInputSlots((), ()))
            for _ in stage.evaluate(tree):
                pass
            report = stage.finish(member.stage)
        except StepAbandoned as error:
            return StageAnswer(error=str(error), public_text=str(error))
        except Exception as error:
            LOG.debug("stage %s of %s failed", member.stage, description, exc_info=True)
            return StageAnswer(error=log_text(error), public_text=public_text_with_type(error))
        return StageAnswer(report)

    def _tree(self, member: StageRequest) -> Pipeline:
        if member.tree is not None:
            if len(self._trees) == MAX_TREES:
                self._trees.clear()
            self._trees[member.key] = pickle.loads(member.tree)
        return self._trees[member.key]
