"""The way from a connection's first bytes to its session.

    TLS at once (sslnegotiation=direct), with ALPN
    SSLRequest ──► S ──► TLS        GSSENCRequest ──► N        CancelRequest ──► a statement of another session ends
    StartupMessage: user, database, settings ──► "the password, please" ──► a token ──► the gateway knows its user
                                                                        ──► another text ──► the user's password

The password goes over TLS only. A plain connection is refused, unless the listener is on loopback and has
--insecure-loopback.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from ssl import SSLContext

from tidemark_pgwire import errors
from tidemark_pgwire.errors import ClientProtocolError, WireError
from tidemark_pgwire.gateway import GatewayLink
from tidemark_pgwire.messages import backend
from tidemark_pgwire.messages.frontend import Cancel, Encryption, Startup, decode_password, decode_startup
from tidemark_pgwire.messages.wire import Wire
from tidemark_protocol.wire.password_login import PasswordLogin, encode

MAX_PASSWORD_BYTES = 32 * 1024
MAX_TOKEN_CHARACTERS = 7_500
"""gRPC takes 8 KiB of metadata with a call."""
MAX_LOGIN_BYTES = 1024
"""A password that is no token, and its user, have so many each, at most."""
FAILURE_SECONDS = 0.5
"""The least time from a password to its refusal: the time tells nobody whether there is such a user."""
ALPN = "postgresql"
_HANDSHAKE = b"\x16"
"""The first byte of TLS."""
_TOKEN = re.compile(r"ey[\w-]+\.[\w-]+\.[\w-]*", re.ASCII)
"""A JWT, as all tokens of Kubernetes for an audience are."""
_NAMESPACE = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", re.ASCII)
_OPTION = re.compile(r"(?:-c\s*|--)(?P<name>[\w.-]+)=(?P<value>(?:\\.|[^\\\s])*)\s*")
_OWN = ("user", "database", "options", "replication")


@dataclass(frozen=True)
class Login:
    """`token`: with which the gateway is called; a password is in the place of one. `user`: as the gateway knows it, of
    the token or password. `settings`: of the client's start."""

    token: str = field(repr=False)
    by_password: bool
    user: str
    namespace: str
    settings: dict[str, str]


async def negotiate(wire: Wire, tls: Callable[[], SSLContext] | None) -> Startup | Cancel:
    """Encrypt the connection, if the client asks for it, or begins with TLS. Raises ClientProtocolError, Gone."""
    if tls is not None and await wire.first_byte() == _HANDSHAKE:
        if wire.has_received:  # it would count as sent over TLS
            raise ClientProtocolError("received unencrypted data before a direct SSL connection request")
        await wire.start_tls(tls())
        if wire.application != ALPN:  # as PostgreSQL: bytes for a server of another protocol are no session
            raise ClientProtocolError(
                "received direct SSL connection request without ALPN protocol negotiation extension"
            )
    for _ in range(3):
        asked = decode_startup(await wire.startup_packet())
        if not isinstance(asked, Encryption):
            return asked
        if not asked.tls or tls is None or wire.encrypted:
            wire.write(b"N")
            continue
        if wire.has_received:  # it would count as sent over TLS
            raise ClientProtocolError("received unencrypted data after SSL request")
        wire.write(b"S")
        await wire.start_tls(tls())
    raise ClientProtocolError("the client asks for encryption again and again")


def require_confidential(wire: Wire, plain_allowed: bool) -> None:
    """Raises WireError where others could read the password on its way."""
    if not (wire.encrypted or plain_allowed):
        raise WireError(
            errors.INVALID_AUTHORIZATION,
            "this server takes connections over TLS only, as clients send the password itself",
            hint="Connect with sslmode=verify-full, or sslmode=require.",
            fatal=True,
        )


async def ask_token(wire: Wire, start: Startup) -> Login:
    """Ask the client for its token or password: a login whose user is not known yet. Raises WireError, Gone."""
    namespace, settings = _namespace(start), _settings(start)
    unknown = [name for name in start.options if name.startswith("_pq_.")]
    if start.minor or unknown:
        wire.write(backend.negotiate_version(unknown))
    wire.write(backend.CLEARTEXT_PASSWORD)
    password, user = decode_password(*await wire.frame(MAX_PASSWORD_BYTES)), start.options.get("user", "")
    token = password.strip()
    if by_password := _TOKEN.fullmatch(token) is None:
        token = encode(PasswordLogin(namespace, user, password))
    size = max(len(password.encode()), len(user.encode())) if by_password else 0
    if not password or size > MAX_LOGIN_BYTES or len(token) > MAX_TOKEN_CHARACTERS:
        raise _refused(by_password)
    return Login(token, by_password, "", namespace, settings)


async def log_in(given: Login, link: GatewayLink) -> Login:
    """Ask the gateway for the user of the token or password. Raises WireError."""
    clock = asyncio.get_running_loop().time
    begun = clock()
    try:
        user = await link.user(given.token)
    except WireError as error:
        if error.sqlstate == errors.INVALID_AUTHORIZATION:
            if given.by_password:
                await asyncio.sleep(max(begun + FAILURE_SECONDS - clock(), 0.0))
            raise _refused(given.by_password) from None
        raise WireError(error.sqlstate, str(error), hint=error.hint, fatal=True) from None
    return replace(given, user=user)


def _refused(by_password: bool) -> WireError:
    text = "password authentication failed" if by_password else "the password is no valid token for the gateway"
    hint = "Make one with: kubectl create token NAME --audience tidemark-gateway"
    if by_password:
        hint = "The user is a ServiceAccount of the namespace that has a login, or the password is a token."
    return WireError(errors.INVALID_PASSWORD, text, hint=hint, fatal=True)


def _namespace(start: Startup) -> str:
    if start.options.get("replication", "false") not in ("false", "off", "no", "0"):
        raise WireError(errors.FEATURE_NOT_SUPPORTED, "replication connections are not supported", fatal=True)
    name = start.options.get("database") or start.options.get("user", "")
    if _NAMESPACE.fullmatch(name) is None:
        raise WireError(
            "3D000",
            f'database "{name:.80}" does not exist: it is the name of a namespace',
            hint="Connect with dbname=NAMESPACE; without it, the name of the user is taken.",
            fatal=True,
        )
    return name


def _settings(start: Startup) -> dict[str, str]:
    """The settings of the message, and of `-c name=value` in its options."""
    found = {name: value for name, value in start.options.items() if name not in _OWN and not name.startswith("_pq_.")}
    text, at = start.options.get("options", "").strip(), 0
    while at < len(text):
        option = _OPTION.match(text, at)
        if option is None:
            raise WireError(errors.SYNTAX_ERROR, f"invalid command-line argument: {text[at:]:.80}", fatal=True)
        found[option["name"].replace("-", "_")] = re.sub(r"\\(.)", r"\1", option["value"])
        at = option.end()
    return found
