"""Rows of pg_catalog about the server and the session: types, roles, the database, settings."""

from __future__ import annotations

from collections.abc import Iterator

from tidemark_pgwire.catalogue.contents.entries import KEYWORDS, OWNER_OID, SCHEMA_OIDS, CatalogueContents
from tidemark_pgwire.catalogue.contents.rows import Row
from tidemark_pgwire.catalogue.system_relations import PG_CATALOG
from tidemark_pgwire.values.system_types import CatalogueType, system_types

UTF8, TABLESPACE = 6, 1_663
_SYSTEM = SCHEMA_OIDS[PG_CATALOG]
_FUNCTIONS = "typinput typoutput typreceive typsend typmodin typmodout typsubscript typanalyze".split()
_KEYWORD_KINDS = {
    "C": "unreserved (cannot be function or type name)",
    "R": "reserved",
    "T": "reserved (can be function or type name)",
    "U": "unreserved",
}
_RANGES = (
    (3_904, 23, 4_451, 1_978), (3_906, 1_700, 4_532, 3_125), (3_908, 1_114, 4_533, 3_128),
    (3_910, 1_184, 4_534, 3_127), (3_912, 1_082, 4_535, 3_122), (3_926, 20, 4_536, 3_124),
)  # fmt: skip
"""The range's oid, its element's, its multirange's, its operator class."""
OPERATOR_CLASSES = (
    ("array_ops", 10_000, 397, 2_277), ("bool_ops", 10_003, 424, 16), ("bytea_ops", 10_006, 428, 17),
    ("date_ops", 3_122, 434, 1_082), ("float4_ops", 10_012, 1_970, 700), ("float8_ops", 3_123, 1_970, 701),
    ("int2_ops", 1_979, 1_976, 21), ("int4_ops", 1_978, 1_976, 23), ("int8_ops", 3_124, 1_976, 20),
    ("numeric_ops", 3_125, 1_988, 1_700), ("text_ops", 3_126, 1_994, 25), ("timestamp_ops", 3_128, 434, 1_114),
    ("timestamptz_ops", 3_127, 434, 1_184),
)  # fmt: skip
"""Name, oid, family, and the type that they order."""


def system_type_rows() -> Iterator[Row]:
    for one in system_types().values():
        yield _type(one)


def _type(one: CatalogueType) -> Row:
    functions = {column: oid for column, (oid, _) in zip(_FUNCTIONS, one.functions, strict=True)}
    return {
        "oid": one.oid, "typname": one.name, "typnamespace": _SYSTEM, "typowner": OWNER_OID, "typlen": one.length,
        "typbyval": one.by_value, "typtype": one.kind, "typcategory": one.category, "typispreferred": one.preferred,
        "typisdefined": True, "typdelim": one.delimiter, "typelem": one.element, "typarray": one.array,
        "typalign": one.alignment, "typstorage": one.storage, "typtypmod": -1, "typcollation": one.collation,
        **functions,
    }  # fmt: skip


def ranges(contents: CatalogueContents) -> Iterator[Row]:
    for range, element, multirange, operators in _RANGES:
        yield {"rngtypid": range, "rngsubtype": element, "rngmultitypid": multirange, "rngsubopc": operators}


def functions(contents: CatalogueContents) -> Iterator[Row]:
    """The functions that types have for their input and output; there are no others."""
    for oid, name in contents.functions.items():
        yield {
            "oid": oid, "proname": name, "pronamespace": _SYSTEM, "proowner": OWNER_OID, "prolang": 12, "procost": 1.0,
            "prokind": "f", "proisstrict": True, "provolatile": "i", "proparallel": "s", "prosrc": name,
        }  # fmt: skip


def access_methods(contents: CatalogueContents) -> Iterator[Row]:
    yield {"oid": 2, "amname": "heap", "amtype": "t"}
    yield {"oid": 403, "amname": "btree", "amtype": "i"}


def operator_classes(contents: CatalogueContents) -> Iterator[Row]:
    for name, oid, family, type in OPERATOR_CLASSES:
        yield {
            "oid": oid, "opcmethod": 403, "opcname": name, "opcnamespace": _SYSTEM, "opcowner": OWNER_OID,
            "opcfamily": family, "opcintype": type, "opcdefault": True,
        }  # fmt: skip


def collations(contents: CatalogueContents) -> Iterator[Row]:
    for oid, name, provider, rules in ((100, "default", "d", None), (950, "C", "c", "C"), (951, "POSIX", "c", "POSIX")):
        yield {
            "oid": oid, "collname": name, "collnamespace": _SYSTEM, "collowner": OWNER_OID, "collprovider": provider,
            "collisdeterministic": True, "collencoding": -1, "collcollate": rules, "collctype": rules,
        }  # fmt: skip


def languages(contents: CatalogueContents) -> Iterator[Row]:
    yield {"oid": 12, "lanname": "internal", "lanowner": OWNER_OID}


def databases(contents: CatalogueContents) -> Iterator[Row]:
    """The session's alone: other namespaces are not named."""
    yield {
        "oid": contents.database_oid, "datname": contents.session.database, "datdba": OWNER_OID, "encoding": UTF8,
        "datlocprovider": "c", "datallowconn": True, "datconnlimit": -1, "dattablespace": TABLESPACE,
        "datcollate": "C", "datctype": "C",
    }  # fmt: skip


def tablespaces(contents: CatalogueContents) -> Iterator[Row]:
    yield {"oid": TABLESPACE, "spcname": "pg_default", "spcowner": OWNER_OID}


def roles(contents: CatalogueContents) -> Iterator[Row]:
    for oid, name in contents.roles.items():
        yield {
            "oid": oid, "rolname": name, "rolsuper": False, "rolinherit": True, "rolcreaterole": False,
            "rolcreatedb": False, "rolcanlogin": oid == contents.user_oid, "rolreplication": False,
            "rolconnlimit": -1, "rolpassword": "********", "rolbypassrls": False,
        }  # fmt: skip


def users(contents: CatalogueContents) -> Iterator[Row]:
    yield {
        "usename": contents.session.user, "usesysid": contents.user_oid, "usecreatedb": False, "usesuper": False,
        "userepl": False, "usebypassrls": False, "passwd": "********",
    }  # fmt: skip


def settings(contents: CatalogueContents) -> Iterator[Row]:
    for name, value in sorted(contents.settings.items()):
        yield {
            "name": name, "setting": value, "context": "user", "vartype": "string", "source": "default",
            "boot_val": value, "reset_val": value, "pending_restart": False,
        }  # fmt: skip


def keywords(contents: CatalogueContents) -> Iterator[Row]:
    for code, words in KEYWORDS.items():
        for word in words:
            yield {"word": word, "catcode": code, "barelabel": True, "catdesc": _KEYWORD_KINDS[code]}


def activity(contents: CatalogueContents) -> Iterator[Row]:
    """This session alone."""
    session = contents.session
    host, _, port = session.address.rpartition(":")
    yield {
        "datid": contents.database_oid, "datname": session.database, "pid": session.backend_pid,
        "usesysid": contents.user_oid, "usename": session.user, "state": "active", "backend_type": "client backend",
        "application_name": contents.settings.get("application_name", ""),
        "client_addr": host.strip("[]") or None, "client_port": int(port) if port.isdigit() else None,
    }  # fmt: skip
