"""Users who log in by a password: ServiceAccounts that name a Secret, and Secrets that have the password.

    ServiceAccount team-a/grafana      annotation compute.tidemark.dev/login-secret: grafana-login
    Secret team-a/grafana-login        type compute.tidemark.dev/login, entries username: grafana, password

The ServiceAccount consents: who may write Secrets alone can make no password for it. The Secret consents, too: who may
write ServiceAccounts alone can have no password of another one, nor of something else, taken for theirs.

Every look is two reads, also where there is no such user, and ends in one error. Answers are kept as those of the API
server are (recent_answers.py), keyed by digests. A password that was right when it was last looked at is looked at
whatever failed: nobody who guesses shuts a session out.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import hmac
import logging
import re
import secrets
import time
from collections.abc import Callable

from tidemark_operator.errors import TooMany
from tidemark_operator.gateway.auth.failed_logins import FailedLogins
from tidemark_operator.gateway.auth.recent_answers import MAX_ANSWERS, RecentAnswers
from tidemark_operator.kube.client import SECRETS, SERVICE_ACCOUNTS, ApiError, Body, Kube, Resource
from tidemark_operator.kube.reviews import User, service_account
from tidemark_operator.lru_dict import LruDict
from tidemark_operator.resources.manifest.meta import GROUP
from tidemark_protocol.wire.password_login import PasswordLogin

LOG = logging.getLogger(__name__)
LOGIN_SECRET, LOGIN_TYPE = f"{GROUP}/login-secret", f"{GROUP}/login"
MIN_PASSWORD_BYTES, MAX_PASSWORD_BYTES = 16, 1024
MAX_LOOKS = 4
_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?", re.ASCII)
_NO_OBJECT = (400, 403, 404)
"""Statuses of the API server where there is no such object for this operator: a name that cannot be one, another
namespace than it serves."""


class PasswordLogins:
    """`clock`: monotonic seconds."""

    def __init__(self, kube: Kube, clock: Callable[[], float] = time.monotonic) -> None:
        self._kube = kube
        self._users: RecentAnswers[User] = RecentAnswers(clock)
        self._wrong: RecentAnswers[bool] = RecentAnswers(clock)
        self._right: LruDict[bytes, None] = LruDict(MAX_ANSWERS)
        """Digests of logins that were right when they were looked at last."""
        self._failures = FailedLogins(clock)
        self._looks: dict[bytes, asyncio.Task[User | None]] = {}
        self._slots = asyncio.Semaphore(MAX_LOOKS)
        self._key = secrets.token_bytes(32)

    async def user(self, login: PasswordLogin) -> User | None:
        """The user of a login; None: there is none, or the password is another one.

        Raises:
            TooMany: too many logins of this user, or of all, have failed just now.
            ApiError: the API server does not answer.
        """
        digest = self._digest("\0".join((login.namespace, login.user, login.password)))
        if (known := self._users.get(digest)) is not None or self._wrong.get(digest):
            return known
        if (look := self._looks.get(digest)) is None:
            who, counted = (login.namespace, login.user), digest not in self._right
            if counted and not self._failures.take(who):
                raise TooMany("too many logins by a wrong password: wait a minute")
            look = self._looks[digest] = asyncio.create_task(self._look(digest, login, counted), name="login")
            look.add_done_callback(lambda ended: self._forget(digest, ended))
        return await asyncio.shield(look)

    def _forget(self, digest: bytes, ended: asyncio.Task[User | None]) -> None:
        del self._looks[digest]
        if not ended.cancelled():
            ended.exception()  # the waiting calls get it, if any is left

    async def _look(self, digest: bytes, login: PasswordLogin, counted: bool) -> User | None:
        user, failed = None, False
        try:
            async with self._slots:
                user = await self._find(login)
            failed = user is None
        finally:
            if counted and not failed:
                self._failures.give_back((login.namespace, login.user))
        if user is None:
            self._right.pop(digest, None)
            self._wrong.put(digest, True)
            return None
        self._users.put(digest, user)
        self._right[digest] = None
        return user

    async def _find(self, login: PasswordLogin) -> User | None:
        if not (_NAME.fullmatch(login.namespace) and _NAME.fullmatch(login.user)):
            return None
        account = await self._get(SERVICE_ACCOUNTS, login.namespace, login.user)
        named = _text(((account or {}).get("metadata") or {}).get("annotations"), LOGIN_SECRET)
        is_name = _NAME.fullmatch(named) is not None
        # a user without a login costs as many reads
        secret = await self._get(SECRETS, login.namespace, named if is_name else login.user)
        password, problem = _password(secret if is_name else None, login.user)
        if account is None or not named:
            return None
        if problem:
            # the owner of the ServiceAccount, who gave it a login, cannot see why it has none
            LOG.warning("ServiceAccount %s/%s has no login: %s", login.namespace, login.user, problem)
            return None
        if not hmac.compare_digest(self._digest(password), self._digest(login.password)):
            return None
        return service_account(login.namespace, login.user, account["metadata"].get("uid", ""))

    async def _get(self, resource: Resource, namespace: str, name: str) -> Body | None:
        """The object, unless it is being deleted."""
        try:
            found = await self._kube.get(resource, namespace, name)
        except ApiError as error:
            if error.status in _NO_OBJECT:
                return None
            raise
        return None if found is None or found["metadata"].get("deletionTimestamp") else found

    def _digest(self, text: str) -> bytes:
        """A digest by a key of this process: its memory tells no passwords, and the digests of two texts have one
        length."""
        return hmac.digest(self._key, text.encode(), hashlib.sha256)


def _password(secret: Body | None, user: str) -> tuple[str, str]:
    """The password of a Secret, and why it has none."""
    if secret is None:
        return "", f"the Secret of its annotation {LOGIN_SECRET} does not exist"
    where = f"Secret {secret['metadata']['name']}"
    if secret.get("type") != LOGIN_TYPE:
        return "", f"{where} is not of type {LOGIN_TYPE}"
    if _entry(secret, "username") != user:
        return "", f"the entry username of {where} is not its name"
    password = _entry(secret, "password")
    if not MIN_PASSWORD_BYTES <= len(password.encode()) <= MAX_PASSWORD_BYTES:
        return "", f"the entry password of {where} has not {MIN_PASSWORD_BYTES} to {MAX_PASSWORD_BYTES} bytes of UTF-8"
    return password, ""


def _entry(secret: Body, name: str) -> str:
    """One line end after a value is no part of it. Empty: there is none, or it is no text."""
    try:
        value = base64.b64decode(_text(secret.get("data"), name)).decode()
    except (binascii.Error, UnicodeDecodeError):
        return ""
    return value.removesuffix("\n").removesuffix("\r")


def _text(of: object, name: str) -> str:
    value = of.get(name) if isinstance(of, dict) else None
    return value if isinstance(value, str) else ""
