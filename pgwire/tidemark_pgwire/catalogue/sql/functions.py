"""PostgreSQL's functions as macros of DuckDB, with the types of their results.

A statement may call these functions and those of `NATIVE` alone. A macro reads names and definitions in a lookup: a
variable of DuckDB's session that holds a map, `getvariable('types')[oid]`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sqlglot import exp

SAME, ARRAY, ELEMENT = "=", "[]", "."
"""Results with the type of the first argument, of an array of it, of its elements."""


@dataclass(frozen=True)
class CatalogueFunction:
    """`result`: a type of pg_type, or one of the signs above. `bodies`: of the macro, one for each number of arguments;
    empty: DuckDB has the function under `native`. `lookups`: the lookups that the bodies read."""

    result: str
    bodies: tuple[str, ...] = ()
    lookups: tuple[str, ...] = ()
    native: str = ""


def _macro(result: str, *bodies: str, lookups: str = "") -> CatalogueFunction:
    return CatalogueFunction(result, bodies, tuple(lookups.split()))


def _native(result: str, name: str) -> CatalogueFunction:
    return CatalogueFunction(result, native=name)


def _lookup(result: str, name: str, more: str = "") -> CatalogueFunction:
    """A macro that looks its first argument up. `more`: further arguments that may be left out one after the other."""
    bodies = []
    for count in range(len(more.split()) + 1):
        arguments = ", ".join(("k", *more.split()[:count]))
        bodies.append(f"({arguments}) AS getvariable('{name}')[k]")
    return _macro(result, *bodies, lookups=name)


def _constant(result: str, value: str, *arities: int) -> CatalogueFunction:
    """`value`: NULL where there is nothing of the kind."""
    return _macro(result, *(f"({', '.join('abcdefgh'[:n])}) AS {value}" for n in arities))


def _privilege(granted: str, *arguments: str) -> CatalogueFunction:
    """Whether one of the privileges `p` is `granted`."""
    found = f"regexp_matches(upper(p), '(^|,)\\s*({granted})\\s*(,|$)')"
    return _macro("bool", *(f"({each}) AS CASE WHEN p IS NOT NULL THEN {found} END" for each in arguments))


_SIZE = "CASE WHEN abs(n) < 10240 THEN concat(n::BIGINT, ' bytes') {steps} END"
_STEPS = " ".join(
    f"WHEN abs(n) < {10_240 * 1_024**power} THEN concat((n::BIGINT + {1_024**power // 2}) // {1_024**power}, ' {unit}')"
    for power, unit in enumerate(("kB", "MB", "GB", "TB"), 1)
)
_TYPE_NAME = """CASE
    WHEN k IS NULL THEN NULL WHEN k = 0 THEN '-'
    WHEN k IN (1700, 1231) AND m >= 4
        THEN concat('numeric(', (m - 4) >> 16, ',', (m - 4) & 2047, ')', CASE WHEN k = 1231 THEN '[]' ELSE '' END)
    WHEN k IN (1043, 1042) AND m >= 4
        THEN concat(CASE WHEN k = 1043 THEN 'character varying(' ELSE 'character(' END, m - 4, ')')
    ELSE coalesce(getvariable('types')[k], '???') END"""


def _oid_text_macro(lookup: str) -> CatalogueFunction:
    """The function that gives the name of an oid, as `oid::regclass` prints it."""
    body = f"CASE WHEN k = 0 THEN '-' ELSE coalesce(getvariable('{lookup}')[k], k::VARCHAR) END"
    return _macro("text", f"(k) AS {body}", lookups=lookup)


_QUOTED = (
    "CASE WHEN regexp_matches({k}, '^[a-z_][a-z0-9_$]*$') AND getvariable('reserved')[{k}] IS NULL"
    " THEN {k} ELSE concat('\"', replace({k}, '\"', '\"\"'), '\"') END"
)


def _formatted(number: int, name: str) -> str:
    """The argument for the place `number` of a format: a name where it is `%I`, a literal where it is `%L`."""
    place = f"regexp_extract_all(t, '%[sIL]')[{number}]"
    literal = f"concat('''', replace({name}::VARCHAR, '''', ''''''), '''')"
    quoted = _QUOTED.format(k=f"{name}::VARCHAR")
    return f"CASE {place} WHEN '%I' THEN {quoted} WHEN '%L' THEN {literal} ELSE coalesce({name}::VARCHAR, '') END"


_FORMAT = (
    "CASE WHEN regexp_full_match(t, '([^%]|%[sIL])*', 's') THEN replace(replace(t, '%I', '%s'), '%L', '%s')"
    " ELSE error('format reads %s, %I and %L alone here, without widths and positions') END"
)
"""The macro for printf, whose widths would make texts of any length."""


def _format() -> CatalogueFunction:
    bodies = []
    for names in (("a",), ("a", "b"), ("a", "b", "c")):
        values = ", ".join(_formatted(number, name) for number, name in enumerate(names, 1))
        bodies.append(f"({', '.join(('t', *names))}) AS printf({_FORMAT}, {values})")
    return _macro("text", *bodies, lookups="reserved")


_NO_DEFINITIONS = (
    "pg_get_partkeydef pg_get_partition_constraintdef pg_get_statisticsobjdef pg_get_statisticsobjdef_columns "
    "pg_get_functiondef pg_get_function_result pg_get_function_arguments pg_get_function_identity_arguments "
    "pg_get_function_sqlbody".split()
)
_NO_NUMBERS = (
    "pg_sequence_last_value pg_table_size pg_indexes_size pg_total_relation_size pg_database_size pg_tablespace_size "
    "pg_stat_get_numscans pg_stat_get_tuples_inserted".split()
)
FUNCTIONS: Mapping[str, CatalogueFunction] = {
    # types
    "format_type": _macro("text", f"(k, m) AS {_TYPE_NAME}", lookups="types"),
    "pg_typeof": _constant("regtype", "NULL", 1),
    "to_regclass": _lookup("regclass", "class_oids"),
    "to_regtype": _lookup("regtype", "type_oids"),
    "to_regnamespace": _lookup("regnamespace", "schema_oids"),
    "to_regrole": _lookup("regrole", "role_oids"),
    "to_regproc": _lookup("regproc", "function_oids"),
    "show_regclass": _oid_text_macro("classes"),
    "show_regtype": _oid_text_macro("types"),
    "show_regproc": _oid_text_macro("functions"),
    "show_regnamespace": _oid_text_macro("schemas"),
    "show_regrole": _oid_text_macro("roles"),
    # objects that are visible without their schema
    "pg_table_is_visible": _lookup("bool", "visible"),
    "pg_type_is_visible": _lookup("bool", "visible_types"),
    **{
        f"pg_{kind}_is_visible": _macro("bool", "(k) AS k IS NOT NULL OR NULL")
        for kind in "function operator opclass opfamily conversion collation statistics_obj ts_config ts_dict "
        "ts_parser ts_template".split()
    },
    # definitions and comments
    "pg_get_userbyid": _macro(
        "name", "(k) AS coalesce(getvariable('roles')[k], concat('unknown (OID=', k, ')'))", lookups="roles"
    ),
    "pg_get_expr": _macro("text", "(a, b) AS a::VARCHAR", "(a, b, c) AS a::VARCHAR"),
    "pg_get_indexdef": _macro(
        "text",
        "(k) AS getvariable('index_definitions')[k]",
        "(k, n, p) AS CASE WHEN n = 0 THEN getvariable('short_index_definitions')[k]"
        " ELSE getvariable('index_columns')[concat(k, '/', n)] END",
        lookups="index_definitions index_columns short_index_definitions",
    ),
    "pg_get_constraintdef": _lookup("text", "constraint_definitions", "pretty"),
    "pg_get_viewdef": _lookup("text", "view_definitions", "pretty"),
    **dict.fromkeys(("pg_get_ruledef", "pg_get_triggerdef"), _constant("text", "NULL", 1, 2)),
    **dict.fromkeys(_NO_DEFINITIONS, _constant("text", "NULL", 1)),
    "pg_get_serial_sequence": _constant("text", "NULL", 2),
    "obj_description": _constant("text", "NULL", 1, 2),
    "shobj_description": _constant("text", "NULL", 2),
    "col_description": _constant("text", "NULL", 2),
    # rights: a user may read what is listed, and nothing else
    "has_table_privilege": _privilege("SELECT", "t, p", "u, t, p"),
    "has_any_column_privilege": _privilege("SELECT", "t, p", "u, t, p"),
    "has_column_privilege": _privilege("SELECT", "t, c, p", "u, t, c, p"),
    "has_schema_privilege": _privilege("USAGE", "s, p", "u, s, p"),
    "has_database_privilege": _privilege("CONNECT", "d, p", "u, d, p"),
    "has_type_privilege": _privilege("USAGE", "t, p", "u, t, p"),
    "has_function_privilege": _privilege("EXECUTE", "f, p", "u, f, p"),
    "has_language_privilege": _privilege("USAGE", "l, p", "u, l, p"),
    **{
        f"has_{kind}_privilege": _privilege("NONE", "s, p", "u, s, p")
        for kind in ("sequence", "tablespace", "foreign_data_wrapper", "server")
    },
    "pg_has_role": _constant("bool", "FALSE", 2, 3),
    # the server
    "setting_of": _macro("text", "(k) AS getvariable('settings')[lower(k)]", lookups="settings"),
    "pg_encoding_to_char": _macro("name", "(k) AS CASE WHEN k = 6 THEN 'UTF8' ELSE '' END"),
    "pg_char_to_encoding": _macro("int4", "(k) AS CASE WHEN upper(k) IN ('UTF8', 'UTF-8') THEN 6 ELSE -1 END"),
    "getdatabaseencoding": _constant("name", "'UTF8'", 0),
    "pg_client_encoding": _constant("name", "'UTF8'", 0),
    "pg_is_in_recovery": _constant("bool", "FALSE", 0),
    "pg_is_wal_replay_paused": _constant("bool", "FALSE", 0),
    "pg_my_temp_schema": _constant("oid", "0", 0),
    "pg_is_other_temp_schema": _constant("bool", "FALSE", 1),
    "pg_relation_is_publishable": _constant("bool", "FALSE", 1),
    "pg_relation_is_updatable": _constant("int4", "0", 2),
    "pg_column_is_updatable": _constant("bool", "FALSE", 3),
    "pg_tablespace_location": _constant("text", "''", 1),
    "pg_relation_size": _constant("int8", "NULL", 1, 2),
    **dict.fromkeys(_NO_NUMBERS, _constant("int8", "NULL", 1)),
    "pg_size_pretty": _macro("text", f"(n) AS {_SIZE.format(steps=_STEPS)}"),
    "pg_advisory_unlock_all": _constant("void", "NULL", 0),
    "age": _constant("int4", "0", 1),  # the age of an xid
    "inet_server_addr": _constant("inet", "NULL", 0),
    "inet_server_port": _constant("int4", "NULL", 0),
    # arrays
    "array_length": _macro("int4", "(a, d) AS CASE WHEN d = 1 AND len(a) > 0 THEN len(a) END"),
    "array_upper": _macro("int4", "(a, d) AS CASE WHEN d = 1 AND len(a) > 0 THEN len(a) END"),
    "array_lower": _macro("int4", "(a, d) AS CASE WHEN d = 1 AND len(a) > 0 THEN 1 END"),
    "array_upper_of_vector": _macro("int4", "(a, d) AS CASE WHEN d = 1 AND len(a) > 0 THEN len(a) - 1 END"),
    "array_lower_of_vector": _macro("int4", "(a, d) AS CASE WHEN d = 1 AND len(a) > 0 THEN 0 END"),
    "array_ndims": _macro("int4", "(a) AS CASE WHEN len(a) > 0 THEN 1 END"),
    "cardinality": _macro("int4", "(a) AS len(a)"),
    "array_to_string": _macro(
        "text",
        "(a, s) AS array_to_string(a::VARCHAR[], s)",
        "(a, s, n) AS array_to_string(list_transform(a::VARCHAR[], lambda x: coalesce(x, n)), s)",
    ),
    "array_position": _macro("int4", "(a, v) AS list_position(a, v)"),
    "array_remove": _macro(SAME, "(a, v) AS list_filter(a, lambda x: x IS DISTINCT FROM v)"),
    "string_to_array": _macro("_text", "(k, s) AS CASE WHEN k = '' THEN [] ELSE string_split(k, s) END"),
    "array_append": _native(SAME, "list_append"),
    "array_cat": _native(SAME, "list_concat"),
    "subscripts": _macro("int4", "(a) AS unnest(generate_series(1, len(a)))"),
    "subscripts_of_vector": _macro("int4", "(a) AS unnest(generate_series(0, len(a) - 1))"),
    "_pg_expandarray": _macro("record", "(a) AS unnest(list_transform(a, lambda x, i: struct_pack(x := x, n := i)))"),
    "aclexplode": _macro(
        "record",
        "(a) AS unnest([]::STRUCT(grantor BIGINT, grantee BIGINT, privilege_type VARCHAR, is_grantable BOOLEAN)[])",
    ),
    # texts
    "quote_ident": _macro(
        "text",
        f"(k) AS CASE WHEN k IS NOT NULL THEN {_QUOTED.format(k='k')} END",
        lookups="reserved",
    ),
    "quote_literal": _macro("text", "(k) AS concat('''', replace(k, '''', ''''''), '''')"),
    "json_build_object": _native("json", "json_object"),
    "format": _format(),
    "octet_length": _macro("int4", "(k) AS octet_length(encode(k))"),
    "every": _native("bool", "bool_and"),
}
"""The functions by PostgreSQL's names. The rewriting alone calls names that PostgreSQL lacks: `show_regclass`."""

NATIVE: Mapping[type[exp.Expression], str] = {
    exp.Abs: SAME,
    exp.And: "bool",
    exp.Array: ARRAY,
    exp.ArrayAgg: ARRAY,
    exp.Case: SAME,
    exp.Cast: SAME,
    exp.Ceil: SAME,
    exp.Coalesce: SAME,
    exp.Concat: "text",
    exp.ConcatWs: "text",
    exp.Count: "int8",
    exp.DenseRank: "int8",
    exp.Exists: "bool",
    exp.Explode: ELEMENT,
    exp.ExplodingGenerateSeries: "int4",
    exp.Floor: SAME,
    exp.Greatest: SAME,
    exp.GroupConcat: "text",
    exp.If: SAME,
    exp.Least: SAME,
    exp.Left: "text",
    exp.Length: "int4",
    exp.LogicalAnd: "bool",
    exp.LogicalOr: "bool",
    exp.Lower: "text",
    exp.MD5: "text",
    exp.Max: SAME,
    exp.Min: SAME,
    exp.Mod: SAME,
    exp.Nullif: SAME,
    exp.Or: "bool",
    exp.Rank: "int8",
    exp.RegexpILike: "bool",
    exp.RegexpLike: "bool",
    exp.RegexpReplace: "text",
    exp.Replace: "text",
    exp.Right: "text",
    exp.RowNumber: "int8",
    exp.SplitPart: "text",
    exp.StartsWith: "bool",
    exp.StrPosition: "int4",
    exp.Substring: "text",
    exp.Sum: "int8",
    exp.Trim: "text",
    exp.Unnest: ELEMENT,
    exp.Upper: "text",
}
"""Functions that mean the same in DuckDB, by sqlglot's class."""

CALLED: Mapping[type[exp.Expression], str] = {
    exp.ArrayAppend: "array_append",
    exp.ArrayConcat: "array_cat",
    exp.ArrayPosition: "array_position",
    exp.ArrayRemove: "array_remove",
    exp.ArraySize: "array_length",
    exp.ArrayToString: "array_to_string",
    exp.CurrentCatalog: "current_database",
    exp.CurrentDatabase: "current_database",
    exp.CurrentRole: "current_user",
    exp.CurrentSchema: "current_schema",
    exp.CurrentSchemas: "current_schemas",
    exp.CurrentTimestamp: "now",
    exp.CurrentUser: "current_user",
    exp.CurrentVersion: "version",
    exp.Format: "format",
    exp.SessionUser: "session_user",
    exp.StringToArray: "string_to_array",
}
"""PostgreSQL's name of a function that sqlglot has a class for."""


def name_of(call: exp.Expression) -> str:
    """PostgreSQL's name of a function that is called, in lower case; empty: it has a class of sqlglot's alone."""
    if isinstance(call, exp.Anonymous):
        return str(call.name).lower()
    return CALLED.get(type(call), "")


def arguments_of(call: exp.Expression) -> list[exp.Expression]:
    """The arguments of a call, in PostgreSQL's order."""
    if isinstance(call, exp.Anonymous):
        return list(call.expressions)
    found: list[exp.Expression] = []
    for value in call.args.values():
        found.extend(v for v in (value if isinstance(value, list) else [value]) if isinstance(v, exp.Expression))
    return found
