"""The user of a client certificate: name and groups as the API server reads them, or none."""

from __future__ import annotations

import asyncio
import base64
from datetime import UTC, datetime, timedelta

import pytest

from tests.authorities import DAY, Authority
from tests.gateway.auth.test_access import ApiServer
from tidemark_operator.gateway.auth.access import Authenticator, Forbidden, Unauthenticated
from tidemark_operator.gateway.auth.client_certificates import InvalidClientCertificate, parse
from tidemark_operator.kube.reviews import Action, Reviews, User

CLUSTER = Authority.named("cluster")


def der_as_pem(der: bytes) -> bytes:
    return b"-----BEGIN CERTIFICATE-----\n" + base64.b64encode(der) + b"\n-----END CERTIFICATE-----\n"


def test_the_common_name_is_the_user_and_organizations_are_groups() -> None:
    """Any text, in the order of the certificate; and the group of all who are known."""
    found = parse(CLUSTER.client("anne", "readers", "dev, ops", "système").certificate)
    assert found.user == User("anne", groups=("readers", "dev, ops", "système", "system:authenticated"))
    assert found.not_before < datetime.now(UTC) < found.not_after


@pytest.mark.parametrize("names", [(), ("",), ("anne", "administrator")])
def test_a_certificate_with_no_or_two_names_has_no_user(names: tuple[str, ...]) -> None:
    """The API server takes no empty name; of two it would take one."""
    with pytest.raises(InvalidClientCertificate, match="one common name"):
        parse(CLUSTER.client(names, "readers").certificate)


def test_anything_cut_short_or_changed_is_a_certificate_or_refused() -> None:
    """Each byte left out from the end, and each byte of the first half another: nothing else is raised."""
    whole = base64.b64decode(b"".join(CLUSTER.client("anne", "readers").certificate.splitlines()[1:-1]))
    for end in range(len(whole)):
        with pytest.raises(InvalidClientCertificate):
            parse(der_as_pem(whole[:end]))
    refused = 0
    for at in range(len(whole) // 2):
        for value in (0x00, 0x80, 0xFF, whole[at] ^ 1):
            try:
                parse(der_as_pem(whole[:at] + bytes([value]) + whole[at + 1 :]))
            except InvalidClientCertificate:
                refused += 1
    assert refused
    for text in (b"", b"-----BEGIN CERTIFICATE-----\n", b"\xff"):
        with pytest.raises(InvalidClientCertificate):
            parse(text)


def test_a_certificate_is_looked_at_with_every_call() -> None:
    """A connection may outlive it: before it begins and after its end its holder is nobody."""
    now = datetime.now(UTC)
    clock = [now]
    door = Authenticator("own", None, now=lambda: clock[0])
    shown = CLUSTER.client("anne", valid=(-DAY, DAY)).certificate
    for moment in (now - 2 * DAY, now + DAY + timedelta(seconds=2)):
        clock[0] = moment
        with pytest.raises(Unauthenticated, match="the client certificate of anne is valid from"):
            door.authenticate_certificate(shown)
    clock[0] = now
    with pytest.raises(Unauthenticated, match="takes no client certificates"):  # nobody can say what anne may do
        door.authenticate_certificate(shown)


def test_a_holder_has_the_rights_that_the_api_server_grants() -> None:
    """Asked of the user and all groups, as for whoever comes with a token."""

    class Judge(ApiServer):
        async def may(self, user: User, action: Action) -> bool:
            self.asked.append(f"{user.name} {' '.join(user.groups)}")
            return action.name == "delays"

    class Asked(Reviews):
        def __init__(self, judge: Judge) -> None:
            self._judge = judge

        async def may(self, user: User, action: Action) -> bool:
            return await self._judge.may(user, action)

    judge = Judge()
    access = Authenticator("own", Asked(judge)).authenticate_certificate(CLUSTER.client("anne", "readers").certificate)
    assert access.caller == "anne"
    asyncio.run(access.check(Action("get", "g", "dataflows", "ns", "delays", "data")))
    with pytest.raises(Forbidden, match="anne may not get dataflows/data other"):
        asyncio.run(access.check(Action("get", "g", "dataflows", "ns", "other", "data")))
    assert judge.asked == ["anne readers system:authenticated"] * 2
