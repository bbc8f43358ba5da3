"""Authentication and rights. Listing objects is one right, reading their rows is another.

    authorization: Bearer TOKEN
        the operator's own token            every right: only the operator's user can read the token's file
        a token for our audience            TokenReview ──► a user of the cluster
        a login by password                 ServiceAccount, Secret ──► the same (password_logins.py); never over HTTP
                                            SubjectAccessReview ──► per object, get dataflows/data, datasources/data;
                                                                    to see publish.locations, get computeinstances;
                                                                    for copies, create dataflows/copies besides;
                                                                    to let files go, update datasources/files;
                                                                    to insert, change or delete rows, create, update
                                                                    or delete datasources/rows;
                                                                    to delete retained tables, delete dataflows/tables;
                                                                    to create, edit or delete a Dataflow, create, patch
                                                                    or delete dataflows; of a DataSource datasources
    no authorization, but a client certificate of the cluster
                                            its subject is the user, whose rights are reviewed as above

Answers of the API server are cached (recent_answers.py). Unknown tokens have a cache of
their own, so they never evict known users. At most MAX_REVIEWS token reviews run at a time.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from datetime import UTC, datetime

from tidemark_operator.errors import OperatorError, QueryRefused
from tidemark_operator.gateway.auth import client_certificates
from tidemark_operator.gateway.auth.password_logins import PasswordLogins
from tidemark_operator.gateway.auth.recent_answers import RecentAnswers
from tidemark_operator.kube.client import DATA_SOURCES, DATAFLOWS, INSTANCES, ApiError, Resource
from tidemark_operator.kube.reviews import Action, Reviews, User
from tidemark_operator.planning.revision import Parent
from tidemark_protocol.wire.password_login import PasswordLogin, decode, is_login

LOG = logging.getLogger(__name__)
MAX_REVIEWS = 8
MAX_TOKEN_CHARACTERS = 16 * 1024
WRITE_VERBS = {"insert": "create", "upsert": "update", "update": "update", "delete": "delete"}
_RESOURCES = {r.kind: r for r in (DATA_SOURCES, DATAFLOWS)}


class Unauthenticated(OperatorError):
    """The token is unknown, or the client certificate is invalid or not valid now."""


class Forbidden(OperatorError):
    """The user lacks a right; the message names it."""


class ReviewUnavailable(OperatorError):
    """The API server does not answer, so the caller or its rights cannot be checked now."""


class Access(ABC):
    """The rights of one caller. `caller`: its name, the key of its share in every queue."""

    caller: str

    @abstractmethod
    async def check(self, *actions: Action) -> None:
        """Check that every action is allowed.

        Raises:
            Forbidden: an action is not allowed; the message names the first one.
            ReviewUnavailable: the API server does not answer.
        """

    async def check_objects(self, namespace: str) -> None:
        """Check the right to list Dataflows and DataSources: their state, not their rows. Raises as `check`."""
        await self.check(*(Action("list", r.group, r.plural, namespace) for r in _RESOURCES.values()))

    async def sees_instance(self, namespace: str, name: str) -> bool:
        """Whether the caller may get the ComputeInstance, and so read its fields. Raises ReviewUnavailable."""
        try:
            await self.check(Action("get", INSTANCES.group, INSTANCES.plural, namespace, name))
        except Forbidden:
            return False
        return True

    async def check_rows(self, namespace: str, of: Iterable[Parent]) -> None:
        """Check the right to read the rows of these objects. Raises as `check`."""
        await self.check(*(_rows(_RESOURCES[parent.kind], namespace, parent.name) for parent in of))

    async def check_copies(self, namespace: str) -> None:
        """Check the right to write copies: files that nothing removes. Raises as `check`."""
        await self.check(Action("create", DATAFLOWS.group, DATAFLOWS.plural, namespace, subresource="copies"))

    async def check_files(self, namespace: str, source: str) -> None:
        """Check the right to have files of a DataSource let go or read again: that changes its rows. Raises as
        `check`."""
        await self.check(Action("update", DATA_SOURCES.group, DATA_SOURCES.plural, namespace, source, "files"))

    async def check_write(self, namespace: str, source: str, operation: str) -> None:
        """Check the right to do `operation` with rows of a DataSource. Raises as `check`, and QueryRefused."""
        if (verb := WRITE_VERBS.get(operation)) is None:
            raise QueryRefused(f"operation {operation!r:.40} is not of {', '.join(WRITE_VERBS)}")
        await self.check(Action(verb, DATA_SOURCES.group, DATA_SOURCES.plural, namespace, source, "rows"))

    async def check_definition(self, resource: Resource, namespace: str, verb: str, name: str = "") -> None:
        """Check the right to create, patch or delete a Dataflow or DataSource. `name`: empty to create, as for the API
        server. Raises as `check`."""
        await self.check(Action(verb, resource.group, resource.plural, namespace, name))

    async def check_tables(self, namespace: str) -> None:
        """Check the right to delete tables that no object has, of DataSources too. Raises as `check`."""
        await self.check(Action("delete", DATAFLOWS.group, DATAFLOWS.plural, namespace, subresource="tables"))


def _rows(resource: Resource, namespace: str, name: str) -> Action:
    return Action("get", resource.group, resource.plural, namespace, name, "data")


class FullAccess(Access):
    """The operator's own user has every right."""

    caller = "the operator's user"

    async def check(self, *actions: Action) -> None:
        """Nothing is refused."""


class UserAccess(Access):
    """The rights of a cluster's user, as SubjectAccessReviews give them."""

    def __init__(self, user: User, reviews: Reviews, answers: RecentAnswers[bool]) -> None:
        self._user, self._reviews, self._answers = user, reviews, answers
        self.caller = user.name

    async def check(self, *actions: Action) -> None:
        for action in actions:
            key = (self._user, action)
            allowed = self._answers.get(key)
            if allowed is None:
                try:
                    allowed = await self._reviews.may(self._user, action)
                except ApiError as error:
                    raise ReviewUnavailable(
                        f"the API server cannot review the rights of {self._user.name} now: {error}"
                    ) from None
                self._answers.put(key, allowed)
            if not allowed:
                raise Forbidden(f"{self._user.name} may not {action}")


class Authenticator:
    """Authenticates callers by their tokens or passwords, or by client certificates that TLS has verified. `logins`
    None: no passwords are taken."""

    def __init__(
        self,
        own_token: str,
        reviews: Reviews | None,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        logins: PasswordLogins | None = None,
    ) -> None:
        self._own, self._reviews, self._logins, self._now = own_token.encode(), reviews, logins, now
        self._users: RecentAnswers[User] = RecentAnswers(clock)
        self._unknown_tokens: RecentAnswers[bool] = RecentAnswers(clock)
        self._review_slots = asyncio.Semaphore(MAX_REVIEWS)
        self._answers: RecentAnswers[bool] = RecentAnswers(clock)

    async def authenticate(self, authorization: str, passwords: bool = True) -> Access:
        """The rights of the holder of a token, or of a password. `authorization`: the header's value; `passwords`:
        whether this caller takes them. A text that is meant as a login is never reviewed as a token, whatever is wrong
        with it: audit logs may keep what is reviewed.

        Raises:
            Unauthenticated: the token is unknown, or for another audience; the password is wrong.
            ReviewUnavailable: the API server does not answer.
            TooMany: too many passwords were wrong.
        """
        known = authorization if authorization.isascii() else ""  # HTTP's may have bytes that are no text
        scheme, _, token = known.partition(" ")
        token = token.strip()
        login = decode(token) if len(token) <= MAX_TOKEN_CHARACTERS else None
        # a client of PostgreSQL may send the operator's own token, which has not the form of others
        own = (login.password if login is not None else token).encode()
        if login is not None and not passwords:
            raise Unauthenticated("passwords are for the PostgreSQL protocol alone: send a token")
        if scheme == "Bearer" and hmac.compare_digest(own, self._own):
            return FullAccess()
        if self._reviews is None or scheme != "Bearer" or not 0 < len(token) <= MAX_TOKEN_CHARACTERS:
            raise Unauthenticated("the call has no known token: send `authorization: Bearer TOKEN`")
        if login is None and is_login(token):
            raise Unauthenticated("the user or the password is wrong")
        user = await (self._user(token, self._reviews) if login is None else self._user_of_login(login))
        return UserAccess(user, self._reviews, self._answers)

    def authenticate_certificate(self, certificate: bytes) -> Access:
        """The rights of the subject of a certificate (PEM) that TLS has verified. Raises Unauthenticated."""
        try:
            holder = client_certificates.parse(certificate)
        except client_certificates.InvalidClientCertificate as error:
            raise Unauthenticated(str(error)) from None
        if not holder.not_before <= self._now() <= holder.not_after:
            raise Unauthenticated(
                f"the client certificate of {holder.user.name} is valid from {holder.not_before} to "
                f"{holder.not_after}, "
                "not now: use another one"
            )
        if self._reviews is None:
            raise Unauthenticated("this gateway takes no client certificates: use a token")
        return UserAccess(holder.user, self._reviews, self._answers)

    async def _user_of_login(self, login: PasswordLogin) -> User:
        try:
            user = await self._logins.user(login) if self._logins is not None else None
        except ApiError as error:
            # the client is not known, and the error may name the Secret
            LOG.warning("ServiceAccounts and Secrets of logins cannot be read: %s", error)
            raise ReviewUnavailable("the API server cannot tell users by their passwords now") from None
        if user is None:
            raise Unauthenticated("the user or the password is wrong")
        return user

    async def _user(self, token: str, reviews: Reviews) -> User:
        key = hashlib.sha256(token.encode()).digest()
        user = self._users.get(key)
        if user is None and not self._unknown_tokens.get(key):
            async with self._review_slots:
                user = await self._review_token(key, token, reviews)
        if user is None:
            raise Unauthenticated("the token is unknown, or not for the audience tidemark-gateway")
        return user

    async def _review_token(self, key: bytes, token: str, reviews: Reviews) -> User | None:
        """Review the token, unless another call did so while this one waited. None: it is unknown."""
        known = self._users.get(key)
        if known is not None or self._unknown_tokens.get(key):
            return known
        try:
            user = await reviews.user(token)
        except ApiError as error:
            raise ReviewUnavailable(f"the API server cannot review the token now: {error}") from None
        if user is None:
            self._unknown_tokens.put(key, True)
        else:
            self._users.put(key, user)
        return user
