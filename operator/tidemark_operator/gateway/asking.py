"""The way to the planner of all that users ask: queries, subscribes, copies and explanations.

    text ──► failed at, just now?   what was said of it then: each try may cost a process that others wait for
         ──► the caller's turn ──► failed at meanwhile? ──► the planner ──► what it fails at is noted

By namespace and text alone: whatever it is asked for, and whatever else changes meanwhile, a text that takes too long
takes too long again.
"""

from __future__ import annotations

import hashlib
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

from tidemark_operator.gateway.turns import Turns
from tidemark_operator.planning.blame import is_planners_fault, pause_ms
from tidemark_protocol.planning import Refused

FAILURES = 4096
P = TypeVar("P")
Key = tuple[str, bytes]


@dataclass(frozen=True)
class Failed:
    """The planner failed at it `tried` times in a row; it is asked again from `again` (monotonic seconds) on."""

    refused: Refused
    tried: int
    again: float


class Asking:
    """One per gateway; bounded. `clock`: seconds, of any beginning."""

    def __init__(self, turns: Turns, clock: Callable[[], float] = time.monotonic) -> None:
        self._turns, self._clock = turns, clock
        self._failed: OrderedDict[Key, Failed] = OrderedDict()

    async def plan(
        self, caller: str, namespace: str, text: str, planned: Callable[[], Awaitable[P | Refused]]
    ) -> P | Refused:
        """`planned`: asks the planner for `text`. Raises what that does, and TooMany."""
        key = (namespace, hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest())
        if refused := self._failed_at(key):
            return refused
        async with self._turns.turn(caller):
            if refused := self._failed_at(key):  # while this one waited
                return refused
            answer = await planned()
            self._note(key, answer)
            return answer

    def _failed_at(self, key: Key) -> Refused | None:
        """What the planner said of it, if it is not to be asked again yet."""
        failed = self._failed.get(key)
        return failed.refused if failed is not None and self._clock() < failed.again else None

    def _note(self, key: Key, answer: object) -> None:
        before = self._failed.pop(key, None)
        if isinstance(answer, Refused) and is_planners_fault(answer):
            tried = before.tried + 1 if before else 1
            self._failed[key] = Failed(answer, tried, self._clock() + pause_ms(tried) / 1000)
            if len(self._failed) > FAILURES:
                self._failed.popitem(last=False)
