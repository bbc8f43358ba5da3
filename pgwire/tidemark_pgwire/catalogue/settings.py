"""Settings by name: those that the session keeps, and constants that clients ask for besides."""

from __future__ import annotations

from collections.abc import Mapping

from tidemark_pgwire.catalogue.facts import CatalogueError, SessionFacts

CONSTANTS: Mapping[str, str] = {
    "default_table_access_method": "heap",
    "default_tablespace": "",
    "lc_monetary": "C",
    "lc_numeric": "C",
    "lc_time": "C",
    "transaction_deferrable": "off",
}
_WORDS = {"time_zone": "timezone", "transaction_isolation_level": "transaction_isolation"}
_WRITABLE = frozenset(
    "application_name client_min_messages default_table_access_method default_tablespace escape_string_warning "
    "extra_float_digits jit lock_timeout quote_all_identifiers row_security "
    "search_path".split()
)
"""Settings that have no effect here, so that any value does."""
_VALUE_MAX = 1_024


def settings_of(session: SessionFacts) -> Mapping[str, str]:
    """The settings by name in lower case."""
    return {**CONSTANTS, **{name.lower(): value for name, value in session.parameters.items()}}


def setting(session: SessionFacts, name: str) -> str:
    """Raises CatalogueError: there is no such setting."""
    folded = "_".join(name.lower().split())
    found = settings_of(session).get(_WORDS.get(folded, folded))
    if found is None:
        raise CatalogueError("42704", f'unrecognized configuration parameter "{name[:63]}"')
    return found


def set_setting(session: SessionFacts, name: str, value: str) -> None:
    """Set it as set_config does. Raises CatalogueError: no session may change it."""
    folded = name.lower()
    if setting(session, folded) == value:
        return
    if folded not in _WRITABLE:
        raise CatalogueError("0A000", f'parameter "{folded}" cannot be changed by set_config; use SET')
    if len(value) > _VALUE_MAX:
        raise CatalogueError("54000", f'the value of "{folded}" is longer than {_VALUE_MAX} characters')
    session.parameters[folded] = value
