"""Inside the step worker: members run one after the other while the driver lives.

An error of a member is its answer; only the end of the driver ends the process.
"""

from __future__ import annotations

import logging
import os
import pickle
import sys
import threading
from collections import OrderedDict
from pathlib import Path

from tidemark_replica.arrangement.errors import StepAbandoned
from tidemark_replica.render.plan.pipeline import Pipeline
from tidemark_replica.render.step_worker.wire import Answer, Channel, Closed, Member, Order, Ready
from tidemark_replica.render.task.jvm_input_slots import JvmInputSlots
from tidemark_replica.render.task.stage import Stage
from tidemark_replica.values.failure_text import log_text, public_text_with_type

LOG = logging.getLogger(__name__)
MAX_TREES = 4096


def end_with_the_driver() -> None:
    """End this process when its standard input ends, that is, when the driver does, whatever it runs."""

    def watch() -> None:
        sys.stdin.buffer.read()
        os._exit(0)

    threading.Thread(target=watch, name="end with the driver", daemon=True).start()


class MemberRunner:
    """Runs members. Keeps the trees that it was sent, and drops the least recently used ones."""

    def __init__(self, stage: type[Stage] = Stage) -> None:
        self._stage = stage
        self._trees: OrderedDict[str, Pipeline] = OrderedDict()

    def serve(self, channel: Channel) -> None:
        """Answer orders until the driver closes the channel."""
        try:
            channel.send(Ready())
            while True:
                order: Order = channel.receive()
                for member in order.members:
                    channel.send(self.answer(member))
        except Closed as closed:
            LOG.debug("the driver is gone: %s", closed)

    def answer(self, member: Member) -> Answer:
        """Run a member to its end."""
        tree = self._tree(member)
        if tree is None:
            return Answer(member.number, unknown=True)
        description = Path(member.description)
        try:
            stage = self._stage(description, member.number, JvmInputSlots((), ()))
            for _ in stage.evaluate(tree):
                pass
            report = stage.finish(member.stage)
        except StepAbandoned as error:
            return Answer(member.number, error=str(error), public_text=str(error))
        except Exception as error:
            LOG.debug("stage %s of %s failed", member.stage, description, exc_info=True)
            return Answer(member.number, error=log_text(error), public_text=public_text_with_type(error))
        return Answer(member.number, report)

    def _tree(self, member: Member) -> Pipeline | None:
        if member.tree is not None:
            self._trees[member.key] = pickle.loads(member.tree)
            if len(self._trees) > MAX_TREES:
                self._trees.popitem(last=False)
        found = self._trees.get(member.key)
        if found is not None:
            self._trees.move_to_end(member.key)
        return found
