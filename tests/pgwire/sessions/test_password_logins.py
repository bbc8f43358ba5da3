"""Logins by passwords: a real API server has the ServiceAccounts, Secrets and rights; the clients are libpq's."""

from __future__ import annotations

import asyncio
import base64
import dataclasses
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.kube.api_requests import ApiRequests
from tests.pgwire.served import NAMESPACE, Served, served
from tests.waiting import until
from tidemark_devcluster.control_plane.control_plane import ControlPlane
from tidemark_operator.gateway.auth import failed_logins, recent_answers
from tidemark_operator.gateway.auth.access import Authenticator
from tidemark_operator.gateway.auth.failed_logins import FailedLogins, FailureAllowance
from tidemark_operator.gateway.auth.password_logins import LOGIN_SECRET, LOGIN_TYPE, PasswordLogins
from tidemark_operator.kube.client import SECRETS, SERVICE_ACCOUNTS, Body, Kube, Resource
from tidemark_operator.kube.reviews import Action, Reviews, User
from tidemark_pgwire.session.session import SessionLimits
from tidemark_protocol.wire.password_login import PasswordLogin, encode

pytestmark = pytest.mark.cluster

PASSWORD, OTHER = "correct-horse-battery", "staple-battery-horse"
RBAC = "rbac.authorization.k8s.io"
ROWS = [{"apiGroups": ["compute.tidemark.dev"], "resources": ["datasources/data"], "verbs": ["get"]}]
WRONG = "password authentication failed"


class CountedKube(Kube):
    """`reads`: the kinds that were read. `silent`: no answer comes."""

    silent = False

    def __init__(self, kube: Kube) -> None:
        super().__init__(kube.api)
        self.reads: list[str] = []

    async def get(self, resource: Resource, namespace: str, name: str) -> Body | None:
        self.reads.append(resource.kind)
        if self.silent:
            self.api.configuration.host, held = "https://127.0.0.1:1", self.api.configuration.host
            try:
                return await super().get(resource, namespace, name)
            finally:
                self.api.configuration.host = held
        return await super().get(resource, namespace, name)


class LoginPlace:
    """A server before a gateway that asks a real API server who logs in, and what they may do."""

    def __init__(self, plane: ControlPlane, server: Served) -> None:
        self.requests, self.server = ApiRequests(plane.kubeconfig), server
        self._opened = Kube.connect(plane.kubeconfig)
        self.kube = CountedKube(server.loop.run(self._opened.__aenter__()))
        self.logins = PasswordLogins(self.kube)
        server.gateway._authenticator = Authenticator("own", Reviews(self.kube), logins=self.logins)

    def close(self) -> None:
        self.server.loop.run(self._opened.__aexit__(None, None, None))

    def create(self, path: str, name: str, more: Body, annotations: Body | None = None) -> None:
        body = {"metadata": {"name": name, "annotations": annotations or {}}, **more}
        status, document = self.requests.send("POST", path, body)
        assert status == 201, document

    def account(self, name: str, secret: str | None, namespace: str = NAMESPACE) -> None:
        annotations = {LOGIN_SECRET: secret} if secret is not None else {}
        self.create(f"/api/v1/namespaces/{namespace}/serviceaccounts", name, {}, annotations)

    def secret(
        self, name: str, username: str, password: str = PASSWORD, namespace: str = NAMESPACE, kind: str = LOGIN_TYPE
    ) -> None:
        entries = {"username": username, "password": password}
        data = {key: base64.b64encode(value.encode()).decode() for key, value in entries.items()}
        self.create(f"/api/v1/namespaces/{namespace}/secrets", name, {"type": kind, "data": data})

    def delete(self, resource: Resource, name: str) -> None:
        status, document = self.requests.send("DELETE", resource.path(NAMESPACE, name))
        assert status == 200, document

    def reads_rows(self, name: str) -> None:
        """The rows of every DataSource of the namespace."""
        root = f"/apis/{RBAC}/v1/namespaces/{NAMESPACE}"
        self.create(f"{root}/roles", name, {"rules": ROWS})
        role = {"apiGroup": RBAC, "kind": "Role", "name": name}
        subjects = [{"kind": "ServiceAccount", "name": name, "namespace": NAMESPACE}]
        self.create(f"{root}/rolebindings", name, {"roleRef": role, "subjects": subjects})
        user = User(f"system:serviceaccount:{NAMESPACE}:{name}")
        reads = Action("get", "compute.tidemark.dev", "datasources", NAMESPACE, "s", "data")
        until(lambda: self.server.loop.run(Reviews(self.kube).may(user, reads)))

    def refused(self, user: str, password: str = PASSWORD, **more: Any) -> str:
        with pytest.raises(psycopg.OperationalError) as failed:
            self.server.connect(user=user, password=password, **more)
        return str(failed.value)

    def logs_in(self, user: str, password: str = PASSWORD) -> str:
        with self.server.connect(user=user, password=password) as connection:
            return str(connection.info.parameter_status("session_authorization"))


@contextmanager
def place_of(plane: ControlPlane, folder: Path) -> Iterator[LoginPlace]:
    """In a namespace of its own, whose objects go with the test."""
    requests = ApiRequests(plane.kubeconfig)
    if requests.send("GET", f"/api/v1/namespaces/{NAMESPACE}")[0] == 404:
        requests.create_namespace(NAMESPACE)
    with served(folder, limits=SessionLimits(token_seconds=0.1)) as server:
        place = LoginPlace(plane, server)
        try:
            yield place
        finally:
            place.close()
            core, rbac = ("/api/v1", ("secrets", "serviceaccounts")), (f"/apis/{RBAC}/v1", ("roles", "rolebindings"))
            for namespace in (NAMESPACE, "elsewhere"):
                for path, kinds in (core, rbac):
                    for kind in kinds:
                        requests.send("DELETE", f"{path}/namespaces/{namespace}/{kind}")


@pytest.fixture
def place(control_plane: ControlPlane, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LoginPlace]:
    """Nothing that the API server said is kept."""
    monkeypatch.setattr(recent_answers, "TTL_SECONDS", 0.0)
    with place_of(control_plane, tmp_path) as made:
        yield made


def test_a_login_is_its_service_account_and_has_the_rights_of_it(place: LoginPlace) -> None:
    for name in ("reader", "nobody"):
        place.account(name, f"{name}-login")
        place.secret(f"{name}-login", name, PASSWORD + "\n")
    place.reads_rows("reader")
    with place.server.connect(user="reader", password=PASSWORD) as connection:
        assert connection.info.parameter_status("session_authorization") == "system:serviceaccount:ns:reader"
        assert connection.execute("SELECT a FROM s.a").fetchall() == [(1,), (2,), (3,)]
    with (
        place.server.connect(user="nobody", password=PASSWORD) as connection,
        pytest.raises(psycopg.errors.InsufficientPrivilege, match="system:serviceaccount:ns:nobody may not"),
    ):
        connection.execute("SELECT a FROM s.a")


def test_the_user_is_the_one_of_the_tokens(place: LoginPlace) -> None:
    place.account("reader", "login")
    place.secret("login", "reader")
    path = f"{SERVICE_ACCOUNTS.path(NAMESPACE, 'reader')}/token"
    made = place.requests.send("POST", path, {"spec": {"audiences": ["tidemark-gateway"]}})[1]["status"]["token"]
    by_token = place.server.loop.run(Reviews(place.kube).user(made))
    by_password = place.server.loop.run(place.logins.user(PasswordLogin(NAMESPACE, "reader", PASSWORD)))
    assert by_token is not None
    assert by_password is not None
    assert by_password == dataclasses.replace(by_token, groups=by_password.groups, extra=())
    assert set(by_password.groups) == set(by_token.groups)
    with place.server.connect(user="whoever", password=made) as connection:
        assert connection.info.parameter_status("session_authorization") == by_password.name


def test_all_that_is_no_login_is_refused_alike(place: LoginPlace, caplog: pytest.LogCaptureFixture) -> None:
    """By one text, with as many reads, and not at once. Neither the ServiceAccount nor the Secret makes one alone."""
    caplog.set_level(0)
    place.account("right", "right-login")
    place.secret("right-login", "right")
    place.account("silent", None)
    place.secret("silent", "silent")
    for name in ("another", "short", "other-type", "missing"):
        place.account(name, name if name != "another" else "right-login")
    place.account("odd", "No/Name")
    place.secret("odd", "odd")
    place.secret("short", "short", "fifteen-letters")
    place.secret("other-type", "other-type", kind="Opaque")
    if place.requests.send("GET", "/api/v1/namespaces/elsewhere")[0] == 404:
        place.requests.create_namespace("elsewhere")
    place.account("right", "there", "elsewhere")
    place.secret("there", "right", OTHER, "elsewhere")
    tried = [("right", OTHER), ("right", PASSWORD + " "), ("silent", PASSWORD), ("another", PASSWORD)]
    tried += [("short", "fifteen-letters"), ("other-type", PASSWORD), ("missing", PASSWORD), ("odd", PASSWORD)]
    tried += [("unknown", PASSWORD), ("../right", PASSWORD), ("RIGHT", PASSWORD), ("elsewhere/right", OTHER)]
    texts, reads = set[str](), list[list[str]]()
    for user, password in tried:
        place.kube.reads.clear()
        began = time.monotonic()
        texts.add(place.refused(user, password).partition("failed: FATAL:")[2])
        assert time.monotonic() - began > 0.5
        reads.append(list(place.kube.reads))
    assert len(texts) == 1
    assert WRONG in texts.pop()
    assert reads[:9] == [["ServiceAccount", "Secret"]] * 9
    assert place.logs_in("right") == "system:serviceaccount:ns:right"
    with place.server.connect(user="right", password=OTHER, dbname="elsewhere") as connection:
        assert connection.info.parameter_status("session_authorization") == "system:serviceaccount:elsewhere:right"
    for told in ("short", "other-type", "missing", "another", "odd"):
        assert f"ServiceAccount ns/{told} has no login: " in caplog.text
    for password in (PASSWORD, OTHER, "fifteen-letters"):
        assert password not in caplog.text
        assert encode(PasswordLogin(NAMESPACE, "right", password)).partition("~")[2] not in caplog.text
    assert PASSWORD not in repr(PasswordLogin(NAMESPACE, "right", PASSWORD))


@pytest.mark.parametrize("gone", ["rotated", "Secret", "ServiceAccount", "annotation"])
def test_a_session_ends_once_its_password_is_none_any_more(place: LoginPlace, gone: str) -> None:
    """Also one that asks for nothing."""
    place.account("reader", "login")
    place.secret("login", "reader")
    with place.server.connect(user="reader", password=PASSWORD) as connection:
        if gone == "annotation":
            account = SERVICE_ACCOUNTS.path(NAMESPACE, "reader")
            body = place.requests.send("GET", account)[1]
            body["metadata"]["annotations"] = {}
            assert place.requests.send("PUT", account, body)[0] == 200
        else:
            resource, name = (SERVICE_ACCOUNTS, "reader") if gone == "ServiceAccount" else (SECRETS, "login")
            place.delete(resource, name)
        if gone == "rotated":
            place.secret("login", "reader", OTHER)
        until(lambda: not place.server.loop.call(lambda: len(place.server.server._connections)))
        with pytest.raises(psycopg.OperationalError, match="password is not valid any more"):
            connection.execute("SELECT 1")
    assert WRONG in place.refused("reader")
    if gone == "rotated":
        assert place.logs_in("reader", OTHER) == "system:serviceaccount:ns:reader"


def test_sessions_go_on_while_the_api_server_is_away_and_nobody_else_comes(place: LoginPlace) -> None:
    """Such a login does not count as one that failed."""
    place.account("reader", "login")
    place.secret("login", "reader")
    with place.server.connect(user="reader", password=PASSWORD) as connection:
        place.kube.silent = True
        for _ in range(12):
            assert "the API server cannot tell users by their passwords now" in place.refused("reader")
        place.kube.silent = False
        assert connection.execute("SHOW dialect").fetchone() is not None
    assert place.logs_in("reader") == "system:serviceaccount:ns:reader"


def test_failed_logins_of_a_user_and_of_all_are_bounded(place: LoginPlace, monkeypatch: pytest.MonkeyPatch) -> None:
    """A user who logged in before goes on, as do other users, and those by tokens."""
    monkeypatch.setattr(failed_logins, "OF_USER", FailureAllowance(2, 1e6))
    monkeypatch.setattr(failed_logins, "OF_ALL", FailureAllowance(4, 1e6))
    place.logins._failures = FailedLogins(time.monotonic)
    for name in ("first", "second", "late"):
        place.account(name, f"{name}-login")
        place.secret(f"{name}-login", name)
    for _ in range(5):
        assert place.logs_in("first")
    for number in range(2):
        assert WRONG in place.refused("first", f"{number} is not the password")
    for user in ("first", "unknown", "unknown"):
        place.refused(user, "another is not the password")
    assert "too many logins by a wrong password" in place.refused("unknown", "nor is that the password")
    assert "too many logins by a wrong password" in place.refused("first", "nor is that the password")
    assert place.logs_in("first")
    assert "too many logins by a wrong password" in place.refused("late")  # of all
    place.logins._failures._all.count = 0.0
    assert place.logs_in("late")
    assert place.logs_in("second")


def test_one_look_answers_all_that_wait(control_plane: ControlPlane, tmp_path: Path) -> None:
    """Many sessions of a pool log in at a time, and count once; what was said holds for a moment."""
    with place_of(control_plane, tmp_path) as place:
        place.account("reader", "login")
        place.secret("login", "reader")
        login = PasswordLogin(NAMESPACE, "reader", PASSWORD)

        async def many() -> list[User | None]:
            return await asyncio.gather(*(place.logins.user(login) for _ in range(50)))

        assert {user and user.name for user in place.server.loop.run(many())} == {"system:serviceaccount:ns:reader"}
        wrong = dataclasses.replace(login, password=OTHER)
        assert [place.server.loop.run(place.logins.user(wrong)) for _ in range(50)] == [None] * 50
        assert place.kube.reads == ["ServiceAccount", "Secret"] * 2
        assert not place.logins._looks


def test_without_tls_the_password_is_not_asked_for(place: LoginPlace) -> None:
    place.account("reader", "login")
    place.secret("login", "reader")
    assert "over TLS only" in place.refused("reader", sslmode="disable")
    assert place.kube.reads == []


def test_a_gateway_that_takes_no_passwords_reads_no_secrets(place: LoginPlace) -> None:
    place.account("reader", "login")
    place.secret("login", "reader")
    place.server.gateway._authenticator = Authenticator("own", Reviews(place.kube))
    assert WRONG in place.refused("reader")
    assert place.kube.reads == []
