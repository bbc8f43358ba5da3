"""Rights at the gateway: everything with the operator's own token, and what the API server allows with a user's."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, cast

import pytest

from tidemark_operator.certificates.peers import SocketPeers
from tidemark_operator.errors import OperatorError
from tidemark_operator.gateway.auth import access, recent_answers
from tidemark_operator.gateway.auth.access import Access, Authenticator, Forbidden, ReviewUnavailable, Unauthenticated
from tidemark_operator.gateway.auth.password_logins import LOGIN_SECRET, PasswordLogins
from tidemark_operator.gateway.server.listener import ListenerConfig, TlsFolder
from tidemark_operator.kube.client import SECRETS, ApiError, Body, Kube, Resource
from tidemark_operator.kube.reviews import Action, Reviews, User
from tidemark_operator.planning.revision import Parent
from tidemark_protocol.wire.password_login import PasswordLogin, encode

JWT = "eyJhbGciOiJub25lIn0.e30.annes"
"""A token of anne's with the form of the API server's."""
ANNE = User("anne", groups=("readers",))
VIEW, SOURCE = Parent("Dataflow", "delays"), Parent("DataSource", "flights")


class ApiServer:
    """Knows one token, and what its user may do."""

    def __init__(self, *allowed: str) -> None:
        self.allowed, self.asked = allowed, list[str]()
        self.away = False

    async def user(self, token: str) -> User | None:
        self._ask("who")
        return ANNE if token in ("annes", JWT) else None

    async def may(self, user: User, action: Action) -> bool:
        self._ask(str(action))
        assert user == ANNE
        return str(action) in self.allowed

    def _ask(self, what: str) -> None:
        self.asked.append(what)
        if self.away:
            raise ApiError(0, "the API server does not answer")


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def authenticator(server: ApiServer | None, clock: Clock | None = None) -> Authenticator:
    return Authenticator("own", cast(Reviews, server), clock or Clock())


def run(asked: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run(asked)


async def see_rows(at: Authenticator, *of: Parent, token: str = "annes") -> None:
    await (await at.authenticate(f"Bearer {token}")).check_rows("ns", of)


def test_the_operators_own_token_opens_everything_and_needs_no_review() -> None:
    """The token opens everything as long as it is the right one."""
    server = ApiServer()
    run(see_rows(authenticator(server), VIEW, SOURCE, token="own"))
    assert server.asked == []


@pytest.mark.parametrize("authorization", ["", "Bearer", "Bearer ", "Bearer other", "own", "Basic annes"])
def test_an_unknown_token_opens_nothing(authorization: str) -> None:
    """Also where there is no API server to ask."""
    for server in (ApiServer(), None):
        with pytest.raises(Unauthenticated):
            run(authenticator(server).authenticate(authorization))


class LoginKube:
    """A ServiceAccount that names a Secret, which cannot be read."""

    async def get(self, resource: Resource, namespace: str, name: str) -> Body:
        if resource == SECRETS:
            raise ApiError(500, f"Secret {namespace}/{name}: (500) Internal Server Error")
        return {"metadata": {"name": name, "annotations": {LOGIN_SECRET: "grafana-7"}}}


def test_what_is_meant_as_a_login_is_never_reviewed_as_a_token() -> None:
    """Also where something is wrong with it, or passwords are not taken: audit logs keep what is reviewed."""
    made = encode(PasswordLogin("ns", "anne", "correct-horse-battery"))
    for text in (made, made[:-3], made + "!", "login~", "login~YQ==", " login~YQ=="):
        server = ApiServer()
        with pytest.raises(Unauthenticated, match="the user or the password is wrong"):
            run(authenticator(server).authenticate(f"Bearer {text}"))
        assert server.asked == []


def test_an_error_of_the_api_server_tells_an_unknown_client_no_secret(caplog: pytest.LogCaptureFixture) -> None:
    """The operator's log has it."""
    logins = PasswordLogins(cast(Kube, LoginKube()))
    at = Authenticator("own", cast(Reviews, ApiServer()), Clock(), logins=logins)
    with pytest.raises(ReviewUnavailable, match="by their passwords now") as told:
        run(at.authenticate(f"Bearer {encode(PasswordLogin('ns', 'anne', 'correct-horse-battery'))}"))
    assert "grafana-7" not in str(told.value)
    assert "grafana-7" in caplog.text


def test_seeing_status_is_not_seeing_rows() -> None:
    """Each needs its right, rows per object; the first that is missing is named."""
    status = ApiServer("list dataflows in namespace ns", "list datasources in namespace ns")
    allowed = run(authenticator(status).authenticate("Bearer annes"))
    run(allowed.check_objects("ns"))
    with pytest.raises(Forbidden, match="anne may not get dataflows/data delays in namespace ns"):
        run(allowed.check_rows("ns", [VIEW]))
    with pytest.raises(Forbidden, match="anne may not list datasources in all namespaces"):
        run(allowed.check_objects(""))

    rows = ApiServer("get dataflows/data delays in namespace ns")
    run(see_rows(authenticator(rows), VIEW))
    with pytest.raises(Forbidden, match="get datasources/data flights"):
        run(see_rows(authenticator(rows), VIEW, SOURCE))
    with pytest.raises(Forbidden):
        run(run(authenticator(rows).authenticate("Bearer annes")).check_objects("ns"))


def test_changing_files_is_a_right_of_its_own() -> None:
    """The right is for one DataSource: to edit it is another right."""
    for right in ("update datasources flights in namespace ns", "update datasources/files other in namespace ns"):
        with pytest.raises(Forbidden, match="anne may not update datasources/files flights in namespace ns"):
            run(run(authenticator(ApiServer(right)).authenticate("Bearer annes")).check_files("ns", "flights"))
    right = "update datasources/files flights in namespace ns"
    run(run(authenticator(ApiServer(right)).authenticate("Bearer annes")).check_files("ns", "flights"))


def test_deleting_tables_is_a_right_of_its_own() -> None:
    """To delete an object is another right: its tables stay."""
    for right in ("delete dataflows in namespace ns", "delete dataflows/tables in namespace other"):
        with pytest.raises(Forbidden, match="anne may not delete dataflows/tables in namespace ns"):
            run(run(authenticator(ApiServer(right)).authenticate("Bearer annes")).check_tables("ns"))
    right = "delete dataflows/tables in namespace ns"
    run(run(authenticator(ApiServer(right)).authenticate("Bearer annes")).check_tables("ns"))


def test_making_copies_is_a_right_of_its_own() -> None:
    """The right is for a namespace: a reader of rows may not fill its storage with them."""
    for right in ("get dataflows/data delays in namespace ns", "create dataflows/copies in namespace other"):
        with pytest.raises(Forbidden, match="anne may not create dataflows/copies in namespace ns"):
            run(run(authenticator(ApiServer(right)).authenticate("Bearer annes")).check_copies("ns"))
    right = "create dataflows/copies in namespace ns"
    run(run(authenticator(ApiServer(right)).authenticate("Bearer annes")).check_copies("ns"))


def test_answers_of_the_api_server_are_cached_for_a_while() -> None:
    """A right that is taken away ends within seconds."""
    clock, server = Clock(), ApiServer("get dataflows/data delays in namespace ns")
    at = authenticator(server, clock)
    for _ in range(3):
        run(see_rows(at, VIEW))
    assert server.asked == ["who", "get dataflows/data delays in namespace ns"]

    server.allowed = ()
    clock.now += recent_answers.TTL_SECONDS + 1
    with pytest.raises(Forbidden):
        run(see_rows(at, VIEW))


def test_an_unknown_token_is_asked_about_once_in_a_while() -> None:
    """Whoever comes again and again with it, also at once, does not reach the API server; and pushes out nobody."""
    clock, server = Clock(), ApiServer("get dataflows/data delays in namespace ns")
    at = authenticator(server, clock)
    run(see_rows(at, VIEW))

    async def many() -> list[BaseException | None]:
        calls = [at.authenticate("Bearer stolen") for _ in range(access.MAX_REVIEWS + 5)]
        return [
            error for error in await asyncio.gather(*calls, return_exceptions=True) if not isinstance(error, Access)
        ]

    for _ in range(2):
        assert [type(error) for error in run(many())] == [Unauthenticated] * (access.MAX_REVIEWS + 5)
    assert server.asked.count("who") <= 1 + access.MAX_REVIEWS
    run(see_rows(at, VIEW))
    asked = len(server.asked)
    run(see_rows(at, VIEW))
    assert len(server.asked) == asked

    clock.now += recent_answers.TTL_SECONDS + 1
    with pytest.raises(Unauthenticated):
        run(at.authenticate("Bearer stolen"))
    assert len(server.asked) == asked + 1


def test_while_the_api_server_is_away_no_new_caller_is_admitted() -> None:
    """It is said that it is away, not that the user may not; and nothing is remembered of it."""
    server = ApiServer("get dataflows/data delays in namespace ns")
    at = authenticator(server)
    server.away = True
    with pytest.raises(ReviewUnavailable, match="the API server cannot review the token now"):
        run(see_rows(at, VIEW))
    server.away = False
    run(see_rows(at, VIEW))


def test_the_cache_of_users_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest answer is forgotten."""
    monkeypatch.setattr(recent_answers, "MAX_ANSWERS", 2)
    server = ApiServer(*(f"get dataflows/data d{n} in namespace ns" for n in range(3)))
    at = authenticator(server)
    for number in (0, 1, 2, 0):
        run(see_rows(at, Parent("Dataflow", f"d{number}")))
    assert server.asked.count("get dataflows/data d0 in namespace ns") == 2


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.1.2.3", "gateway.example", "localhost"])
def test_beyond_loopback_it_listens_with_a_certificate_or_not_at_all(host: str) -> None:
    """Tokens must not be read on their way; a name may mean anything."""
    with pytest.raises(OperatorError, match="clear text: give --gateway-tls"):
        ListenerConfig(host)
    assert [str(ListenerConfig(host, 7)) for host in ("127.0.0.1", "::1")] == ["127.0.0.1:7", "[::1]:7"]


def test_a_certificate_that_is_not_there_is_named(tmp_path: Any) -> None:
    """Before anything listens."""
    with pytest.raises(OperatorError, match=r"tls\.crt cannot be read"):
        TlsFolder(tmp_path).material(SocketPeers())
