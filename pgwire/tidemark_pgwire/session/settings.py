"""The settings of a session.

    tidemark.as_of      ms since 1970, or a time such as 2026-01-31 12:00: statements read at it; empty: the freshest
    tidemark.strict     on: answers have everything that was ingested when they were asked for
    tidemark.instance   the ComputeInstance where queries with operators run; empty: the only one
    tidemark.wait       on: CREATE and ALTER end once the view serves, DROP once its object is gone
    tidemark.write_key  of the rows that are written: rows that were written with the same key are not written again
    dialect             postgres or spark: whose SQL statements are
    statement_timeout   ms, or with a unit; 0: the server's limit
    idle_in_transaction_session_timeout   the same: how long the client sends nothing in a transaction block
    transaction_timeout                   the same: how long a transaction lasts

The others are PostgreSQL's, and have the values that are true here, or no effect.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

from tidemark_pgwire.errors import ACTIVE_TRANSACTION, INVALID_PARAMETER, NO_ACTIVE_TRANSACTION, WireError
from tidemark_pgwire.statements.lexer import POSTGRES, SPARK

_READ_ONLY, _DEFAULT_READ_ONLY = "transaction_read_only", "default_transaction_read_only"
_WRITE_KEY = "tidemark.write_key"
STATEMENT, IDLE, TRANSACTION = "statement_timeout", "idle_in_transaction_session_timeout", "transaction_timeout"
_TIMEOUTS = (STATEMENT, IDLE, TRANSACTION)
SERVER_VERSION = "15.0"
REPORTED = (
    "server_version server_encoding is_superuser client_encoding application_name DateStyle IntervalStyle TimeZone "
    "integer_datetimes standard_conforming_strings in_hot_standby session_authorization default_transaction_read_only"
).split()
"""The settings whose changes are sent to clients, with PostgreSQL's spelling."""
DEFAULTS = {
    "tidemark.as_of": "",
    "tidemark.strict": "off",
    "tidemark.instance": "",
    "tidemark.wait": "off",
    "tidemark.write_key": "",
    "dialect": POSTGRES,
    **dict.fromkeys(_TIMEOUTS, "0"),
    "application_name": "",
    "client_encoding": "UTF8",
    "datestyle": "ISO, MDY",
    "intervalstyle": "postgres",
    "timezone": "UTC",
    "extra_float_digits": "1",
    "search_path": '"$user", public',
    "client_min_messages": "notice",
    "standard_conforming_strings": "on",
    "bytea_output": "hex",
    "default_transaction_isolation": "repeatable read",
    "transaction_isolation": "repeatable read",
    "default_transaction_read_only": "off",
    "transaction_read_only": "off",
    "default_transaction_deferrable": "off",
    "lock_timeout": "0",
    "escape_string_warning": "on",
    "idle_session_timeout": "0",
    "row_security": "on",
    "jit": "off",
    "geqo": "on",
    "work_mem": "4MB",
    "synchronous_commit": "on",
    "enable_seqscan": "on",
    "xmloption": "content",
    "lc_messages": "C",
    "default_text_search_config": "pg_catalog.simple",
    "max_parallel_workers_per_gather": "0",
    "synchronize_seqscans": "on",
    "quote_all_identifiers": "off",
    "plan_cache_mode": "auto",
}
_FIXED = {
    "server_version": SERVER_VERSION,
    "server_version_num": "150000",
    "server_encoding": "UTF8",
    "is_superuser": "off",
    "integer_datetimes": "on",
    "in_hot_standby": "off",
    "max_identifier_length": "255",
    "lc_collate": "C",
    "lc_ctype": "C",
    "block_size": "8192",
    "max_index_keys": "32",
    "ssl": "on",
}
"""The settings that nobody can set."""
_ONLY = {
    "client_encoding": ("UTF8", "UTF-8", "UNICODE"),
    "bytea_output": ("HEX",),
    "intervalstyle": ("POSTGRES",),
}
"""The only values that are true here."""
_UNITS_MS = {"": 1, "us": 0.001, "ms": 1, "s": 1000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}
_DURATION = re.compile(r"(\d{1,12})\s*+(us|ms|s|min|h|d|)", re.ASCII)
_MAX_TIMEOUT_MS = 2**31 - 1
_MAX_CHARACTERS = 1024
"""The limit for the length of a value."""
_MAX_KEY = 200
BOOLS = {"on": "on", "true": "on", "1": "on", "yes": "on", "off": "off", "false": "off", "0": "off", "no": "off"}


class SessionSettings:
    """`values`: by name in lower case; the same object for as long as the session lasts."""

    def __init__(self, user: str, given: dict[str, str]) -> None:
        """`given`: of the client's start. Raises WireError."""
        self.values = {**DEFAULTS, **_FIXED, "session_authorization": user}
        self._before: dict[str, str] | None = None
        self._local: dict[str, str] = {}
        for name, value in given.items():
            self._put(_DEFAULT_READ_ONLY if name.lower() == _READ_ONLY else name, value)
        self._defaults = dict(self.values)

    def set(self, name: str, value: str | None, local: bool = False) -> None:
        """Raises WireError: there is no such setting, or no such value."""
        name = _changeable_name(name)
        if name == _READ_ONLY:
            local, value = True, self.values[name] if value is None else value
            if self.read_only and _bool(name, value) == "off":
                raise WireError(ACTIVE_TRANSACTION, "transaction read-write mode must be set before any query")
        if local and self._before is None:
            if name == _WRITE_KEY:  # rows that come without their key may come twice
                raise WireError(
                    NO_ACTIVE_TRANSACTION,
                    f"SET LOCAL {_WRITE_KEY} can only be used in transaction blocks",
                    hint="BEGIN first, or SET it for the session.",
                )
            return
        if local:
            self._local.setdefault(name, self.values[name])
        else:
            self._local.pop(name, None)
        self._put(name, self._defaults[name] if value is None else value)

    def reset(self, name: str = "") -> None:
        """Set the named ones to their values at the client's start; empty: all."""
        if name:
            self.set(name, None)
        else:
            self._restore({**self._defaults, _READ_ONLY: self.values[_READ_ONLY]})
            if self._before is None:
                self.values[_READ_ONLY] = self.values[_DEFAULT_READ_ONLY]

    def begin(self, read_only: bool | None = None) -> None:
        """`read_only` None: as `default_transaction_read_only` says."""
        self._before, self._local = dict(self.values), {}
        if read_only is not None:
            self.values[_READ_ONLY] = "on" if read_only else "off"

    def commit(self) -> None:
        self._end(self._local)

    def rollback(self) -> None:
        self._end(self._before or {})

    def _end(self, values: dict[str, str]) -> None:
        self._before, self._local = None, {}
        self._restore(values)
        self.values[_READ_ONLY] = self.values[_DEFAULT_READ_ONLY]

    def reported(self) -> dict[str, str]:
        return {shown: self.values[shown.lower()] for shown in REPORTED}

    # --- the settings that Tidemark reads ---

    @property
    def as_of(self) -> int | None:
        return int(self.values["tidemark.as_of"]) if self.values["tidemark.as_of"] else None

    @property
    def strict(self) -> bool:
        return self.values["tidemark.strict"] == "on"

    @property
    def instance(self) -> str:
        return self.values["tidemark.instance"]

    @property
    def wait(self) -> bool:
        return self.values["tidemark.wait"] == "on"

    @property
    def write_key(self) -> str:
        """Empty: none."""
        return self.values["tidemark.write_key"]

    @property
    def read_only(self) -> bool:
        return self.values[_READ_ONLY] == "on"

    @property
    def dialect(self) -> str:
        return self.values["dialect"]

    @property
    def planned_dialect(self) -> str:
        """The dialect as the planner reads it, with the zone of PostgreSQL's times."""
        has_zone = self.dialect == POSTGRES and self.zone != DEFAULTS["timezone"]
        return f"{self.dialect}, time_zone={self.zone}" if has_zone else self.dialect

    @property
    def zone(self) -> str:
        return self.values["timezone"]

    def seconds(self, name: str) -> float | None:
        """The limit of time that a setting has; None: it has none. The limit of the server holds beside it."""
        return int(self.values[name]) / 1000 or None

    def _put(self, name: str, value: str) -> None:
        name = _changeable_name(name)
        if len(value) > _MAX_CHARACTERS:
            raise _invalid_value(name, value, f"It has at most {_MAX_CHARACTERS} characters.")
        if name == "standard_conforming_strings":
            if _bool(name, value.strip(" '")) != _conforming(self.dialect):
                raise _invalid_value(name, value, "It is on in PostgreSQL's dialect, and off in Spark's.")
            return
        check = _CHECKS.get(name)
        self._restore({name: value if check is None else check(name, value)})
        if name == _DEFAULT_READ_ONLY and self._before is None:
            self.values[_READ_ONLY] = self.values[name]

    def _restore(self, values: dict[str, str]) -> None:
        """Drivers that write literals themselves double backslashes where strings are not standard-conforming."""
        self.values.update(values)
        self.values["standard_conforming_strings"] = _conforming(self.dialect)


def _conforming(dialect: str) -> str:
    """Whether a backslash in a text is itself."""
    return "off" if dialect == SPARK else "on"


def _changeable_name(name: str) -> str:
    """The full name of a setting that a client may change. Raises WireError of any other."""
    name = {"tidemark.dialect": "dialect", "time zone": "timezone"}.get(name.lower(), name.lower())
    if name in _FIXED or name == "session_authorization":
        raise WireError("55P02", f'parameter "{name}" cannot be changed')
    if name not in DEFAULTS:
        raise WireError("42704", f'unrecognized configuration parameter "{name}"')
    return name


def _invalid_value(name: str, value: str, hint: str = "") -> WireError:
    """The error of a value that the setting does not take."""
    return WireError(INVALID_PARAMETER, f'invalid value for parameter "{name}": "{value:.80}"', hint=hint)


def _only(name: str, value: str) -> str:
    if value.strip(" '").upper() not in _ONLY[name]:  # some clients send the quotes
        raise _invalid_value(name, value, f"It can only be {_ONLY[name][0]} here.")
    return DEFAULTS[name]


def _bool(name: str, value: str) -> str:
    if (found := BOOLS.get(value.strip().lower())) is None:
        raise _invalid_value(name, value)
    return found


def _dialect(name: str, value: str) -> str:
    if value.strip().lower() not in (POSTGRES, SPARK):
        raise _invalid_value(name, value, f"It is {POSTGRES} or {SPARK}.")
    return value.strip().lower()


def _datestyle(name: str, value: str) -> str:
    if not value.strip().upper().startswith("ISO"):
        raise _invalid_value(name, value, "It can only be ISO here.")
    return DEFAULTS[name]


def _zone(name: str, value: str) -> str:
    if value.strip().upper() in ("UTC", "GMT", "Z", "ETC/UTC", "0"):
        return "UTC"
    try:
        return ZoneInfo(value.strip()).key
    except (ValueError, OSError, KeyError):
        raise _invalid_value(name, value, "It is a name such as Europe/Berlin.") from None


def _timeout(name: str, value: str) -> str:
    found = _DURATION.fullmatch(value.strip())
    if found is None or int(found[1]) * _UNITS_MS[found[2]] > _MAX_TIMEOUT_MS:
        raise _invalid_value(name, value)
    return str(int(int(found[1]) * _UNITS_MS[found[2]]))


def _as_of(name: str, value: str) -> str:
    text = value.strip()
    if not text or (text.isascii() and text.isdigit() and len(text) < 19):
        return text
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        raise _invalid_value(name, value, "It is milliseconds since 1970, or 2026-01-31 12:00 (UTC).") from None
    time = time.replace(tzinfo=UTC) if time.tzinfo is None else time
    return str(int(time.timestamp() * 1000))


def _name(name: str, value: str) -> str:
    if len(value) > 253:
        raise _invalid_value(name, value)
    return value.strip()


def _key(name: str, value: str) -> str:
    if len(value) > _MAX_KEY or not value.isprintable():
        raise _invalid_value(name, value, f"It has at most {_MAX_KEY} printable characters.")
    return value


_CHECKS: dict[str, Callable[[str, str], str]] = {
    **dict.fromkeys(_ONLY, _only),
    **dict.fromkeys((_READ_ONLY, _DEFAULT_READ_ONLY, "tidemark.strict", "tidemark.wait"), _bool),
    "tidemark.as_of": _as_of,
    "tidemark.instance": _name,
    "tidemark.write_key": _key,
    "dialect": _dialect,
    "datestyle": _datestyle,
    "timezone": _zone,
    **dict.fromkeys(_TIMEOUTS, _timeout),
}
