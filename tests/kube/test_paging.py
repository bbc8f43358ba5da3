"""Long lists come in pages, and the API server forgets a list that was begun too long ago."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from aiohttp import web
from kubernetes.aio import client

from tidemark_operator.kube.client import AGAIN_SECONDS, DATAFLOWS, ApiError, Body, Kube
from tidemark_operator.kube.objects import PODS

GONE = {"kind": "Status", "status": "Failure", "reason": "Expired", "code": 410}
Listing = Callable[[Kube], Awaitable[list[Body]]]
LISTINGS: dict[str, Listing] = {
    "ours": lambda kube: kube.list(DATAFLOWS),
    "others": lambda kube: kube.list(PODS),
}


class Pages:
    """A list of three pages of one item each. `expires`: pages that it answers with 410, so many times each."""

    def __init__(self, *expires: int, again: int = 1) -> None:
        self._expires = Counter(dict.fromkeys(expires, again))
        self.asked: list[int] = []

    async def answer(self, request: web.Request) -> web.Response:
        page = int(request.query.get("continue", 0))
        self.asked.append(page)
        if self._expires[page]:
            self._expires[page] -= 1
            return web.json_response(GONE, status=410)
        metadata = {"continue": str(page + 1)} if page < 2 else {}
        return web.json_response({"metadata": metadata, "items": [{"metadata": {"name": f"p{page}"}}]})


def listed(pages: Pages, listing: Listing) -> list[str]:
    """Names of what is listed."""

    async def asked() -> list[str]:
        application = web.Application()
        application.router.add_get("/{path:.*}", pages.answer)
        runner = web.AppRunner(application)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        configuration = client.Configuration()
        configuration.host = f"http://127.0.0.1:{runner.addresses[0][1]}"
        try:
            async with client.ApiClient(configuration) as api:
                found: list[Any] = await listing(Kube(api))
        finally:
            await runner.cleanup()
        return [body["metadata"]["name"] for body in found]

    return asyncio.run(asked())


@pytest.mark.parametrize("listing", LISTINGS.values(), ids=LISTINGS)
def test_a_list_that_expires_between_its_pages_is_begun_again(listing: Listing) -> None:
    """And nothing of it comes twice."""
    pages = Pages(1, 2)

    assert listed(pages, listing) == ["p0", "p1", "p2"]
    assert pages.asked == [0, 1, 0, 1, 2, 0, 1, 2]


@pytest.mark.parametrize("listing", LISTINGS.values(), ids=LISTINGS)
def test_a_list_that_cannot_be_begun_is_an_error(listing: Listing) -> None:
    """Asking again without an end would keep the API server from getting better."""
    pages = Pages(0)
    with pytest.raises(ApiError):
        listed(pages, listing)

    assert pages.asked == [0]


@pytest.mark.parametrize("listing", LISTINGS.values(), ids=LISTINGS)
def test_must_a_list_that_expires_again_and_again_be_begun_with_pauses(
    listing: Listing, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each time anew, two requests: without a pause, as many as the API server can take."""
    pages, pauses, sleep = Pages(1, 2, again=3), list[float](), asyncio.sleep

    async def paused(seconds: float) -> None:
        pauses.append(seconds)
        await sleep(0)

    monkeypatch.setattr(asyncio, "sleep", paused)

    assert listed(pages, listing) == ["p0", "p1", "p2"]
    assert [each for each in pauses if each] == [AGAIN_SECONDS] * 5
    assert pages.asked == [0, 1] * 3 + [0, 1, 2] * 4
