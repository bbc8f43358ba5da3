"""Comparisons with the elements of arrays in PostgreSQL's dialect, over a small table with NULL in each column."""

from __future__ import annotations

ARRAY_TABLE = """
CREATE TABLE w (k bigint NOT NULL, i int, h smallint, m numeric(15, 2), f double precision, s text, d date,
  ts timestamp, tz timestamptz, b boolean);
INSERT INTO w VALUES
 (1, 1, 1, 1.50, 1.5, 'a', '2024-01-31', '2024-01-31 10:00:00.123456', '2024-01-31 10:00:00+00', true),
 (2, -2147483648, -32768, -0.01, 'NaN', '', '0001-01-01', '0003-01-01', '1901-11-18 12:00:00+00', false),
 (9223372036854775807, 2147483647, 32767, 9999999999999.99, 'Infinity', 'NULL', '9999-12-31', NULL, NULL, NULL),
 (4, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL),
 (-9223372036854775808, 0, 0, 0, -0.0, 'a,b', '2024-02-29', '2024-03-10 02:30:00', '2024-03-10 07:30:00+00', true),
 (6, 7, 7, 7, 7, E'q"\\\\x''{}', '1969-12-31', '1969-12-31 23:59:59.5', '2024-11-03 06:30:00+00', false),
 (7, 8, 8, 0.1, 0.1, 'é😀', '2024-03-10', '2024-11-03 01:30:00', '2024-11-03 05:30:00+00', NULL)
"""
ARRAY_COLUMNS = {
    "k": "bigint",
    "i": "int",
    "h": "smallint",
    "m": "decimal(15,2)",
    "f": "double",
    "s": "string",
    "d": "date",
    "ts": "timestamp_ntz",
    "tz": "timestamp",
    "b": "boolean",
}
ARRAYS = r"""
i = ANY (ARRAY[1, 7]); i = ANY (ARRAY[1, NULL]); i = ANY (ARRAY[NULL, 7, NULL]::int[]); i = ANY ('{1,7}')
i = ANY ('{1,NULL,7}'); i = ANY ('{}'); i = ANY (NULL); i = ANY (NULL::int[]); i = ANY (ARRAY[]::int[])
i = ANY (ARRAY[NULL]::int[])
i <> ALL (ARRAY[1, 7]); i <> ALL (ARRAY[1, NULL]); i <> ALL ('{1,NULL}'::int[]); i <> ALL ('{}'); i <> ALL (NULL)
i != ALL ('{1,7}'::bigint[]); i <> ALL (NULL::int[]); NOT i = ANY ('{1,NULL}'); NOT (i <> ALL ('{1,NULL}'))
i = SOME (ARRAY[1]); i = ANY ((ARRAY[1, 7])); i = ANY ('{-2147483648,2147483647}'); i = ANY ('{1}'::smallint[])
i = ANY ('{1}'::smallint[]::int[]); i = ANY (CAST('{1,3000000000}' AS bigint[])); i = ANY ('{1, +7 , null}'::int[])
i = ANY (' { 1 , 7 } '); i = ANY ('{"1","7"}'::int[]); i = ANY (ARRAY[h, 7]); i = ANY (ARRAY[k, i + 0::int])
i = ANY (ARRAY[1, 7.0]); i = ANY (ARRAY[1.5, 0.0]); i = ANY ('{1.0,7.5}'::numeric[]); i = ANY (ARRAY[m, 7])
i = ANY (ARRAY[f, 1]); i = ANY ('{7,NaN}'::double precision[]); i - 0::int = ANY (ARRAY[7, NULL])
i / 2 = ANY ('{3}'::smallint[])
k = ANY ('{9223372036854775807,-9223372036854775808}'); k = ANY (ARRAY[9223372036854775807, 1]); k = ANY (ARRAY[1, 4])
k <> ALL ('{9223372036854775807}'::bigint[]); h = ANY ('{32767,-32768}'); h = ANY ('{40000,7}'::int[])
k = ANY (ARRAY[9223372036854775807::bigint, 1.5]); k = ANY ('{9223372036854775807.5,6}'::numeric[])
m = ANY (ARRAY[1.5, 0.10]); m = ANY ('{1.5,-0.010,NULL}'); m = ANY ('{9999999999999.990}'); m <> ALL ('{7}'::int[])
m = ANY ('{0.1}'::double precision[]); m = ANY ('{1.499,0.104}'::numeric(5,2)[]); m = ANY (ARRAY[1.499]::numeric(5,1)[])
f = ANY ('{NaN,Infinity}'); f = ANY ('{-0.0}'); f = ANY (ARRAY[0.1, 1.5]); f = ANY ('{1e-1,0.15e1}')
f = ANY ('{7,0}'::int[]); f <> ALL ('{NaN,NULL}'::double precision[]); f = ANY (ARRAY[f, NULL]); f = ANY ('{.1,7.}')
f = ANY ('{inf,NAN,-Infinity}')
s = ANY (ARRAY['a', 'NULL']); s = ANY ('{a,NULL}'); s = ANY ('{"a","NULL"}'); s = ANY ('{"a,b",""}'::text[])
s = ANY ('{"q\"\\x''{}"}'); s = ANY (ARRAY['q"\x''{}']); s = ANY ('{é😀}'::varchar[]); s = ANY (ARRAY[NULL])
s = ANY (ARRAY[NULL, 'a']); s <> ALL ('{a,b}'); s <> ALL ('{}'::text[]); s = ANY (ARRAY['2024-01-31', 'a'])
s = ANY (ARRAY[]::varchar[]); s = ANY (ARRAY[s, 'a']); lower(s) = ANY ('{a}'); 'a' = ANY (ARRAY[s, NULL])
s = ANY (NULL::text[]); s = ANY (' {a, "" , nUlL }'); s = ANY ('{a b ,"a"}'); s = ANY ('{"a"}'::varchar[]::text[])
'a' = ANY ('{a}'); s = ANY (CAST(NULL AS varchar[])); s = ANY ('{"\a"}')
d = ANY ('{2024-01-31,NULL}'); d = ANY ('{"2024-02-29"}'::date[]); d = ANY (ARRAY['2024-01-31'::date, d])
d <> ALL (ARRAY[DATE '0001-01-01']); d = ANY (ARRAY['2024-01-31']::date[]); d = ANY ('{}'::date[])
d = ANY ('{0001-01-01,9999-12-31}'); d = ANY (NULL)
ts = ANY ('{"2024-01-31 10:00:00.123456","2024-03-10 02:30"}'); ts = ANY ('{"2024-11-03 01:30:00+02"}'::timestamp[])
ts <> ALL (ARRAY[timestamp '0003-01-01', NULL]); ts = ANY ('{2024-11-03T01:30}'); ts = ANY ('{2024-01-01}')
tz = ANY ('{"2024-01-31 10:00:00+00"}'); tz = ANY ('{"2024-03-10 02:30","2024-11-03 01:30"}'::timestamptz[])
tz = ANY (ARRAY[timestamptz '2024-11-03 01:30:00-05', NULL]); tz <> ALL ('{}'); tz = ANY ('{"2024-11-03 05:30:00Z"}')
b = ANY ('{t,NULL}'); b = ANY (ARRAY[true]); b <> ALL ('{true,f}'::boolean[]); b = ANY (ARRAY[b, false])
(i = ANY ('{1}')) = ANY (ARRAY[true, b]); (i = ANY ('{1,7}')) IS NULL; CASE WHEN i = ANY ('{1}') THEN 1 ELSE 0 END
7 = ANY (ARRAY[i, h]); i / 2 = ANY ('{3}'); NULL = ANY (ARRAY[1]); NULL::int = ANY ('{}'::int[])
NULL::int <> ALL (ARRAY[1]); (i = ANY ('{1}')) = (s = ANY ('{a}'))
"""
ARRAY_QUERIES = """
SELECT k FROM w WHERE i = ANY ('{1,7,NULL}') ORDER BY k; SELECT k FROM w WHERE i <> ALL ('{1,NULL}')
SELECT k FROM w WHERE NOT s = ANY ('{a}'); SELECT k FROM w WHERE i = ANY (SELECT h FROM w)
SELECT k FROM w WHERE i <> ALL (SELECT h FROM w WHERE h > 1); SELECT k FROM w WHERE i <> ALL (SELECT h FROM w)
SELECT i = ANY ('{1,7}') AS x, count(*) FROM w GROUP BY i = ANY ('{1,7}')
SELECT count(*) FILTER (WHERE s = ANY (ARRAY['a', 'é😀'])) FROM w; SELECT k FROM w WHERE k = ANY (ARRAY[1, 4]) OR b
SELECT a.k FROM w a JOIN w c ON a.i = ANY (ARRAY[c.h, c.i]) AND a.k = c.k
SELECT max(i) FROM w HAVING max(i) = ANY ('{7}')
SELECT x FROM (SELECT k AS x FROM w) q WHERE x = ANY ('{1,6}')
"""
ARRAY_ERRORS = r"""
i = ANY ('{3000000000}'); h = ANY ('{40000}'); i = ANY ('{a}'); i = ANY ('{1.5}'); i = ANY (ARRAY['1', '7'])
s = ANY (ARRAY[1, 2]); d = ANY (ARRAY['2024-01-31']); i = ANY ('{1,}'); i = ANY ('{,}'); i = ANY ('1,2'); i = ANY ('{1')
i = ANY ('{1}x'); s = ANY ('{a"b"}'); s = ANY ('{"a"b}'); s = ANY ('{"a}'); i = ANY (ARRAY[NULL]); i = ANY (1)
i = ANY (''); d = ANY ('{2024-02-30}'); b = ANY ('{maybe}'); m = ANY ('{1_0}'); f = ANY ('{1e400}')
f = ANY ('{1e-400}')
s = ANY ('{1}'::int[]); d = ANY ('{}'::int[]); i = ANY (NULL::text[]); b = ANY ('{1}'::int[]); tz = ANY ('{25:00}')
i = ANY (ARRAY[]); i = ANY (ARRAY[i, 'x']); '{40000}'::smallint[] = ANY ('{}'); h = ANY ('{99999}'::int[]::smallint[])
i = ANY ('{3000000000}'::bigint[]::int[]); m = ANY ('{12345.5}'::numeric(5,2)[]); i = ANY ('{"1 2"}')
k = ANY ('{x}'::int[])
nosuch = ANY ('{}'); nosuch(i) = ANY ('{}'); i = ANY ('{9223372036854775808}'::bigint[]); ANY (ARRAY[1]) = i
i = ANY (ARRAY[ARRAY[1], ARRAY[2, 3]]); i = ANY ('{1 2}'); ts = ANY ('{2024-13-01}')
"""
"""Statements that fail in PostgreSQL: refused or failing here, and never a value."""
ARRAY_REFUSED = r"""
i < ANY ('{1}'): in another form; i = ALL ('{1}'): in another form; i <> ANY (ARRAY[1]): in another form
s LIKE ANY (ARRAY['a%']): Any; ARRAY[1, 2]: Array; '{1}'::int[]: the type; ARRAY[1] = ARRAY[1]: Array
i = ANY ('{{1},{2}}'): written as; i = ANY ('[0:1]={1,2}'): written as; i = ANY (ARRAY[[1], [2]]): of arrays
i = ANY (string_to_array('1,2', ',')): no ARRAY; s = ANY ('{a\b}'): written as; i = ANY (ARRAY(SELECT 1)): of a query
i + 1 = ANY ('{40000}'): cast it to bigint; d = ANY (ARRAY[ts]): beside an array
ts = ANY ('{2024-01-31}'::date[]): beside
f = ANY ('{1.5}'::real[]): array of real; s = ANY ('{a}'::varchar(1)[]): array of varchar; s = ANY ('{a}'::uuid[]): uuid
s = ANY ('{a}'::char(2)[]): array of; i = ANY (ARRAY[1, '7']): unknown type; m = ANY ('{1e1}'): an element
m = ANY ('{NaN}'): an element; b = ANY ('{yes}'): an element; d = ANY ('{today}'): an element
tz = ANY ('{infinity}'): written as; ts = ANY ('{"2024-01-31 24:00"}'): clock
"""
