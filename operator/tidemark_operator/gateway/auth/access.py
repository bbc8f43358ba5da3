"""Who may ask what: seeing how objects are is one right, seeing the rows in them another.

    authorization: Bearer TOKEN
        the operator's own token            its user, who may read the file it is in, may see everything
        a token for our audience            TokenReview ──► a user of the cluster
                                            SubjectAccessReview ──► per object, get dataflows/data, datasources/data;
                                                                    for copies, create dataflows/copies besides
    no authorization, but a client certificate of the cluster
                                            its subject is the user, of whom is asked as of any other

What the API server said is believed for ten seconds, and a bounded number of such answers is kept; of tokens that
nobody knows, too, and apart from the others, so that they push out nobody. At most REVIEWS questions about tokens are
on their way at a time.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import time
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable
from datetime import UTC, datetime
from typing import Generic, TypeVar

from tidemark_operator.errors import OperatorError
from tidemark_operator.gateway.auth import client_certificates
from tidemark_operator.kube.client import DATA_SOURCES, DATAFLOWS, ApiError, Resource
from tidemark_operator.kube.reviews import Action, Reviews, User
from tidemark_operator.planning.revision import Parent

BELIEVED_SECONDS, ANSWERS, REVIEWS = 10.0, 4096, 8
LONGEST_TOKEN = 16 * 1024
_RESOURCES = {r.kind: r for r in (DATA_SOURCES, DATAFLOWS)}
V = TypeVar("V")


class Unauthenticated(OperatorError):
    """Nobody knows the token, or the certificate is none that tells of anybody now."""


class Forbidden(OperatorError):
    """The user may not do this."""


class Unreviewed(OperatorError):
    """The API server cannot be asked now."""


class Access(ABC):
    """What one caller may do. `caller`: who that is, for others to be told apart."""

    caller: str

    @abstractmethod
    async def check(self, *actions: Action) -> None:
        """Raises Forbidden, naming the first that is not allowed, and Unreviewed."""

    async def see_objects(self, namespace: str) -> None:
        """How Dataflows and DataSources are, not what is in them."""
        await self.check(*(Action("list", r.group, r.plural, namespace) for r in _RESOURCES.values()))

    async def see_rows(self, namespace: str, of: Iterable[Parent]) -> None:
        await self.check(*(_rows(_RESOURCES[parent.kind], namespace, parent.name) for parent in of))

    async def make_copies(self, namespace: str) -> None:
        """Files in the namespace's folder for copies, as many as wanted, which nobody takes away."""
        await self.check(Action("create", DATAFLOWS.group, DATAFLOWS.plural, namespace, subresource="copies"))


def _rows(resource: Resource, namespace: str, name: str) -> Action:
    return Action("get", resource.group, resource.plural, namespace, name, "data")


class Everything(Access):
    """The operator's own user."""

    caller = "the operator's user"

    async def check(self, *actions: Action) -> None:
        """Whatever it is."""


class OfUser(Access):
    def __init__(self, user: User, reviews: Reviews, answers: Recent[bool]) -> None:
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
                    raise Unreviewed(f"what {self._user.name} may do cannot be found out now: {error}") from None
                self._answers.put(key, allowed)
            if not allowed:
                raise Forbidden(f"{self._user.name} may not {action}")


class Doorkeeper:
    """Tells callers by their tokens, or by the certificates that TLS has verified."""

    def __init__(
        self,
        own_token: str,
        reviews: Reviews | None,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._own, self._reviews, self._now = f"Bearer {own_token}".encode(), reviews, now
        self._users: Recent[User] = Recent(clock)
        self._strangers: Recent[bool] = Recent(clock)
        self._turn = asyncio.Semaphore(REVIEWS)
        self._answers: Recent[bool] = Recent(clock)

    async def admit(self, authorization: str) -> Access:
        """Raises Unauthenticated, Unreviewed."""
        if hmac.compare_digest(authorization.encode(), self._own):
            return Everything()
        scheme, _, token = authorization.partition(" ")
        if self._reviews is None or scheme != "Bearer" or not 0 < len(token) <= LONGEST_TOKEN:
            raise Unauthenticated("unknown token")
        return OfUser(await self._user(token, self._reviews), self._reviews, self._answers)

    def admit_holder(self, certificate: bytes) -> Access:
        """Of one that the cluster's authority signed. Raises Unauthenticated."""
        try:
            holder = client_certificates.read(certificate)
        except client_certificates.NotACertificate as error:
            raise Unauthenticated(str(error)) from None
        if not holder.begins <= self._now() <= holder.ends:
            raise Unauthenticated(
                f"the certificate of {holder.user.name} is valid from {holder.begins} to {holder.ends}"
            )
        if self._reviews is None:
            raise Unauthenticated("unknown certificate")
        return OfUser(holder.user, self._reviews, self._answers)

    async def _user(self, token: str, reviews: Reviews) -> User:
        key = hashlib.sha256(token.encode()).digest()
        user = self._users.get(key)
        if user is None and not self._strangers.get(key):
            async with self._turn:
                user = await self._find_out(key, token, reviews)
        if user is None:
            raise Unauthenticated("unknown token, or not one for the audience tidemark-gateway")
        return user

    async def _find_out(self, key: bytes, token: str, reviews: Reviews) -> User | None:
        """Unless another call has, while this one waited for its turn."""
        known = self._users.get(key)
        if known is not None or self._strangers.get(key):
            return known
        try:
            user = await reviews.user(token)
        except ApiError as error:
            raise Unreviewed(f"whose token it is cannot be found out now: {error}") from None
        if user is None:
            self._strangers.put(key, True)
        else:
            self._users.put(key, user)
        return user


class Recent(Generic[V]):
    """Answers that are not older than BELIEVED_SECONDS, the newest ANSWERS of them."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._answers: OrderedDict[Hashable, tuple[float, V]] = OrderedDict()

    def get(self, key: Hashable) -> V | None:
        found = self._answers.get(key)
        return None if found is None or self._clock() - found[0] > BELIEVED_SECONDS else found[1]

    def put(self, key: Hashable, value: V) -> None:
        self._answers[key] = (self._clock(), value)
        self._answers.move_to_end(key)
        if len(self._answers) > ANSWERS:
            self._answers.popitem(last=False)
