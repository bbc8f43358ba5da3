"""Writes statuses: what matters at once, what merely moves within the budget, what did not change never.

A status is built anew from what is known, again and again, and compared with what the API server has, so no change has
to be announced and none is lost: every second where there are few objects, else in turn (rounds.py), and after each
reconcile of the object, which is where most that matters shows first. For the first seconds of an operator, objects of
an instance whose replicas have not answered yet are left alone: their statuses were right when the last operator wrote
them.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection
from typing import Any

from tidemark_operator.handlers.rounds import Rounds
from tidemark_operator.handlers.status_budget import StatusBudget
from tidemark_operator.kube.cache import Cache, Key
from tidemark_operator.kube.client import ApiError, Body, Conflict, Invalid, Kube
from tidemark_operator.kube.merge_patch import replacing
from tidemark_operator.resources.status import urgent

LOG = logging.getLogger(__name__)
SWEEP_SECONDS = 1.0
SETTLE_SECONDS = 15.0
ATTEMPTS = 5
Build = Callable[[Key, Body], dict[str, Any] | None]


class Publisher:
    """`build` gives the status an object should have; `settled` says whether its instance's replicas answered."""

    def __init__(self, kube: Kube, cache: Cache, build: Build, settled: Callable[[Key, Body], bool]) -> None:
        self._kube, self._cache, self._build, self._settled = kube, cache, build, settled
        self._started = asyncio.get_running_loop().time()
        self._hopeless: dict[Key, dict[str, Any]] = {}
        self._budget: StatusBudget[Key] = StatusBudget(self._started)
        self._rounds: Rounds[Key] = Rounds()
        self._moved: dict[Key, None] = {}
        """Of which it was seen that only frontiers and the like moved, since they were written."""

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await asyncio.sleep(SWEEP_SECONDS)
            await self._sweep()

    async def publish(self, key: Key) -> None:
        """After a reconcile: what is urgent is written now."""
        await self._look(key)

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
            await self._look(key)
        for key in self._budget.choose(self._moved, asyncio.get_running_loop().time()):
            self._moved.pop(key, None)
            if (change := self._change(key)) is not None:
                await self._write(key, change[0])

    async def _look(self, key: Key) -> None:
        """What is urgent is written now; what merely moved, when it is chosen."""
        change = self._change(key)
        if change is None:
            self._moved.pop(key, None)
        elif change[1]:
            await self._write(key, change[0])
        else:
            self._moved[key] = None

    def _remember_only(self, keys: Collection[Key]) -> None:
        """What is gone is forgotten, whatever watch told of it."""
        self._budget.keep(keys)
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
        body = self._cache.get(key)
        if body is None:
            return
        self._budget.written(key, asyncio.get_running_loop().time())
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
        return asyncio.get_running_loop().time() - self._started
