"""Writes statuses: what matters soon, what merely moves within the budget, what did not change never.

    more than frontiers and counters changed    at once; a step on the way just after another write: later
    (status_pauses.py)
    only they moved                             seldom (status_budget.py)

A status is built anew from what is known, again and again, and compared with what the API server has, so no change has
to be announced and none is lost: every second where there are few objects, else in turn (handlers/round_robin.py).
What matters most shows sooner: after each reconcile of the object, and when replicas say that it has hydrated or the
like. For the first seconds of an operator, objects of an instance whose replicas have not answered yet are left
alone: their statuses were right when the last operator wrote them.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection
from typing import Any

from tidemark_operator.handlers.publish.status_budget import StatusBudget
from tidemark_operator.handlers.publish.status_documents import has_arrived, urgent
from tidemark_operator.handlers.publish.status_pauses import Pauses
from tidemark_operator.handlers.round_robin import Rounds
from tidemark_operator.kube.cache import Cache, Key
from tidemark_operator.kube.client import ApiError, Body, Conflict, Invalid, Kube
from tidemark_operator.kube.merge_patch import replacing

LOG = logging.getLogger(__name__)
LOOK_SECONDS = 0.25
SWEEP_SECONDS = 1.0
AT_ONCE = 4
SETTLE_SECONDS = 15.0
ATTEMPTS = 5
Build = Callable[[Key, Body], dict[str, Any] | None]


class Publisher:
    """`build` gives the status an object should have; `settled` says whether its instance's replicas answered."""

    def __init__(self, kube: Kube, cache: Cache, build: Build, settled: Callable[[Key, Body], bool]) -> None:
        self._kube, self._cache, self._build, self._settled = kube, cache, build, settled
        self._started = self._now()
        self._hopeless: dict[Key, dict[str, Any]] = {}
        self._budget: StatusBudget[Key] = StatusBudget(self._started)
        self._pauses: Pauses[Key] = Pauses()
        self._rounds: Rounds[Key] = Rounds()
        self._news: dict[Key, None] = {}
        self._writing: set[Key] = set()
        self._moved: dict[Key, None] = {}
        """Of which it was seen that only frontiers and the like moved, since they were written."""

    async def run(self) -> None:
        """Until cancelled."""
        swept = self._now()
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            await self._go_on()
            if self._now() - swept >= SWEEP_SECONDS:
                swept = self._now()
                await self._sweep()

    async def publish(self, key: Key) -> None:
        """After a reconcile: what is urgent is written now, or when the object's pause is over."""
        await self._look(key)

    def announce(self, key: Key) -> None:
        """Something of it has changed that may matter: it is looked at soon, however late its reconcile is."""
        self._news[key] = None

    async def store(self, key: Key, status: dict[str, Any], uid: str, attempts: int = ATTEMPTS) -> None:
        """Writes (part of) a status of this very object; raises ApiError. The resource version is what makes sure of
        that, and an object that changed meanwhile is looked at again: a uid would not be compared here."""
        body = self._cache.get(key)
        for _ in range(attempts):
            if body is None or body["metadata"]["uid"] != uid:
                raise Conflict(409, f"{key} is not the object any more that it was")
            old = body.get("status") or {}
            merged = {name: replacing(old.get(name), value) for name, value in status.items()}
            patch = {"metadata": {"resourceVersion": body["metadata"]["resourceVersion"]}, "status": merged}
            self._pauses.written(key, self._now())
            try:
                self._cache.put(key, await self._kube.patch_status(key.resource, key.namespace, key.name, patch))
                return
            except Conflict:
                body = await self._kube.get(key.resource, key.namespace, key.name)
        raise Conflict(409, f"{key} keeps changing")

    async def _sweep(self) -> None:
        keys = self._cache.keys()
        self._remember_only(keys)
        for key in self._rounds.turn(keys):
            if self._is_new(key):
                self._pauses.written(key, self._now())
            await self._look(key)
        for key in self._budget.choose(self._moved, self._now()):
            self._moved.pop(key, None)
            if (change := self._change(key)) is not None:
                await self._write(key, change[0])

    def _is_new(self, key: Key) -> bool:
        """Nothing was ever said of it: its first reconcile is probably under way, and tells more."""
        return not ((self._cache.get(key) or {}).get("status") or {}).get("conditions")

    async def _go_on(self) -> None:
        """With what is new, and with what waited for its object's pause to be over."""
        due = dict.fromkeys(self._pauses.due(self._now()), True)
        looks = [*(dict.fromkeys(self._news, False) | due).items()]
        self._news.clear()
        for start in range(0, len(looks), AT_ONCE):
            async with asyncio.TaskGroup() as group:
                for key, waited in looks[start : start + AT_ONCE]:
                    group.create_task(self._look(key, waited))

    async def _look(self, key: Key, waited: bool = False) -> None:
        """What is urgent is written now, or after the pause; what merely moved, when it is chosen."""
        change = self._change(key)
        if change is None:
            self._moved.pop(key, None)
        elif not change[1]:
            self._moved[key] = None
        elif waited or has_arrived(change[0]) or not self._pauses.holds(key, self._now()):
            await self._write(key, change[0])

    def _remember_only(self, keys: Collection[Key]) -> None:
        """What is gone is forgotten, whatever watch told of it."""
        self._budget.keep(keys)
        self._pauses.keep(keys)
        self._moved = {key: None for key in self._moved if key in keys}
        self._hopeless = {key: status for key, status in self._hopeless.items() if key in keys}

    def _change(self, key: Key) -> tuple[dict[str, Any], bool] | None:
        """The status to write and whether at once; None where there is nothing to write."""
        body = self._cache.get(key)
        if body is None or not (self._settled(key, body) or self._age() > SETTLE_SECONDS):
            return None
        new = self._build(key, body)
        if new is None:
            return None
        old = body.get("status") or {}
        known = {name: old.get(name) for name in new}
        if known == new or self._hopeless.get(key) == new:
            return None
        return new, urgent(known, new)

    async def _write(self, key: Key, status: dict[str, Any]) -> None:
        """Where it is being written already, a second write would only be a conflict: it is looked at again after."""
        if key in self._writing:
            self.announce(key)
            return
        self._writing.add(key)
        try:
            await self._try_to_write(key, status)
        finally:
            self._writing.discard(key)

    async def _try_to_write(self, key: Key, status: dict[str, Any]) -> None:
        body = self._cache.get(key)
        if body is None:
            return
        self._budget.written(key, self._now())
        try:
            # once: where a mark was set meanwhile, what was built before it must not undo it
            await self.store(key, status, body["metadata"]["uid"], attempts=1)
        except Invalid as error:
            LOG.error("the API server takes no such status of %s: %s", key, error)
            self._hopeless[key] = status
        except Conflict:
            LOG.debug("status of %s not written: it is being changed; the next sweep sees what it is then", key)
        except ApiError as error:
            if error.status == 404:
                self._cache.remove(key)
            # replaced, or unreachable: the next sweep sees what there is then
            LOG.info("status of %s not written: %s", key, error)

    def _age(self) -> float:
        return self._now() - self._started

    def _now(self) -> float:
        return asyncio.get_running_loop().time()
