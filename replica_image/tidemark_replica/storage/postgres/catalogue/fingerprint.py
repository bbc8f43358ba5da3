"""One cheap query that tells whether the catalogue may have changed in what matters to the followed tables.

Every row of the catalogue has the transaction that wrote it (`xmin`); VACUUM and ANALYZE write statistics in place and
leave it. The fingerprint is of more rows than those that matter: a look at the catalogue says what happened.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import psycopg

from tidemark_replica.storage.postgres.catalogue.membership import SCHEMAS_SINCE
from tidemark_replica.storage.postgres.relations import PinnedTable

_FINGERPRINT = """
select md5(concat_ws('|',
    (select string_agg(concat_ws(' ', oid, xmin), ',') from pg_publication where pubname = %(publication)s),
    (select string_agg(concat_ws(' ', r.oid, r.xmin), ',' order by r.oid) from pg_publication_rel r
     join pg_publication p on p.oid = prpubid where pubname = %(publication)s),
    (select string_agg(concat_ws(' ', c.oid, c.xmin, n.xmin), ',' order by c.oid) from pg_class c
     join pg_namespace n on n.oid = c.relnamespace where c.oid = any(%(tables)s)),
    (select string_agg(concat_ws(' ', attrelid, attnum, xmin), ',' order by attrelid, attnum) from pg_attribute
     where attnum > 0 and attrelid = any(%(tables)s || array(select typrelid from pg_type where oid = any(%(types)s)))),
    (select string_agg(concat_ws(' ', oid, xmin), ',' order by oid) from pg_enum where enumtypid = any(%(types)s)),
    {}
))
"""
_SCHEMAS = "(select string_agg(concat_ws(' ', oid, xmin), ',' order by oid) from pg_publication_namespace)"


def fingerprint(connection: psycopg.Connection[Any], publication: str, tables: Iterable[PinnedTable]) -> str:
    """A text that differs from an earlier one where anything that `watch.look` compares was written since."""
    pinned = list(tables)
    query = _FINGERPRINT.format(_SCHEMAS if connection.info.server_version >= SCHEMAS_SINCE else "''")
    given = {
        "publication": publication,
        "tables": [table.oid for table in pinned],
        "types": sorted({type.oid for table in pinned for type in table.types}),
    }
    (text,) = connection.execute(query, given).fetchone() or ("",)
    return str(text)
