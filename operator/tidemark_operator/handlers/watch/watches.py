"""Watches, by kopf: every event of our four kinds goes to the operator, which keeps a cache and a queue of its own.

    kopf, in a thread ── events ──► handover ──► the operator's cache
      ├─ asks for a watch ─► everything is listed: what was deleted before kopf's own list, no watch tells
      └─ ends, whatever the reason ─► a pause ─► begins anew

Only `on.event` is used: it stores nothing in the objects (no last-handled annotation, which grows with the spec), and
adds no finalizer. kopf's part is what it does well: listing, watching, reconnecting, credentials. But it ends at what
it does not expect: a 409 or 410 for an answer, an ERROR event of a watch other than 410. And it takes the process for
its own: where it ends it cancels each task of its loop that began after it, and it takes the main thread's signals. So
it has a thread and a loop, and is begun anew.
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

from tidemark_operator.handlers.watch.event_handoff import Handover, Observed
from tidemark_operator.handlers.watch.thread_loop import Apart
from tidemark_operator.handlers.watch.watch_backoff import LASTING_SECONDS, Ends
from tidemark_operator.kube.client import OURS, Resource
from tidemark_operator.resources.manifest.meta import GROUP

LOG = logging.getLogger(__name__)
TELL_OF_ENDS = ("kopf._core.reactor.running", "kopf._core.reactor.orchestration")
"""kopf's loggers that have a traceback for each of its tasks that ends; we say why in a line."""
QUIET_SECONDS = 70.0
"""A watch of which nothing is heard for so long hangs: the API server sends a bookmark each minute."""
REQUEST_SECONDS = 30.0
GATHER_SECONDS = 5.0
"""Kinds are watched one soon after the other, and all of them are listed once."""


class KindsMissing(Exception):
    """kopf looks once for where our kinds are, and waits for ever where it has not found them."""


def registry_of(observed: Observed, kubeconfig: Path | None) -> kopf.OperatorRegistry:
    """Handlers of our own registry: nothing global."""
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


class Forever(Iterable[float]):
    """Pauses between attempts, without an end: kopf gives up after a finite number of them, and takes all with it."""

    def __iter__(self) -> Iterator[float]:
        yield from (1.0, 2.0, 4.0)
        yield from repeat(8.0)


class Uncompared(kopf.DiffBaseStorage):
    """Nothing to compare objects with: no handler is for changes, and kopf would copy each at each of its events."""

    def build(self, *, body: kopf.Body, extra_fields: object = None) -> kopf.BodyEssence:
        return kopf.BodyEssence()

    def fetch(self, *, body: kopf.Body) -> kopf.BodyEssence | None:
        return None

    def store(self, *, body: kopf.Body, patch: kopf.Patch, essence: kopf.BodyEssence) -> None:
        """Nothing: it is never there to be fetched."""


def settings(asks: Callable[[], None]) -> kopf.OperatorSettings:
    """`asks`: told, from kopf's thread, before each list and each watch that kopf asks for."""

    def matches(_: kopf.Resource) -> bool:
        asks()
        return False

    settings = kopf.OperatorSettings()
    # kopf tells nobody that it has listed a kind. But it looks for selectors each time that it asks for one
    settings.watching.label_selectors[matches] = "of no kind"
    settings.posting.enabled = False
    settings.peering.standalone = True
    settings.persistence.finalizer = f"{GROUP}/kopf"
    settings.persistence.diffbase_storage = Uncompared()
    settings.watching.server_timeout = 600
    settings.watching.client_timeout = 660
    settings.watching.inactivity_timeout = QUIET_SECONDS
    settings.networking.request_timeout = REQUEST_SECONDS
    settings.networking.error_backoffs = Forever()
    settings.scanning.disabled = True
    # else kopf kills its thread, and with it the process, ten minutes after it ended
    settings.process.ultimate_exiting_timeout = None
    return settings


class Missed:
    """Tells the operator's loop, once for all that is asked for within some seconds; `told` is called on it."""

    def __init__(self, told: Callable[[], None]) -> None:
        self._told, self._loop = told, asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None

    def soon(self) -> None:
        """From any thread."""
        with suppress(RuntimeError):  # of a loop that is closed: nobody is there any more
            self._loop.call_soon_threadsafe(self._begin)

    def cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _begin(self) -> None:
        if self._timer is None:
            self._timer = self._loop.call_later(GATHER_SECONDS, self._tell)

    def _tell(self) -> None:
        self._timer = None
        self._told()


async def watch(
    observed: Observed, missed: Callable[[], None], kubeconfig: Path | None, namespaces: tuple[str, ...]
) -> None:
    """Until cancelled. `missed`: told some seconds after any watch was asked for, of what none has told until then."""
    if kubeconfig is not None:
        os.environ["KUBECONFIG"] = str(kubeconfig)
    loop, handover, gathered, ends = asyncio.get_running_loop(), Handover(observed), Missed(missed), Ends()
    try:
        while True:
            lasting = loop.call_later(LASTING_SECONDS, ends.well)
            try:
                error = await _watch_once(handover.give, gathered.soon, kubeconfig, namespaces)
            finally:
                lasting.cancel()
            await asyncio.sleep(ends.pause_after(error, loop.time()))
    finally:
        gathered.cancel()


async def _watch_once(
    observed: Observed, asks: Callable[[], None], kubeconfig: Path | None, namespaces: tuple[str, ...]
) -> BaseException | None:
    """Until kopf ends: why it did. Where this is cancelled, it has ended."""

    async def work() -> None:
        insights = Insights()
        found = asyncio.create_task(_found(insights))
        # not kopf.operator: where one watch fails it waits for the others, for ever if they ask to log in again
        tasks = await kopf.spawn_tasks(
            registry=registry_of(observed, kubeconfig),
            settings=settings(asks),
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
        kopfs = Apart("watches", work)
    except (OSError, RuntimeError) as error:  # no descriptor, or no thread, is to be had
        return error
    try:
        await asyncio.wait((kopfs.ended,))
        return kopfs.ended.result()
    finally:
        await kopfs.end()


async def _found(insights: Insights) -> None:
    """Raises KindsMissing."""
    await insights.ready_resources.wait()
    found = {resource.plural for resource in insights.watched_resources}
    if missing := {resource.plural for resource in OURS} - found:
        raise KindsMissing(", ".join(sorted(missing)))
