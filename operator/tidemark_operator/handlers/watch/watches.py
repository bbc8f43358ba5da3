"""Watches of our four kinds, by kopf. The operator has a cache and a work queue of its own.

    kopf, in a thread ── events ──► event_handoff ──► the operator's cache
      ├─ begins a watch ─► the operator lists everything: an object deleted before kopf's list has no event
      └─ ends, for any reason ─► a pause ─► is started again

Only `on.event` is used: it stores nothing in objects (no last-handled annotation, which grows with the spec) and adds
no finalizer. kopf lists, watches, reconnects and logs in. But it ends at responses that it does not expect (409, 410,
an ERROR event other than 410). And it behaves as if the process were its own: when it ends, it cancels every task of
its loop that began after it, and it handles the main thread's signals. So it runs in a thread and on a loop of its own.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from itertools import repeat
from pathlib import Path
from typing import Any

import kopf
from kopf._cogs.structs.references import Insights

from tidemark_operator.handlers.watch.event_handoff import EventHandoff, Observed
from tidemark_operator.handlers.watch.thread_loop import ThreadLoop
from tidemark_operator.handlers.watch.watch_backoff import LASTING_SECONDS, WatchBackoff
from tidemark_operator.kube.client import OURS, Resource
from tidemark_operator.resources.manifest.meta import GROUP

LOG = logging.getLogger(__name__)
KOPF_END_LOGGERS = ("kopf._core.reactor.running", "kopf._core.reactor.orchestration")
"""kopf's loggers that print a traceback for each of its tasks that ends. The operator logs the reason in one line."""
SILENCE_SECONDS = 70.0
"""The time after which a watch counts as hanging: the API server sends a bookmark each minute."""
REQUEST_SECONDS = 30.0
GATHER_SECONDS = 5.0
"""kopf begins the watches of all kinds within this time; then all kinds are listed once."""


class KindsMissing(Exception):
    """kopf found no such kinds at the API server. It looks once, and would wait for ever."""


def registry_of(observed: Observed, kubeconfig: Path | None) -> kopf.OperatorRegistry:
    """kopf's registry with our handlers; kopf's global registry stays empty."""
    registry = kopf.OperatorRegistry()

    @kopf.on.login(registry=registry)
    async def login(**arguments: Any) -> kopf.ConnectionInfo | None:
        if kubeconfig is None:
            return kopf.login_with_service_account(**arguments)
        return kopf.login_with_kubeconfig(**arguments)

    for resource in OURS:
        _watch(registry, resource, observed)
    return registry


def _watch(registry: kopf.OperatorRegistry, resource: Resource, observed: Observed) -> None:
    @kopf.on.event(resource.group, resource.version, resource.plural, registry=registry, id=f"watch-{resource.plural}")
    async def handle(event: Any, **_: Any) -> None:
        observed(resource, dict(event["object"]), event["type"] == "DELETED")


class EndlessBackoff(Iterable[float]):
    """Pauses between attempts, in seconds, without an end: after a finite number of them kopf would end."""

    def __iter__(self) -> Iterator[float]:
        yield from (1.0, 2.0, 4.0)
        yield from repeat(8.0)


class NoDiffBase(kopf.DiffBaseStorage):
    """Stores no earlier version of objects: no handler needs one, and kopf would copy the object at each event."""

    def build(self, *, body: kopf.Body, extra_fields: object = None) -> kopf.BodyEssence:
        return kopf.BodyEssence()

    def fetch(self, *, body: kopf.Body) -> kopf.BodyEssence | None:
        return None

    def store(self, *, body: kopf.Body, patch: kopf.Patch, essence: kopf.BodyEssence) -> None:
        """Stores nothing."""


def settings(begins: Callable[[], None]) -> kopf.OperatorSettings:
    """`begins`: called from kopf's thread before each list and each watch that kopf requests."""

    def matches(_: kopf.Resource) -> bool:
        begins()
        return False

    settings = kopf.OperatorSettings()
    # kopf has no callback for the list of a kind. But it evaluates label selectors before each request
    settings.watching.label_selectors[matches] = "of no kind"
    settings.posting.enabled = False
    settings.peering.standalone = True
    settings.persistence.finalizer = f"{GROUP}/kopf"
    settings.persistence.diffbase_storage = NoDiffBase()
    settings.watching.server_timeout = 600
    settings.watching.client_timeout = 660
    settings.watching.inactivity_timeout = SILENCE_SECONDS
    settings.networking.request_timeout = REQUEST_SECONDS
    settings.networking.error_backoffs = EndlessBackoff()
    settings.scanning.disabled = True
    # otherwise kopf kills its thread, and the process with it, ten minutes after it ended
    settings.process.ultimate_exiting_timeout = None
    return settings


class WatchesBegan:
    """Calls `began` on the operator's loop, once for all watches that begin within GATHER_SECONDS."""

    def __init__(self, began: Callable[[], None]) -> None:
        self._began, self._loop = began, asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None

    def soon(self) -> None:
        """Plan a call of `began`. Any thread may do so."""
        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._start_timer)

    def cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _start_timer(self) -> None:
        if self._timer is None:
            self._timer = self._loop.call_later(GATHER_SECONDS, self._call)

    def _call(self) -> None:
        self._timer = None
        self._began()


async def watch(
    observed: Observed, began: Callable[[], None], kubeconfig: Path | None, namespaces: tuple[str, ...]
) -> None:
    """Runs until cancelled. `observed`: called with each event. `began`: called GATHER_SECONDS after a watch began:
    then all objects must be listed. `namespaces`: empty for the whole cluster."""
    if kubeconfig is not None:
        os.environ["KUBECONFIG"] = str(kubeconfig)
    loop, handoff = asyncio.get_running_loop(), EventHandoff(observed)
    gathered, backoff = WatchesBegan(began), WatchBackoff()
    try:
        while True:
            lasting = loop.call_later(LASTING_SECONDS, backoff.reset)
            try:
                error = await _watch_once(handoff.give, gathered.soon, kubeconfig, namespaces)
            finally:
                lasting.cancel()
            await asyncio.sleep(backoff.pause_after(error, loop.time()))
    finally:
        gathered.cancel()


async def _watch_once(
    observed: Observed, begins: Callable[[], None], kubeconfig: Path | None, namespaces: tuple[str, ...]
) -> BaseException | None:
    """Runs until kopf ends, and returns its exception. Cancelling this ends kopf first."""

    async def work() -> None:
        insights = Insights()
        found = asyncio.create_task(_require_kinds(insights))
        # not kopf.operator: when one watch fails, it waits for the others, for ever if they wait for a login
        tasks = await kopf.spawn_tasks(
            registry=registry_of(observed, kubeconfig),
            settings=settings(begins),
            insights=insights,
            standalone=True,
            clusterwide=not namespaces,
            namespaces=namespaces,
        )
        await asyncio.wait((found, *tasks), return_when=asyncio.FIRST_COMPLETED)
        if found.done():
            await found
        ended, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in ended:
            await task

    try:
        kopfs = ThreadLoop("watches", work)
    except (OSError, RuntimeError) as error:  # no descriptor or no thread left
        return error
    try:
        await asyncio.wait((kopfs.ended,))
        return kopfs.ended.result()
    finally:
        await kopfs.end()


async def _require_kinds(insights: Insights) -> None:
    """Wait until kopf has looked for the kinds of the operator. Raises KindsMissing."""
    await insights.ready_resources.wait()
    found = {resource.plural for resource in insights.watched_resources}
    if missing := {resource.plural for resource in OURS} - found:
        raise KindsMissing(", ".join(sorted(missing)))
