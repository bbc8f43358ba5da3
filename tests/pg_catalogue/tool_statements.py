"""The questions of dashboards and browsers of schemas about the catalogue, in our own words, as in
`driver_statements`."""

from __future__ import annotations

from collections.abc import Mapping

from tests.pg_catalogue.driver_statements import Statements


def plain(*texts: str) -> Statements:
    return [(text, ()) for text in texts]


DBEAVER: Statements = plain(
    "SELECT current_schema(), session_user",
    """SELECT n.oid, n.nspname, d.description FROM pg_catalog.pg_namespace n LEFT OUTER JOIN pg_catalog.pg_description d
        ON d.objoid = n.oid AND d.objsubid = 0 AND d.classoid = 'pg_description'::regclass
        WHERE nspname <> 'pg_toast' ORDER BY nspname""",
    "SELECT db.oid, db.datname, db.encoding FROM pg_catalog.pg_database db WHERE datname = 'shop'",
    "SELECT name, setting FROM pg_catalog.pg_settings where name = 'standard_conforming_strings'",
    "SELECT * FROM pg_catalog.pg_enum WHERE 1<>1 LIMIT 1",
    "SELECT reltype FROM pg_catalog.pg_class WHERE 1<>1 LIMIT 1",
    """SELECT t.oid, t.*, c.relkind, format_type(nullif(t.typbasetype, 0), t.typtypmod) as base_type_name, d.description
        FROM pg_catalog.pg_type t LEFT OUTER JOIN pg_catalog.pg_type et ON et.oid = t.typelem
        LEFT OUTER JOIN pg_catalog.pg_class c ON c.oid = t.typrelid
        LEFT OUTER JOIN pg_catalog.pg_description d ON t.oid = d.objoid AND d.classoid = 0
        WHERE t.typname IN ('int4', '_text', 'orders', 'numeric', 'regclass')
        AND (et.typcategory IS NULL OR et.typcategory <> 'C')""",
    """SELECT c.oid, c.relname, c.relkind, c.relacl, d.description, pg_catalog.pg_get_expr(c.relpartbound, c.oid) as e,
        pg_catalog.pg_get_partkeydef(c.oid) as partition_key FROM pg_catalog.pg_class c
        LEFT OUTER JOIN pg_catalog.pg_description d
            ON d.objoid = c.oid AND d.objsubid = 0 AND d.classoid = 'pg_class'::regclass
        WHERE c.relnamespace = 2200 AND c.relkind not in ('i','I','c')""",
    """SELECT c.relname, a.*, pg_catalog.pg_get_expr(ad.adbin, ad.adrelid, true) as def_value, dsc.description,
        dep.objid
        FROM pg_catalog.pg_attribute a INNER JOIN pg_catalog.pg_class c ON (a.attrelid = c.oid)
        LEFT OUTER JOIN pg_catalog.pg_attrdef ad ON (a.attrelid = ad.adrelid AND a.attnum = ad.adnum)
        LEFT OUTER JOIN pg_catalog.pg_description dsc ON (c.oid = dsc.objoid AND a.attnum = dsc.objsubid)
        LEFT OUTER JOIN pg_depend dep on dep.refobjid = a.attrelid AND dep.deptype = 'i'
            and dep.refobjsubid = a.attnum and dep.classid = dep.refclassid
        WHERE NOT a.attisdropped AND a.attnum > 0 AND c.relname = 'orders' ORDER BY a.attnum""",
    """SELECT i.*, i.indkey as keys, c.relname, c.relnamespace, c.relam, tc.relname as tabrelname, dsc.description,
        pg_catalog.pg_get_expr(i.indpred, i.indrelid) as pred_expr,
        pg_catalog.pg_get_expr(i.indexprs, i.indrelid, true) as expr
        FROM pg_catalog.pg_index i INNER JOIN pg_catalog.pg_class c ON c.oid = i.indexrelid
        INNER JOIN pg_catalog.pg_class tc ON tc.oid = i.indrelid
        LEFT OUTER JOIN pg_catalog.pg_description dsc ON i.indexrelid = dsc.objoid
        WHERE c.relnamespace = 2200 ORDER BY tabrelname, c.relname""",
    """SELECT c.oid, c.conname, c.contype, c.conkey, t.relname as tabrelname, rt.relnamespace as refnamespace,
        case when c.contype = 'c' then "substring"(pg_get_constraintdef(c.oid), 7) else null end consrc_copy
        FROM pg_catalog.pg_constraint c INNER JOIN pg_catalog.pg_class t ON t.oid = c.conrelid
        LEFT OUTER JOIN pg_catalog.pg_class rt ON rt.oid = c.confrelid
        WHERE t.relnamespace = 2200 ORDER BY c.oid""",
    "SELECT a.oid, a.rolname FROM pg_catalog.pg_roles a WHERE a.rolname IN ('tidemark', 'reader') ORDER BY a.rolname",
    "SELECT x.oid, x.extname FROM pg_catalog.pg_extension x WHERE x.extname <> 'plpgsql'",
    "SELECT relname, oid::regclass, tableoid::regclass FROM pg_class c WHERE relnamespace = 'public'::regnamespace",
)

METABASE: Statements = plain(
    """select n.nspname as schema, c.relname as name, case c.relkind when 'r' then 'TABLE' when 'v' then 'VIEW'
        when 'm' then 'MATERIALIZED VIEW' else null end as type, d.description,
        case when c.reltuples < 0 then null else c.reltuples::bigint end as rows
        from pg_catalog.pg_class c inner join pg_catalog.pg_namespace n on c.relnamespace = n.oid
        left join pg_catalog.pg_description d
            on c.oid = d.objoid and d.objsubid = 0 and d.classoid = 'pg_class'::regclass
        where (c.relnamespace = n.oid) and n.nspname !~ '^pg_' and n.nspname <> 'information_schema'
        and c.relkind in ('r', 'p', 'v', 'f', 'm') order by type, schema, name""",
    """select c.column_name as name, case when c.udt_schema in ('public', 'pg_catalog') then format('%s', c.udt_name)
            else format('"%s"."%s"', c.udt_schema, c.udt_name) end as "database-type",
        c.ordinal_position - 1 as "database-position", c.table_schema as "table-schema", c.table_name as "table-name",
        pk.column_name is not null as "pk?",
        col_description(cast(cast(format('%I.%I', cast(c.table_schema as text), cast(c.table_name as text)) as regclass)
            as oid), c.ordinal_position) as comment,
        ((column_default is null) or (lower(column_default) = 'null')) and (is_nullable = 'NO')
            and not (((column_default is not null) and (column_default like '%nextval(%')) or (is_identity <> 'NO'))
            as required
        from information_schema.columns c left join (
            select tc.table_schema, tc.table_name, kc.column_name from information_schema.table_constraints tc
            inner join information_schema.key_column_usage kc on (tc.constraint_name = kc.constraint_name)
                and (tc.table_schema = kc.table_schema) and (tc.table_name = kc.table_name)
            where tc.constraint_type = 'PRIMARY KEY') pk
        on (c.table_schema = pk.table_schema) and (c.table_name = pk.table_name) and (c.column_name = pk.column_name)
        where c.table_schema !~ '^information_schema|catalog_history|pg_' and c.table_name in ('recent')
        union all
        select pa.attname, case when ptn.nspname in ('public', 'pg_catalog') then format('%s', pt.typname)
            else format('"%s"."%s"', ptn.nspname, pt.typname) end, pa.attnum - 1, pn.nspname, pc.relname, false, null,
            false
        from pg_catalog.pg_class pc inner join pg_catalog.pg_namespace pn on pn.oid = pc.relnamespace
        inner join pg_catalog.pg_attribute pa on pa.attrelid = pc.oid
        inner join pg_catalog.pg_type pt on pt.oid = pa.atttypid
        inner join pg_catalog.pg_namespace ptn on ptn.oid = pt.typnamespace
        where (pc.relkind = 'm') and (pa.attnum >= 1)
        order by "table-schema", "table-name", "database-position" """,
    """select fk_ns.nspname as "fk-schema", pk_column.attname as "pk-column" from pg_constraint c
        inner join pg_class fk_table on c.conrelid = fk_table.oid
        inner join pg_namespace fk_ns on c.connamespace = fk_ns.oid
        inner join pg_attribute fk_column on c.conrelid = fk_column.attrelid
        inner join pg_attribute pk_column on c.confrelid = pk_column.attrelid
        where fk_ns.nspname !~ '^information_schema|catalog_history|pg_' and (c.contype = 'f'::char)
        and (fk_column.attnum = ANY(c.conkey)) and (pk_column.attnum = ANY(c.confkey))""",
    """select tmp.schema, tmp.name, trim(both '"' from pg_catalog.pg_get_indexdef(tmp.ci_oid, tmp.pos, false)) as field
        from (select n.nspname as schema, ct.relname as name, ci.oid as ci_oid,
                (information_schema._pg_expandarray(i.indkey)).n as pos
            from pg_catalog.pg_class ct inner join pg_catalog.pg_namespace n on ct.relnamespace = n.oid
            inner join pg_catalog.pg_index i on ct.oid = i.indrelid
            inner join pg_catalog.pg_class ci on ci.oid = i.indexrelid
            where (pg_catalog.pg_get_expr(i.indpred, i.indrelid) is null)
            and n.nspname !~ '^information_schema|catalog_history|pg_') tmp where tmp.pos = 1""",
    """with table_privileges as (select NULL as role, t.schemaname as schema, t.objectname as table,
        pg_catalog.has_any_column_privilege(current_user,
            '"' || replace(t.schemaname, '"', '""') || '"' || '.' || '"' || replace(t.objectname, '"', '""') || '"',
            'select') as select,
        pg_catalog.has_table_privilege(current_user, '"' || t.schemaname || '"."' || t.objectname || '"', 'delete')
            as delete
        from (select schemaname, tablename as objectname from pg_catalog.pg_tables
            union select schemaname, viewname as objectname from pg_catalog.pg_views
            union select schemaname, matviewname as objectname from pg_catalog.pg_matviews) t
        where t.schemaname !~ '^pg_' and t.schemaname <> 'information_schema'
        and pg_catalog.has_schema_privilege(current_user, t.schemaname, 'usage'))
        select t.* from table_privileges t""",
    """select nspname, typname from pg_type t join pg_namespace n on n.oid = t.typnamespace
        where t.oid in (select distinct e.enumtypid from pg_enum e)""",
)

_PATH = """quote_ident(table_schema) IN (SELECT CASE WHEN trim(s[i]) = '"$user"' THEN user ELSE trim(s[i]) END
    FROM generate_series(array_lower(string_to_array(current_setting('search_path'), ','), 1),
        array_upper(string_to_array(current_setting('search_path'), ','), 1)) as i,
    string_to_array(current_setting('search_path'), ',') s)"""
GRAFANA: Statements = plain(
    "SELECT current_setting('server_version_num')::int/100 as version",
    "SELECT extversion FROM pg_extension WHERE extname = 'timescaledb'",
    "SELECT schema_name AS name FROM information_schema.schemata WHERE schema_name = 'nothing' ORDER BY schema_name",
    f"""SELECT CASE WHEN {_PATH} THEN quote_ident(table_name)
        ELSE quote_ident(table_schema) || '.' || quote_ident(table_name) END AS "table" FROM information_schema.tables
        WHERE quote_ident(table_schema) NOT IN ('information_schema', 'pg_catalog') AND table_name <> 'totals'
        ORDER BY CASE WHEN {_PATH} THEN 0 ELSE 1 END, 1""",
    *(
        f"""SELECT quote_ident(column_name) AS "column", data_type AS "type" FROM information_schema.columns
        WHERE CASE WHEN array_length(parse_ident('{name}'), 1) = 2
            THEN quote_ident(table_schema) = (parse_ident('{name}'))[1]
                AND quote_ident(table_name) = (parse_ident('{name}'))[2]
            ELSE quote_ident(table_name) = '{name}' AND {_PATH} END"""
        for name in ("orders", "public.recent")
    ),
)

DBT: Statements = plain(
    """select 'shop' as database, tablename as name, schemaname as schema, 'table' as type from pg_tables
        where schemaname ilike 'public' union all
        select 'shop' as database, viewname as name, schemaname as schema, 'view' as type from pg_views
        where schemaname ilike 'public' union all
        select 'shop' as database, matviewname as name, schemaname as schema, 'materialized_view' as type
        from pg_matviews where schemaname ilike 'public'""",
    "select distinct nspname from pg_namespace where nspname not like 'pg\\_toast%'",
    "select count(*) from pg_namespace where nspname = 'public'",
    """select column_name, data_type, character_maximum_length, numeric_precision, numeric_scale
        from shop.information_schema.columns where table_name = 'orders' and table_schema = 'public'
        order by ordinal_position""",
    """select i.relname as name, m.amname as method, ix.indisunique as "unique",
        array_to_string(array_agg(a.attname), ',') as column_names from pg_index ix
        join pg_class i on i.oid = ix.indexrelid join pg_am m on m.oid = i.relam
        join pg_class t on t.oid = ix.indrelid join pg_namespace n on n.oid = t.relnamespace
        join pg_attribute a on a.attrelid = t.oid and a.attnum = ANY(ix.indkey)
        where t.relname = 'totals' and n.nspname = 'public' and t.relkind in ('r', 'm')
        group by 1, 2, 3 order by 1, 2, 3""",
    """select sch.nspname as table_schema, tbl.relname as table_name, tbl_desc.description as table_comment,
        col.attname as column_name, pg_catalog.format_type(col.atttypid, col.atttypmod) as column_type,
        pg_get_userbyid(tbl.relowner) as table_owner
        from pg_catalog.pg_namespace sch join pg_catalog.pg_class tbl on tbl.relnamespace = sch.oid
        join pg_catalog.pg_attribute col on col.attrelid = tbl.oid
        left outer join pg_catalog.pg_description tbl_desc on (tbl_desc.objoid = tbl.oid and tbl_desc.objsubid = 0)
        where (upper(sch.nspname) = upper('public')) and not pg_is_other_temp_schema(sch.oid)
        and tbl.relpersistence in ('p', 'u') and tbl.relkind in ('r', 'v', 'f', 'p', 'm')
        and col.attnum > 0 and not col.attisdropped order by sch.nspname, tbl.relname, col.attnum""",
    """with relation as (select pg_class.oid as relation_id, pg_class.relname as relation_name,
            pg_class.relnamespace as schema_id, pg_namespace.nspname as schema_name, pg_class.relkind as kind
        from pg_class, pg_namespace where pg_class.relnamespace = pg_namespace.oid and nspname = 'public'),
        dependency as (select distinct pg_depend.objid as relation_id, pg_depend.refobjid as referenced
        from pg_depend join relation on (pg_depend.refobjid = relation.relation_id) where false)
        select relation.schema_name, relation.relation_name from relation
        join dependency on relation.relation_id = dependency.referenced""",
)

POWER_BI: Statements = plain(
    """SELECT ns.nspname, t.oid, t.typname, t.typtype, t.typnotnull, t.elemtypoid FROM (
        SELECT typ.oid, typ.typnamespace, typ.typname, typ.typtype, typ.typrelid, typ.typnotnull, typ.relkind,
            elemtyp.oid AS elemtypoid, elemtyp.typname AS elemtypname, elemcls.relkind AS elemrelkind,
            CASE WHEN elemproc.proname = 'array_recv' THEN 'a' ELSE elemtyp.typtype END AS elemtyptype
        FROM (SELECT typ.oid, typnamespace, typname, typrelid, typnotnull, relkind, typelem AS elemoid,
                CASE WHEN proc.proname = 'array_recv' THEN 'a' ELSE typ.typtype END AS typtype,
                CASE WHEN proc.proname = 'array_recv' THEN typ.typelem WHEN typ.typtype = 'r' THEN rngsubtype
                    WHEN typ.typtype = 'm' THEN (SELECT rngtypid FROM pg_range WHERE rngmultitypid = typ.oid)
                    WHEN typ.typtype = 'd' THEN typ.typbasetype END AS elemtypoid
            FROM pg_type AS typ LEFT JOIN pg_class AS cls ON (cls.oid = typ.typrelid)
            LEFT JOIN pg_proc AS proc ON proc.oid = typ.typreceive
            LEFT JOIN pg_range ON (pg_range.rngtypid = typ.oid)) AS typ
        LEFT JOIN pg_type AS elemtyp ON elemtyp.oid = elemtypoid
        LEFT JOIN pg_class AS elemcls ON (elemcls.oid = elemtyp.typrelid)
        LEFT JOIN pg_proc AS elemproc ON elemproc.oid = elemtyp.typreceive) AS t
        JOIN pg_namespace AS ns ON (ns.oid = typnamespace)
        WHERE (typtype IN ('b', 'r', 'm', 'e', 'd') OR (typtype = 'c' AND relkind = 'c')
            OR (typtype = 'p' AND typname IN ('record', 'void'))
            OR (typtype = 'a' AND (elemtyptype IN ('b', 'r', 'm', 'e', 'd') OR elemtypname IN ('record', 'void'))))
        AND ns.nspname = 'pg_catalog' AND typname NOT LIKE '%pg\\_%'
        ORDER BY CASE WHEN typtype IN ('b', 'e', 'p') THEN 0 WHEN typtype = 'r' THEN 1 WHEN typtype = 'm' THEN 2
            WHEN typtype = 'd' AND elemtyptype <> 'a' THEN 4 WHEN typtype = 'a' THEN 5 END""",
    """SELECT typ.oid, att.attname, att.atttypid FROM pg_type AS typ
        JOIN pg_namespace AS ns ON (ns.oid = typ.typnamespace)
        JOIN pg_class AS cls ON (cls.oid = typ.typrelid) JOIN pg_attribute AS att ON (att.attrelid = typ.typrelid)
        WHERE (typ.typtype = 'c' AND cls.relkind = 'c') AND attnum > 0 AND NOT attisdropped
        ORDER BY typ.oid, att.attnum""",
    "SELECT pg_type.oid, enumlabel FROM pg_enum JOIN pg_type ON pg_type.oid = enumtypid ORDER BY oid, enumsortorder",
    """select TABLE_SCHEMA, TABLE_NAME, TABLE_TYPE from INFORMATION_SCHEMA.tables
        where TABLE_SCHEMA not in ('information_schema', 'pg_catalog') and TABLE_NAME <> 'totals'
        order by TABLE_SCHEMA, TABLE_NAME""",
    """select COLUMN_NAME, ORDINAL_POSITION, IS_NULLABLE, case when (data_type like '%unsigned%') then DATA_TYPE ||
        ' unsigned' else DATA_TYPE end as DATA_TYPE from INFORMATION_SCHEMA.columns
        where TABLE_SCHEMA = 'public' and TABLE_NAME = 'orders' order by TABLE_SCHEMA, TABLE_NAME, ORDINAL_POSITION""",
)

TABLEAU: Statements = [
    ("select current_schema()", ()),
    ("SELECT relname, nspname, relkind FROM pg_catalog.pg_class c, pg_catalog.pg_namespace n"
     " WHERE relkind IN ('r', 'v', 'm', 'f', 'p') AND nspname NOT IN ('pg_catalog', 'information_schema', 'pg_toast',"
     " 'pg_temp_1') AND n.oid = relnamespace ORDER BY nspname, relname", ()),
    ("select n.nspname, c.relname, a.attname, a.atttypid, t.typname, a.attnum, a.attlen, a.atttypmod, a.attnotnull,"
     " c.relhasrules, c.relkind, c.oid, pg_get_expr(d.adbin, d.adrelid),"
     " case t.typtype when 'd' then t.typbasetype else 0 end, t.typtypmod, 0, attidentity"
     " from (((pg_catalog.pg_class c inner join pg_catalog.pg_namespace n on n.oid = c.relnamespace"
     " and c.relname like E'orders' and n.nspname like E'public')"
     " inner join pg_catalog.pg_attribute a on (not a.attisdropped) and a.attnum > 0 and a.attrelid = c.oid)"
     " inner join pg_catalog.pg_type t on t.oid = a.atttypid)"
     " left outer join pg_attrdef d on a.atthasdef and d.adrelid = a.attrelid and d.adnum = a.attnum"
     " order by n.nspname, c.relname, attnum", ()),
    ("select ta.attname, ia.attnum, ic.relname, n.nspname, tc.relname from pg_catalog.pg_attribute ta,"
     " pg_catalog.pg_attribute ia, pg_catalog.pg_class tc, pg_catalog.pg_index i, pg_catalog.pg_namespace n,"
     " pg_catalog.pg_class ic where tc.relname = 'orders' AND n.nspname = 'public' AND tc.oid = i.indrelid"
     " AND n.oid = tc.relnamespace AND i.indisprimary = 't' AND ia.attrelid = i.indexrelid AND ta.attrelid = i.indrelid"
     " AND ta.attnum = i.indkey[ia.attnum-1] AND (NOT ta.attisdropped) AND (NOT ia.attisdropped)"
     " AND ic.oid = i.indexrelid order by ia.attnum", ()),
    ("select c.relname, i.indkey, i.indisunique, i.indisclustered, a.amname, n.nspname from pg_catalog.pg_index i,"
     " pg_catalog.pg_class c, pg_catalog.pg_class d, pg_catalog.pg_am a, pg_catalog.pg_namespace n"
     " where d.relname = 'orders' and n.nspname = 'public' and n.oid = d.relnamespace and d.oid = i.indrelid"
     " and i.indexrelid = c.oid and c.relam = a.oid order by i.indisprimary desc, i.indisunique, n.nspname, c.relname",
     ()),
]  # fmt: skip

TOOLS: Mapping[str, Statements] = {
    "dbeaver": DBEAVER,
    "metabase": METABASE,
    "grafana": GRAFANA,
    "dbt": DBT,
    "power-bi": POWER_BI,
    "tableau": TABLEAU,
}
