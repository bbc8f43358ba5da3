"""Writes statuses to the API server.

    conditions and the like changed    at once, or shortly after the object's last write (status_pauses.py)
    only frontiers and counters moved  within a budget of writes (status_budget.py)
    nothing changed                    never

Statuses are built again and again and compared with what the API server has, so no change can be lost: all of them
every second if there are few objects, else in turn (handlers/round_robin.py). An object's status is built at once after
its reconcile, and when replicas report a step such as its hydration. For the first seconds of an operator, objects of
an instance whose replicas have not answered yet are left alone: their statuses were right when the last operator wrote
them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection
from typing import Any

from tidemark_operator.handlers.publish.status_budget import StatusBudget
from tidemark_operator.handlers.publish.status_documents import has_arrived, urgent
from tidemark_operator.handlers.publish.status_pauses import StatusPauses
from tidemark_operator.handlers.round_robin import RoundRobin
from tidemark_operator.kube.cache import Cache, Key
from tidemark_operator.kube.client import ApiError, Body, Conflict, Invalid, Kube
from tidemark_operator.kube.merge_patch import merge_patch

LOG = logging.getLogger(__name__)
ROUND_SECONDS = 0.25
SWEEP_SECONDS = 1.0
CONCURRENT_WRITES = 4
SETTLE_SECONDS = 15.0
ATTEMPTS = 5
Build = Callable[[Key, Body], dict[str, Any] | None]
Before = Callable[[Key, Body, dict[str, Any]], Awaitable[None]]


async def _nothing(key: Key, body: Body, status: dict[str, Any]) -> None:
    pass


class StatusPublisher:
    """`build`: the status that an object should have, or None. `settled`: whether its instance's replicas have
    answered. `before`: called with the object and the new status before each write; it must do no harm when it is
    called twice."""

    def __init__(
        self,
        kube: Kube,
        cache: Cache,
        build: Build,
        settled: Callable[[Key, Body], bool],
        before: Before = _nothing,
    ) -> None:
        self._kube, self._cache, self._build, self._settled = kube, cache, build, settled
        self._before = before
        self._started = self._now()
        self._refused: dict[Key, dict[str, Any]] = {}
        self._budget: StatusBudget[Key] = StatusBudget(self._started)
        self._pauses: StatusPauses[Key] = StatusPauses()
        self._round_robin: RoundRobin[Key] = RoundRobin()
        self._announced: dict[Key, None] = {}
        self._writing: set[Key] = set()
        self._moved: dict[Key, None] = {}
        """Objects of which only frontiers and counters have moved since they were written."""

    async def run(self) -> None:
        """Run until cancelled."""
        swept = self._now()
        while True:
            await asyncio.sleep(ROUND_SECONDS)
            await self._publish_due()
            if self._now() - swept >= SWEEP_SECONDS:
                swept = self._now()
                await self._sweep()

    async def publish(self, key: Key) -> None:
        """Publish the status after a reconcile. An urgent change is written now, or when the object's pause is over."""
        await self._publish(key)

    def announce(self, key: Key) -> None:
        """A replica reported a step of the object. Its status is built soon, even if its reconcile is late."""
        self._announced[key] = None

    async def store(self, key: Key, status: dict[str, Any], uid: str, attempts: int = ATTEMPTS) -> None:
        """Writes fields of the status of the object with this uid. The API server compares the resource version (it
        would not compare a uid); after a conflict the object is read again.

        Raises:
            Conflict: the object is another one by now, or keeps changing.
            ApiError: any other error.
        """
        body = self._cache.get(key)
        for _ in range(attempts):
            if body is None or body["metadata"]["uid"] != uid:
                raise Conflict(409, f"{key} was replaced by another object of its name")
            old = body.get("status") or {}
            merged = {name: merge_patch(old.get(name), value) for name, value in status.items()}
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
        self._keep_only(keys)
        for key in self._round_robin.next(keys):
            if self._is_new(key):
                self._pauses.written(key, self._now())
            await self._publish(key)
        for key in self._budget.choose(self._moved, self._now()):
            self._moved.pop(key, None)
            if (change := self._change(key)) is not None:
                await self._write(key, change[0])

    def _is_new(self, key: Key) -> bool:
        """Whether it has no conditions yet. Its first reconcile is probably under way, and will tell more."""
        return not ((self._cache.get(key) or {}).get("status") or {}).get("conditions")

    async def _publish_due(self) -> None:
        """Builds the statuses that were announced, and those whose pause is over."""
        due = dict.fromkeys(self._pauses.take_due(self._now()), True)
        looks = [*(dict.fromkeys(self._announced, False) | due).items()]
        self._announced.clear()
        for start in range(0, len(looks), CONCURRENT_WRITES):
            async with asyncio.TaskGroup() as group:
                for key, waited in looks[start : start + CONCURRENT_WRITES]:
                    group.create_task(self._publish(key, waited))

    async def _publish(self, key: Key, waited: bool = False) -> None:
        """Builds the status. An urgent change is written now, or after the pause; other changes when the budget
        allows."""
        change = self._change(key)
        if change is None:
            self._moved.pop(key, None)
        elif not change[1]:
            self._moved[key] = None
        elif waited or has_arrived(change[0]) or not self._pauses.holds(key, self._now()):
            await self._write(key, change[0])

    def _keep_only(self, keys: Collection[Key]) -> None:
        """Forgets objects that are gone."""
        self._budget.keep(keys)
        self._pauses.keep(keys)
        self._moved = {key: None for key in self._moved if key in keys}
        self._refused = {key: status for key, status in self._refused.items() if key in keys}

    def _change(self, key: Key) -> tuple[dict[str, Any], bool] | None:
        """The status to write, and whether it is urgent; None if there is nothing to write."""
        body = self._cache.get(key)
        if body is None or not (self._settled(key, body) or self._age() > SETTLE_SECONDS):
            return None
        new = self._build(key, body)
        if new is None:
            return None
        old = body.get("status") or {}
        known = {name: old.get(name) for name in new}
        if known == new or self._refused.get(key) == new:
            return None
        return new, urgent(known, new)

    async def _write(self, key: Key, status: dict[str, Any]) -> None:
        """Writes the status. If it is being written already, a second write would conflict: it is built again
        afterwards."""
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
        await self._before(key, body, status)
        try:
            # once: a status that was built before a mark was set must not undo the mark
            await self.store(key, status, body["metadata"]["uid"], attempts=1)
        except Invalid as error:
            LOG.error("the API server refuses the status of %s, which is not written until it changes: %s", key, error)
            self._refused[key] = status
        except Conflict:
            LOG.debug("status of %s not written: the object is being changed; the next sweep builds it again", key)
        except ApiError as error:
            if error.status == 404:
                self._cache.remove(key)
            # replaced or unreachable: the next sweep builds it again
            LOG.info("status of %s not written: %s", key, error)

    def _age(self) -> float:
        return self._now() - self._started

    def _now(self) -> float:
        return asyncio.get_running_loop().time()
