"""Rights are asked for again for as long as a subscribe lasts."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, cast

import pytest

from tests.controller.harness import at
from tests.gateway.auth.test_access import ApiServer
from tests.gateway.streams.test_slow_subscribers import batch
from tests.waiting import BOUND
from tidemark_operator.errors import SubscribeRevoked, TooMany
from tidemark_operator.fleet.clients.subscription import Backlog, Subscription
from tidemark_operator.gateway.auth import rights_renewal
from tidemark_operator.gateway.auth.access import Access, Authenticator
from tidemark_operator.gateway.auth.recent_answers import TTL_SECONDS
from tidemark_operator.gateway.auth.rights import check_rights
from tidemark_operator.gateway.auth.rights_renewal import while_allowed
from tidemark_operator.gateway.streams import subscribe
from tidemark_operator.gateway.streams.subscribe import BatchSender, GrpcSubscriber
from tidemark_operator.kube.client import DATAFLOWS
from tidemark_operator.kube.reviews import Reviews
from tidemark_operator.planning.revision import Parent
from tidemark_protocol.frontier import Frontier
from tidemark_protocol.ids import GlobalId
from tidemark_protocol.pb.gateway_pb2 import SubscribeRequest

AS_OF, MAY_READ = 100, "get dataflows/data delays in namespace ns"
OWNERS = {GlobalId("d/i"): Parent(DATAFLOWS.kind, "delays")}
CHECK = partial(check_rights, namespace="ns", reads=[GlobalId("d/i")], found=OWNERS)


class Cluster(ApiServer):
    """Knows who anne is for as long as her token holds; `holds`: whether it does; `crowded`: too many
    logins have failed. `seen`: it was asked something."""

    holds, strange, crowded = True, False, False

    def __init__(self, *allowed: str) -> None:
        super().__init__(*allowed)
        self.seen = asyncio.Event()

    def _ask(self, what: str) -> None:
        self.seen.set()
        if self.strange:
            raise KeyError("status")
        if self.crowded:
            raise TooMany("too many logins by a wrong password: wait a minute")
        super()._ask(what)

    async def user(self, token: str) -> Any:
        return await super().user(token if self.holds else "of nobody")


class Client:
    def __init__(self, takes: bool) -> None:
        self.takes, self.uppers = takes, list[int]()

    async def write(self, message: Any) -> None:
        if not self.takes:
            await asyncio.Event().wait()
        self.uppers.append(message.batch.upper)


def play(
    story: Callable[[Cluster, Subscription, asyncio.Task[None]], Awaitable[None]],
    monkeypatch: pytest.MonkeyPatch,
    *,
    takes: bool = True,
    token: str = "annes",
) -> Client:
    """A subscribe of anne's that was told up to 119, whose rights are asked for again and again."""
    monkeypatch.setattr(rights_renewal, "RECHECK_SECONDS", 0.001)
    monkeypatch.setattr(rights_renewal, "RETRY_SECONDS", 0.001)
    monkeypatch.setattr(subscribe, "CHUNK_SECONDS", 0.01)
    client = Client(takes)

    async def played() -> None:
        cluster, seconds = Cluster(MAY_READ), iter(range(0, 10**9, 2 * int(TTL_SECONDS)))
        door = Authenticator("own", cast(Reviews, cluster), lambda: next(seconds))
        subscription = Subscription(lambda: None, Backlog())
        subscription.put(batch(0, at(120)))

        async def admit() -> Access:
            return await door.authenticate(f"Bearer {token}")

        async def served() -> None:
            async with while_allowed(subscription, admit, CHECK):
                await BatchSender(GrpcSubscriber(client, SubscribeRequest(subject="t")), subscription, AS_OF).send()

        telling = asyncio.create_task(served())
        async with asyncio.timeout(BOUND):
            await asked_again(cluster, token)
            assert not telling.done()
            await story(cluster, subscription, telling)
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(played())
    return client


async def asked_again(cluster: Cluster, token: str = "annes") -> None:
    for _ in range(0 if token == "own" else 4):
        cluster.seen.clear()
        await cluster.seen.wait()


@pytest.mark.parametrize("takes", [True, False])
@pytest.mark.parametrize(
    ("what", "says"),
    [("right", f"anne may not {MAY_READ}"), ("token", "the token is unknown")],
    ids=["right", "token"],
)
def test_a_right_that_is_taken_back_ends_it(what: str, says: str, takes: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the client reads nothing, and where its token has expired; it is told from where it may go on."""

    async def story(cluster: Cluster, subscription: Subscription, telling: asyncio.Task[None]) -> None:
        if what == "right":
            cluster.allowed = ("list dataflows in namespace ns", "list datasources in namespace ns")
        else:
            cluster.holds = False
        with pytest.raises(
            SubscribeRevoked, match=rf"the right to read it was withdrawn: {re.escape(says)}.*The client "
        ) as ended:
            await telling
        assert ("--as-of 119" in str(ended.value)) == takes
        subscription.put(batch(120, at(130)))

    assert play(story, monkeypatch, takes=takes).uppers == ([120] if takes else [])


def test_a_login_that_may_not_be_looked_at_ends_it_after_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Others' guesses at the user's password end nothing at once, and keep no rights for ever."""

    async def story(cluster: Cluster, subscription: Subscription, telling: asyncio.Task[None]) -> None:
        cluster.crowded = True
        await asked_again(cluster)
        assert not telling.done()
        cluster.crowded = False
        await asked_again(cluster)
        cluster.crowded = True
        monkeypatch.setattr(rights_renewal, "UNCONFIRMED_SECONDS", 0.02)
        with pytest.raises(SubscribeRevoked, match=r"not confirmed for 0 s: too many logins .*--as-of 119"):
            await telling

    play(story, monkeypatch)


@pytest.mark.parametrize("how", ["away", "strange", "crowded"])
def test_the_last_decision_holds_while_the_api_server_is_away(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its outage ends no subscribes, nor does what nobody understands of it; and what changed meanwhile is found out
    when it is back."""

    async def story(cluster: Cluster, subscription: Subscription, telling: asyncio.Task[None]) -> None:
        setattr(cluster, how, True)
        await asked_again(cluster)
        assert not telling.done()
        setattr(cluster, how, False)
        cluster.allowed = ()
        with pytest.raises(SubscribeRevoked):
            await telling

    play(story, monkeypatch)


@pytest.mark.parametrize("token", ["annes", "own"])
def test_it_is_asked_no_more_when_the_subscribe_has_ended(token: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """And nobody is asked about the operator's own token."""

    async def story(cluster: Cluster, subscription: Subscription, telling: asyncio.Task[None]) -> None:
        subscription.put(batch(120, Frontier.empty()))
        await telling
        await asyncio.sleep(0)
        asked = len(cluster.asked)
        await asyncio.sleep(0.01)
        assert len(cluster.asked) == asked
        assert bool(asked) == (token == "annes")

    play(story, monkeypatch, token=token)
