"""The questions of drivers about the catalogue, in our own words: shorter than theirs, with each construct that theirs
have.

psql is not here: the tests run it. A statement is `(text, parameters)`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

Statements = Sequence[tuple[str, tuple[str | None, ...]]]


_VISIBLE = """pg_catalog.pg_class JOIN pg_catalog.pg_namespace
    ON pg_catalog.pg_namespace.oid = pg_catalog.pg_class.relnamespace
    WHERE pg_catalog.pg_class.relkind = ANY (ARRAY[$1::VARCHAR, $2::VARCHAR])
      AND pg_catalog.pg_class.relpersistence != $3::VARCHAR
      AND pg_catalog.pg_table_is_visible(pg_catalog.pg_class.oid) AND pg_catalog.pg_namespace.nspname != $4::VARCHAR"""

SQLALCHEMY: Statements = [
    ("select current_schema()", ()),
    ("show standard_conforming_strings", ()),
    (
        "SELECT pg_catalog.pg_namespace.nspname FROM pg_catalog.pg_namespace"
        " WHERE (pg_catalog.pg_namespace.nspname NOT LIKE $1::VARCHAR || '%' ESCAPE '/')"
        " ORDER BY pg_catalog.pg_namespace.nspname",
        ("pg/_",),
    ),
    (f"SELECT pg_catalog.pg_class.relname FROM {_VISIBLE}", ("r", "p", "t", "pg_catalog")),
    (f"SELECT pg_catalog.pg_class.relname FROM {_VISIBLE}", ("v", "m", "t", "pg_catalog")),
    (
        """SELECT pg_catalog.pg_attribute.attname AS name,
            pg_catalog.format_type(pg_catalog.pg_attribute.atttypid, pg_catalog.pg_attribute.atttypmod) AS format_type,
            CASE WHEN pg_catalog.pg_attribute.atthasdef THEN
                (SELECT pg_catalog.pg_get_expr(pg_catalog.pg_attrdef.adbin, pg_catalog.pg_attrdef.adrelid) AS expr_1
                 FROM pg_catalog.pg_attrdef WHERE pg_catalog.pg_attrdef.adrelid = pg_catalog.pg_attribute.attrelid
                 AND pg_catalog.pg_attrdef.adnum = pg_catalog.pg_attribute.attnum) ELSE NULL END AS "default",
            pg_catalog.pg_attribute.attnotnull AS not_null, pg_catalog.pg_class.relname AS table_name,
            pg_catalog.pg_description.description AS comment,
            CASE WHEN (pg_catalog.pg_attribute.attidentity != $1::VARCHAR) THEN
                (SELECT json_build_object($2::VARCHAR, pg_catalog.pg_sequence.seqstart) AS object_1
                 FROM pg_catalog.pg_sequence WHERE pg_catalog.pg_sequence.seqrelid = CAST(CAST(
                    pg_catalog.pg_get_serial_sequence(CAST(CAST(pg_catalog.pg_attribute.attrelid AS REGCLASS) AS TEXT),
                    pg_catalog.pg_attribute.attname) AS REGCLASS) AS OID)) ELSE NULL END AS identity_options
        FROM pg_catalog.pg_class
        LEFT OUTER JOIN pg_catalog.pg_attribute ON pg_catalog.pg_class.oid = pg_catalog.pg_attribute.attrelid
            AND pg_catalog.pg_attribute.attnum > $3::SMALLINT AND NOT pg_catalog.pg_attribute.attisdropped
        LEFT OUTER JOIN pg_catalog.pg_description
            ON pg_catalog.pg_description.objoid = pg_catalog.pg_attribute.attrelid
            AND pg_catalog.pg_description.objsubid = pg_catalog.pg_attribute.attnum
        JOIN pg_catalog.pg_namespace ON pg_catalog.pg_namespace.oid = pg_catalog.pg_class.relnamespace
        WHERE pg_catalog.pg_class.relkind = ANY (ARRAY[$4::VARCHAR, $5::VARCHAR, $6::VARCHAR])
            AND pg_catalog.pg_table_is_visible(pg_catalog.pg_class.oid) AND pg_catalog.pg_namespace.nspname = 'public'
        ORDER BY pg_catalog.pg_class.relname, pg_catalog.pg_attribute.attnum""",
        ("", "start", "0", "r", "v", "m"),
    ),
    (
        """SELECT attr.conrelid, array_agg(CAST(attr.attname AS TEXT) ORDER BY attr.ord) AS cols, attr.conname,
            min(attr.description) AS description, bool_and(attr.indnullsnotdistinct) AS nulls
        FROM (SELECT con.conrelid, con.conname, con.description, con.ord, con.indnullsnotdistinct,
                pg_catalog.pg_attribute.attname
            FROM pg_catalog.pg_attribute JOIN (
                SELECT pg_catalog.pg_constraint.conrelid AS conrelid, pg_catalog.pg_constraint.conname AS conname,
                    unnest(pg_catalog.pg_index.indkey) AS attnum,
                    generate_subscripts(pg_catalog.pg_index.indkey, $1::INTEGER) AS ord,
                    pg_catalog.pg_index.indnullsnotdistinct, pg_catalog.pg_description.description
                FROM pg_catalog.pg_constraint
                JOIN pg_catalog.pg_index ON pg_catalog.pg_constraint.conindid = pg_catalog.pg_index.indexrelid
                LEFT OUTER JOIN pg_catalog.pg_description
                    ON pg_catalog.pg_description.objoid = pg_catalog.pg_constraint.oid
                    AND pg_catalog.pg_description.classoid = CAST($2 AS REGCLASS)
                WHERE pg_catalog.pg_constraint.contype = $3::VARCHAR
                    AND pg_catalog.pg_constraint.conrelid >= 16384) AS con
            ON pg_catalog.pg_attribute.attnum = con.attnum AND pg_catalog.pg_attribute.attrelid = con.conrelid) AS attr
        GROUP BY attr.conrelid, attr.conname ORDER BY attr.conrelid, attr.conname""",
        ("1", "pg_constraint", "p"),
    ),
    (
        """SELECT pg_catalog.pg_index.indrelid, pg_catalog.pg_class.relname, pg_catalog.pg_index.indisunique,
            pg_catalog.pg_constraint.conrelid IS NOT NULL AS has_constraint, pg_catalog.pg_index.indoption,
            pg_catalog.pg_class.reloptions, cols.elements, cols.opclasses, NULL AS nothing
        FROM pg_catalog.pg_index
        JOIN pg_catalog.pg_class ON pg_catalog.pg_index.indexrelid = pg_catalog.pg_class.oid
        LEFT OUTER JOIN (SELECT one.indexrelid, min(one.indrelid) AS min_1,
                array_agg(one.element ORDER BY one.ord) AS elements,
                array_agg(one.opclass ORDER BY one.ord) AS opclasses
            FROM (SELECT idx.indexrelid, idx.indrelid, idx.ord,
                    CASE WHEN (idx.attnum = $1::INTEGER)
                        THEN pg_catalog.pg_get_indexdef(idx.indexrelid, idx.ord + $2::INTEGER, $3)
                        ELSE CAST(pg_catalog.pg_attribute.attname AS TEXT) END AS element,
                    CAST(idx.opclass AS BIGINT) AS opclass
                FROM (SELECT pg_catalog.pg_index.indexrelid, pg_catalog.pg_index.indrelid,
                        unnest(pg_catalog.pg_index.indkey) AS attnum, unnest(pg_catalog.pg_index.indclass) AS opclass,
                        generate_subscripts(pg_catalog.pg_index.indkey, $4::INTEGER) AS ord
                    FROM pg_catalog.pg_index WHERE pg_catalog.pg_index.indrelid >= 16384) AS idx
                LEFT OUTER JOIN pg_catalog.pg_attribute ON pg_catalog.pg_attribute.attnum = idx.attnum
                    AND pg_catalog.pg_attribute.attrelid = idx.indrelid) AS one
            GROUP BY one.indexrelid) AS cols ON pg_catalog.pg_index.indexrelid = cols.indexrelid
        LEFT OUTER JOIN pg_catalog.pg_constraint
            ON pg_catalog.pg_index.indexrelid = pg_catalog.pg_constraint.conindid
            AND pg_catalog.pg_constraint.contype = ANY (ARRAY[$5::VARCHAR, $6::VARCHAR])
        WHERE pg_catalog.pg_index.indrelid >= 16384 AND pg_catalog.pg_class.relnamespace = 2200
        ORDER BY pg_catalog.pg_class.relname""",
        ("0", "1", "t", "1", "p", "u"),
    ),
    (
        """SELECT con.conname, pg_catalog.pg_get_constraintdef(con.oid, $1) AS definition
        FROM pg_catalog.pg_constraint con WHERE con.contype = 'f' AND con.conrelid = 'orders'::regclass""",
        ("t",),
    ),
    (
        "SELECT relname, CASE WHEN pg_am.amname != current_setting($1) THEN pg_am.amname END AS method"
        " FROM pg_class LEFT JOIN pg_am ON pg_class.relam = pg_am.oid WHERE relnamespace = 2200 AND relkind = 'r'",
        ("default_table_access_method",),
    ),
]

PSYCOPG: Statements = [
    (
        "SELECT typname AS name, oid, typarray AS array_oid, oid::regtype::text AS regtype, typdelim AS delimiter"
        " FROM pg_type t WHERE t.oid = to_regtype($1) ORDER BY t.oid",
        (name,),
    )
    for name in ("int4", "text[]", "timestamp with time zone", "hstore", "orders")
] + [
    (
        """SELECT name, oid, array_oid, regtype, array_agg(label) AS labels FROM (
            SELECT t.typname AS name, t.oid AS oid, t.typarray AS array_oid, t.oid::regtype::text AS regtype,
                e.enumlabel AS label
            FROM pg_type t LEFT JOIN pg_enum e ON e.enumtypid = t.oid WHERE t.oid = to_regtype($1)
            ORDER BY e.enumsortorder) x GROUP BY name, oid, array_oid, regtype""",
        ("int4",),
    ),
    (
        """SELECT t.typname AS name, t.oid, coalesce(a.fnames, '{}') AS field_names, coalesce(a.ftypes, '{}') AS types
        FROM pg_type t LEFT JOIN (
            SELECT attrelid, array_agg(attname) AS fnames, array_agg(atttypid) AS ftypes FROM (
                SELECT a.attrelid, a.attname, a.atttypid FROM pg_attribute a JOIN pg_type t ON t.typrelid = a.attrelid
                WHERE t.oid = to_regtype($1) AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum) x
            GROUP BY attrelid) a ON a.attrelid = t.typrelid
        WHERE t.oid = to_regtype($1)""",
        ("totals",),
    ),
    (
        "SELECT t.typname AS name, r.rngsubtype AS subtype_oid FROM pg_type t JOIN pg_range r ON t.oid = r.rngtypid"
        " WHERE t.oid = to_regtype($1)",
        ("int4range",),
    ),
]

ASYNCPG: Statements = [
    (
        """WITH RECURSIVE tree(oid, ns, name, kind, elemtype, elemdelim, attrtypoids, attrnames, depth) AS (
            SELECT ti.oid, ti.ns, ti.name, ti.kind, ti.elemtype, ti.elemdelim, ti.attrtypoids, ti.attrnames, 0
            FROM (SELECT t.oid AS oid, ns.nspname AS ns, t.typname AS name, t.typtype AS kind, t.typelem AS elemtype,
                    e.typdelim AS elemdelim,
                    (CASE WHEN t.typtype = 'c' THEN (SELECT array_agg(ia.atttypid ORDER BY ia.attnum)
                        FROM pg_attribute ia INNER JOIN pg_class c ON (ia.attrelid = c.oid)
                        WHERE ia.attnum > 0 AND NOT ia.attisdropped AND c.reltype = t.oid) ELSE NULL END)
                        AS attrtypoids,
                    (CASE WHEN t.typtype = 'c' THEN (SELECT array_agg(ia.attname::text ORDER BY ia.attnum)
                        FROM pg_attribute ia INNER JOIN pg_class c ON (ia.attrelid = c.oid)
                        WHERE ia.attnum > 0 AND NOT ia.attisdropped AND c.reltype = t.oid) ELSE NULL END) AS attrnames
                FROM pg_catalog.pg_type AS t INNER JOIN pg_catalog.pg_namespace ns ON (ns.oid = t.typnamespace)
                LEFT JOIN pg_type e ON (t.typlen = -1 AND t.typelem != 0 AND t.typelem = e.oid)) AS ti
            WHERE ti.oid = any($1::oid[])
            UNION ALL
            SELECT ti.oid, ti.ns, ti.name, ti.kind, ti.elemtype, ti.elemdelim, ti.attrtypoids, ti.attrnames,
                tt.depth + 1
            FROM (SELECT t.oid AS oid, ns.nspname AS ns, t.typname AS name, t.typtype AS kind, t.typelem AS elemtype,
                    NULL::"char" AS elemdelim, NULL::oid[] AS attrtypoids, NULL::text[] AS attrnames
                FROM pg_catalog.pg_type AS t INNER JOIN pg_catalog.pg_namespace ns ON (ns.oid = t.typnamespace)) ti,
                tree tt
            WHERE (tt.elemtype IS NOT NULL AND ti.oid = tt.elemtype)
               OR (tt.attrtypoids IS NOT NULL AND ti.oid = any(tt.attrtypoids)))
        SELECT DISTINCT *, elemtype::regtype::text AS elemtype_name FROM tree ORDER BY depth DESC""",
        (oids,),
    )
    for oids in ("{1009}", "{1009,1231}", "{}")
] + [
    (
        "SELECT t.oid, t.typelem AS elemtype, t.typtype AS kind FROM pg_catalog.pg_type AS t"
        " INNER JOIN pg_catalog.pg_namespace ns ON (ns.oid = t.typnamespace) WHERE t.typname = $1 AND ns.nspname = $2",
        ("_text", "pg_catalog"),
    ),
]

_JDBC_KIND = """CASE n.nspname ~ '^pg_' OR n.nspname = 'information_schema'
    WHEN true THEN CASE WHEN n.nspname = 'pg_catalog' THEN CASE c.relkind WHEN 'r' THEN 'SYSTEM TABLE' ELSE NULL END
        ELSE CASE c.relkind WHEN 'r' THEN 'TEMPORARY TABLE' ELSE NULL END END
    WHEN false THEN CASE c.relkind WHEN 'r' THEN 'TABLE' WHEN 'i' THEN 'INDEX' WHEN 'v' THEN 'VIEW'
        WHEN 'm' THEN 'MATERIALIZED VIEW' ELSE NULL END ELSE NULL END"""
JDBC: Statements = [
    ("SELECT current_catalog", ()),
    ("SELECT datname AS \"TABLE_CAT\" FROM pg_catalog.pg_database WHERE datname = 'shop' ORDER BY datname", ()),
    (
        """SELECT nspname AS "TABLE_SCHEM", current_database() AS "TABLE_CATALOG" FROM pg_catalog.pg_namespace
        WHERE nspname <> 'pg_toast' AND (nspname !~ '^pg_temp_' OR nspname = (pg_catalog.current_schemas(true))[1])
        AND (nspname !~ '^pg_toast_temp_'
            OR nspname = replace((pg_catalog.current_schemas(true))[1], 'pg_temp_', 'pg_toast_temp_'))
        AND nspname LIKE E'pub%' ORDER BY "TABLE_SCHEM" """,
        (),
    ),
    (
        f"""SELECT current_database() AS "TABLE_CAT", n.nspname AS "TABLE_SCHEM", c.relname AS "TABLE_NAME",
            {_JDBC_KIND} AS "TABLE_TYPE", d.description AS "REMARKS", '' as "TYPE_CAT", '' as "SELF_REFERENCING"
        FROM pg_catalog.pg_namespace n, pg_catalog.pg_class c
        LEFT JOIN pg_catalog.pg_description d
            ON (c.oid = d.objoid AND d.objsubid = 0 and d.classoid = 'pg_class'::regclass)
        WHERE c.relnamespace = n.oid AND n.nspname LIKE 'public' AND c.relname LIKE 'to\\_%' ESCAPE '\\'
            AND (false OR (c.relkind = 'r' AND n.nspname !~ '^pg_') OR (c.relkind = 'm'))
        ORDER BY "TABLE_TYPE", "TABLE_SCHEM", "TABLE_NAME" """,
        (),
    ),
    (
        f"""SELECT n.nspname, c.relname, {_JDBC_KIND} AS kind FROM pg_catalog.pg_namespace n
        JOIN pg_catalog.pg_class c ON c.relnamespace = n.oid WHERE n.nspname = 'public'""",
        (),
    ),
    (
        """SELECT * FROM (SELECT current_database() AS current_database, n.nspname, c.relname, a.attname, a.atttypid,
            a.attnotnull OR (t.typtype = 'd' AND t.typnotnull) AS attnotnull, a.atttypmod, a.attlen, t.typtypmod,
            row_number() OVER (PARTITION BY a.attrelid ORDER BY a.attnum) AS attnum,
            nullif(a.attidentity, '') as attidentity, nullif(a.attgenerated, '') as attgenerated,
            pg_catalog.pg_get_expr(def.adbin, def.adrelid) AS adsrc, dsc.description, t.typbasetype, t.typtype
        FROM pg_catalog.pg_namespace n
        JOIN pg_catalog.pg_class c ON (c.relnamespace = n.oid)
        JOIN pg_catalog.pg_attribute a ON (a.attrelid = c.oid)
        JOIN pg_catalog.pg_type t ON (a.atttypid = t.oid)
        LEFT JOIN pg_catalog.pg_attrdef def ON (a.attrelid = def.adrelid AND a.attnum = def.adnum)
        LEFT JOIN pg_catalog.pg_description dsc ON (c.oid = dsc.objoid AND a.attnum = dsc.objsubid)
        LEFT JOIN pg_catalog.pg_class dc ON (dc.oid = dsc.classoid AND dc.relname = 'pg_class')
        WHERE c.relkind in ('r','p','v','f','m') and a.attnum > 0 AND NOT a.attisdropped AND n.nspname LIKE 'public') c
        WHERE true ORDER BY nspname, c.relname, attnum""",
        (),
    ),
    (
        """SELECT result.TABLE_SCHEM AS "TABLE_SCHEM", result.COLUMN_NAME AS "COLUMN_NAME",
            result.KEY_SEQ AS "KEY_SEQ", result.PK_NAME AS "PK_NAME"
        FROM (SELECT n.nspname AS TABLE_SCHEM, ct.relname AS TABLE_NAME, a.attname AS COLUMN_NAME,
                (information_schema._pg_expandarray(i.indkey)).n AS KEY_SEQ, ci.relname AS PK_NAME,
                information_schema._pg_expandarray(i.indkey) AS KEYS, a.attnum AS A_ATTNUM
            FROM pg_catalog.pg_class ct
            JOIN pg_catalog.pg_attribute a ON (ct.oid = a.attrelid)
            JOIN pg_catalog.pg_namespace n ON (ct.relnamespace = n.oid)
            JOIN pg_catalog.pg_index i ON (a.attrelid = i.indrelid)
            JOIN pg_catalog.pg_class ci ON (ci.oid = i.indexrelid)
            WHERE true AND n.nspname = 'public' AND ct.relname = 'orders' AND i.indisprimary) result
        where result.A_ATTNUM = (result.KEYS).x ORDER BY result.table_name, result.pk_name, result.key_seq""",
        (),
    ),
    (
        """SELECT tmp.TABLE_NAME AS "TABLE_NAME", tmp.NON_UNIQUE AS "NON_UNIQUE", tmp.INDEX_NAME AS "INDEX_NAME",
            tmp.ORDINAL_POSITION AS "ORDINAL_POSITION",
            trim(both '"' from pg_catalog.pg_get_indexdef(tmp.CI_OID, tmp.ORDINAL_POSITION, false)) AS "COLUMN_NAME",
            CASE tmp.AM_NAME WHEN 'btree' THEN CASE tmp.I_INDOPTION[tmp.ORDINAL_POSITION - 1] & 1::smallint
                WHEN 1 THEN 'D' ELSE 'A' END ELSE NULL END AS "ASC_OR_DESC"
        FROM (SELECT ct.relname AS TABLE_NAME, NOT i.indisunique AS NON_UNIQUE, ci.relname AS INDEX_NAME,
                (information_schema._pg_expandarray(i.indkey)).n AS ORDINAL_POSITION, ci.oid AS CI_OID,
                i.indoption AS I_INDOPTION, am.amname AS AM_NAME
            FROM pg_catalog.pg_class ct
            JOIN pg_catalog.pg_namespace n ON (ct.relnamespace = n.oid)
            JOIN pg_catalog.pg_index i ON (ct.oid = i.indrelid)
            JOIN pg_catalog.pg_class ci ON (ci.oid = i.indexrelid)
            JOIN pg_catalog.pg_am am ON (ci.relam = am.oid) WHERE n.nspname = 'public') AS tmp
        ORDER BY "NON_UNIQUE", "INDEX_NAME", "ORDINAL_POSITION" """,
        (),
    ),
    (
        """SELECT typinput='pg_catalog.array_in'::regproc as is_array, typtype, typname, pg_type.oid
        FROM pg_catalog.pg_type LEFT JOIN (select ns.oid as nspoid, ns.nspname, r.r from pg_namespace as ns
            join (select s.r, (current_schemas(false))[s.r] as nspname
                from generate_series(1, array_upper(current_schemas(false), 1)) as s(r)) as r
            using (nspname)) as sp ON sp.nspoid = typnamespace
        WHERE typname = $1 ORDER BY sp.r, pg_type.oid DESC""",
        ("_numeric",),
    ),
    (
        "SELECT e.typdelim FROM pg_catalog.pg_type t, pg_catalog.pg_type e WHERE t.oid = $1 and t.typelem = e.oid",
        ("1009",),
    ),
    (
        "SELECT n.nspname = ANY(current_schemas(true)), n.nspname, t.typname FROM pg_catalog.pg_type t"
        " JOIN pg_catalog.pg_namespace n ON t.typnamespace = n.oid WHERE t.oid = $1",
        ("1231",),
    ),
    (
        "SELECT string_agg(word, ',') FROM pg_catalog.pg_get_keywords() WHERE catcode = 'R' AND word LIKE 'xml%'"
        " AND word <> ALL ('{a,abs}'::text[])",
        (),
    ),
]

NODE_POSTGRES: Statements = [
    ("SELECT oid, typname, typarray FROM pg_type WHERE typname = $1", ("int4",)),
    ("SELECT current_database(), now() is not null n", ()),
]

DRIVERS: Mapping[str, Statements] = {
    "sqlalchemy": SQLALCHEMY,
    "psycopg": PSYCOPG,
    "asyncpg": ASYNCPG,
    "jdbc": JDBC,
    "node-postgres": NODE_POSTGRES,
}
