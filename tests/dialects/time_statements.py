"""Dates and times of PostgreSQL's dialect, over a small table whose times are at the edges of calendars and zones."""

from __future__ import annotations

TIME_TABLE = """
CREATE TABLE u (k bigint NOT NULL, ts timestamp, tz timestamptz, d date, s text, v double precision);
INSERT INTO u VALUES
 (1, '2024-01-31 10:00:00.123456', '2024-01-31 10:00:00.123456+00', '2024-01-31', 'abc', 1.5),
 (2, '0003-01-01 00:00:00', '1901-11-18 12:00:00+00', '0003-01-01', '', 2.5), (3, NULL, NULL, NULL, NULL, NULL),
 (4, '2024-03-10 02:30:00', '2024-03-10 07:30:00+00', '2024-03-10', 'a', 3.5),
 (5, '2024-11-03 01:30:00', '2024-11-03 05:30:00+00', '2024-11-03', 'b', 4.5),
 (6, '9900-12-31 23:59:59.999999', '2024-11-03 06:30:00+00', '2024-12-30', 'c', 5.5),
 (7, '1969-12-31 23:59:59.5', '1969-12-31 23:59:59.999999+00', '1969-12-31', 'd', 6.5),
 (8, '2024-02-29 23:59:59', '2024-12-30 00:00:00+00', '2024-02-29', 'e', 7.5),
 (9, '2024-10-27 02:30:00', '2024-10-27 01:30:00+00', '2024-10-27', 'f', 8.5),
 (10, '2024-03-31 02:30:00', '2024-03-31 01:00:00+00', '2024-03-31', 'g', 9.5)
"""
TIME_COLUMNS = {
    "k": "bigint",
    "ts": "timestamp_ntz",
    "tz": "timestamp",
    "d": "date",
    "s": "string",
    "v": "double",
}
LITERALS = """
timestamp '2024-01-31 10:00:00'; timestamp '2024-01-31'; timestamp '2024-01-31T10:00'
'2024-01-31 10:00:00.5'::timestamp
timestamp '2024-01-31 10:00:00+02'; timestamp '2024-01-31 10:00:00Z'; timestamp without time zone '0001-01-01 00:00'
CAST('2024-01-31 10:00:00.123456' AS timestamp without time zone); NULL::timestamp; CAST(NULL AS timestamptz)
timestamptz '2024-01-31 10:00:00+00'; timestamp with time zone '2024-01-31 10:00:00.000Z'
'2024-01-31 10:00'::timestamptz
timestamptz '2024-01-31 10:00:00-03:30'; timestamptz '2024-01-31 10:00:00+0530'; timestamptz '2024-01-31'
timestamptz '2024-03-10 02:30'; timestamptz '2024-03-10 01:59:59.999999'; timestamptz '2024-03-10 03:00'
timestamptz '2024-11-03 01:30'; timestamptz '2024-11-03 00:59:59'; timestamptz '2024-11-03 02:00'
timestamptz '2024-03-31 02:30'; timestamptz '2024-10-27 02:30'; timestamptz '2024-10-27 02:00'
timestamptz '2024-10-27 03:00'
timestamptz '1901-01-01 12:00'; timestamptz '2100-07-01 12:00'; timestamptz '1940-06-01 12:00'
timestamptz '1893-04-01 00:03'
tz = '2024-11-03 01:30'; tz >= '2024-03-10 02:30'; '2024-03-31 02:30' <= tz; tz < '2024-01-31T10:00:00.123457Z'
tz BETWEEN '2024-01-01T00:00:00Z' AND '2024-10-27 02:30'; tz NOT BETWEEN '2024-01-01' AND '2024-12-31'
tz IN ('2024-11-03 01:30', '2024-01-31 10:00:00.123456Z', NULL); tz IS DISTINCT FROM '2024-03-10 02:30'
ts = '2024-03-10 02:30'; ts >= '2024-02-29 23:59:59Z'; ts BETWEEN '0001-01-01' AND '2024-02-29'
ts <> timestamp '2024-01-31'
ts IN ('2024-11-03 01:30', '2024-03-10 02:30+05'); ts < timestamp '2024-03-10'; ts IS NOT DISTINCT FROM NULL
d = '2024-01-31'; d >= '2024-01-31T10:00:00Z'; d BETWEEN '2024-01-01T00:00:00Z' AND '2024-12-31T23:59:59Z'; d < ts
tz >= timestamp with time zone '2024-01-01 00:00:00.000+00:00'; tz > timestamptz '2024-03-10 07:30:00Z'; tz IS NULL
ts::timestamp; tz::timestamptz; d::timestamp; CAST(ts AS date); (timestamp '2024-01-31 23:00')::date
greatest(tz, '2024-01-01'::timestamptz)
coalesce(ts, timestamp '2024-01-01'); nullif(tz, timestamptz '2024-03-10 07:30:00Z'); least(ts, timestamp '2000-01-01')
CASE WHEN tz > '2024-06-01 00:00Z' THEN ts END; '\\x00ff'::bytea = '\\x00FF'::bytea; '\\x'::bytea < '\\x00'::bytea
'1.5'::real = 1.5; v = '1.5'::real; v > '0.1'::real; '0.1'::real = 0.1; NULL::bytea IS NULL; NULL::real IS NULL
"""
"""The same in all time zones, or read in the session's."""
WITHOUT_ZONE = """
date_trunc('second', ts); date_trunc('minute', ts); date_trunc('hour', ts); date_trunc('day', ts)
date_trunc('week', ts)
date_trunc('month', ts); date_trunc('quarter', ts); date_trunc('year', ts)
date_trunc('HOUR', timestamp '2024-03-10 02:59:59'); date_trunc('day', ts)::date
extract(year from ts); extract(month from ts); extract(day from ts); extract(hour from ts); extract(minute from ts)
extract(second from ts); extract(quarter from ts); extract(week from ts); extract(dow from ts); extract(isodow from ts)
extract(doy from ts); date_part('hour', ts); date_part('year', ts); extract(epoch from ts); extract(epoch from tz)
extract(epoch from d); floor(extract(epoch from tz)/300)*300; floor((extract(epoch from ts)/3600))*3600
floor(extract(epoch from tz)/0.5)*0.5; floor(extract(epoch from ts) / 86400); floor(extract(epoch from d)/86400)*86400
floor(extract(epoch from tz)/7)*7; extract(epoch from ts) * 1000; floor(extract(epoch from tz)/0.001)
floor(extract(epoch from tz)/60)::bigint; ts + interval '1 hour'; ts - interval '90 minutes'; ts + interval '1 month'
ts - interval '7 days'; ts + interval '-12 month'; ts - (interval '1 week'); ts + interval '1' day
ts - interval '1 year'
d - interval '7 days'; d + interval '1 month'; d - interval '1 hour'; tz + interval '1 hour'; tz - interval '30 seconds'
tz - (interval '-90 minutes'); date_trunc('month', ts - interval '1 month'); ts >= d - interval '7 days'
date_trunc('month', d + interval '1 month') = '2024-02-01'; ts + interval '24 hours'
extract(epoch from ts - interval '1 day'); floor(extract(epoch from ts)/v)*300
"""
OF_UTC = """
date_trunc('second', tz); date_trunc('minute', tz); date_trunc('hour', tz); date_trunc('day', tz)
date_trunc('week', tz)
date_trunc('month', tz); date_trunc('quarter', tz); date_trunc('year', tz)
date_trunc('month', d); CAST(date_trunc('day', tz) AS date); tz::date; tz::timestamp; ts::timestamptz; d::timestamptz
extract(year from tz); extract(hour from tz); extract(second from tz); extract(dow from tz); extract(week from tz)
tz + interval '1 day'; tz - interval '7 days'; tz + interval '1 month'; tz - interval '1 year'; tz > ts; tz >= d
date_trunc('hour', tz - interval '1 day'); coalesce(tz, ts); tz = d; CASE WHEN k > 5 THEN tz ELSE ts END
"""
"""Refused in another zone."""
TIME_QUERIES = """
SELECT date_trunc('hour', tz) AS time, count(*), sum(v) FROM u GROUP BY 1 ORDER BY 1
SELECT min(ts), max(tz), count(tz), min(d) FROM u; SELECT count(DISTINCT ts) FROM u
SELECT DISTINCT date_trunc('year', ts) FROM u
SELECT k FROM u ORDER BY tz, k; SELECT a.k, b.k FROM u a JOIN u b ON a.tz > b.tz - interval '1 hour' AND a.tz < b.tz
SELECT ts FROM u UNION SELECT d::timestamp FROM u; SELECT k, lag(tz) OVER (ORDER BY k) FROM u
SELECT k FROM (SELECT k, tz AS at FROM u) q WHERE at >= '2024-03-10 07:30:00Z'
"""
CHARTS = """
SELECT floor(extract(epoch from "tz")/300)*300 AS "time", avg(v) AS "v" FROM u WHERE tz BETWEEN '2024-01-01T00:00:00Z'
AND '2024-11-03T06:00:00Z' GROUP BY 1 ORDER BY 1

SELECT tz AS "time", v FROM u WHERE tz >= '2024-01-01T00:00:00Z' AND tz <= '2024-12-31T23:59:59.999Z' ORDER BY 1

SELECT extract(epoch from tz) AS "time", s AS metric, v AS value FROM u WHERE tz BETWEEN '2024-01-01T00:00:00Z' AND
'2024-12-31T00:00:00Z' ORDER BY 1

SELECT floor(extract(epoch from ts)/3600)*3600 AS "time", count(*) FROM u WHERE ts BETWEEN '2024-01-01T00:00:00Z' AND
'2024-12-31T00:00:00Z' GROUP BY 1 ORDER BY 1 LIMIT 50

SELECT DATE_TRUNC('month', "u"."tz") AS "tz", COUNT(*) AS "count" FROM "u" GROUP BY DATE_TRUNC('month', "u"."tz")
ORDER BY DATE_TRUNC('month', "u"."tz") ASC

SELECT CAST(DATE_TRUNC('day', "u"."tz") AS date) AS "tz", SUM("u"."v") AS "sum" FROM "u" WHERE "u"."tz" >= timestamp
with time zone '2024-01-01 00:00:00.000Z' AND "u"."tz" < timestamp with time zone '2025-01-01 00:00:00.000Z' GROUP BY
CAST(DATE_TRUNC('day', "u"."tz") AS date) ORDER BY CAST(DATE_TRUNC('day', "u"."tz") AS date) ASC

SELECT DATE_TRUNC('week', "u"."ts") AS "ts", AVG("u"."v") AS "avg" FROM "u" WHERE "u"."ts" BETWEEN timestamp
'2024-01-01 00:00:00.000' AND timestamp '2024-12-31 00:00:00.000' GROUP BY DATE_TRUNC('week', "u"."ts") ORDER BY
DATE_TRUNC('week', "u"."ts") ASC

SELECT CAST(extract(year from "u"."ts") AS integer) AS "y", COUNT(*) AS "count" FROM "u" WHERE "u"."d" >= date
'2024-01-01' GROUP BY CAST(extract(year from "u"."ts") AS integer) ORDER BY CAST(extract(year from "u"."ts") AS
integer) ASC

SELECT floor(extract(epoch from tz)/60)*60 AS tz, max(v) AS v FROM u WHERE tz BETWEEN '2024-01-01T00:00:00Z' AND
'2024-12-31T00:00:00Z' GROUP BY 1 ORDER BY 1

SELECT date_trunc('day', a.tz) AS tz, count(*) FROM u AS a JOIN u AS b ON a.k = b.k WHERE a.tz > '2024-01-01' GROUP BY
1 ORDER BY 1
"""
"""Statements of charts as Grafana's data source writes them by $__timeFilter, $__timeGroup and $__timeEpoch, and as
Metabase does."""
TIME_ERRORS = """
timestamp '2024-02-30'; timestamptz '2024-01-31 25:00'; '2024-13-01'::timestamp; '2024'::timestamp; s::timestamp
tz = s; ts = s; ts::int; tz::bigint; k::timestamp; (v > 1)::timestamptz; extract(hour from d); date_trunc('day', s)
date_trunc('fortnight', ts); date_trunc('day', k); extract(year from s); d = '2024'; tz > '12:30'; extract(epoch from s)
'1e40'::real; '1e-50'::real; '\\x0'::bytea; '\\xzz'::bytea
"""
"""Statements that fail in PostgreSQL: refused or failing here, and never a value."""
TIME_REFUSED = """
timestamp 'infinity': written as; timestamptz '-infinity': written as; timestamp '0044-03-15 BC': written as
timestamp '2024-01-31 24:00': clock does not have; timestamp '2024-01-31 10:00:60': clock does not have
timestamp 'now': written as
timestamptz '2024-01-31 10:00 Europe/Berlin': written as; timestamp '31 Jan 2024': written as
timestamp '20240131': written as
timestamp '2024-01-31 10:00:00.1234567': written as; timestamptz '2024-01-31 10:00:00+15:00': clock does not have
timestamptz '0001-01-01 00:00+05': outside the years; ts::timestamp(3): the type; ts::text: cast of timestamp
tz::text: cast of timestamptz; s::timestamptz: cast of text; date_trunc('decade', ts): date_trunc of decade
date_trunc('milliseconds', ts): date_trunc of milliseconds
date_trunc('day', tz, 'UTC'): with zone; extract(century from ts): CENTURY; extract(milliseconds from ts): MILLISECONDS
ts - ts: Sub of timestamp; tz - timestamptz '2024-01-01': Sub of timestamptz; extract(epoch from ts) / 60: quotient
extract(epoch from ts - ts): Sub of timestamp; ts + 1: Add of
ts + interval '1 day 2 hours': of this form; ts + interval '1.5 hours': fraction; interval '1 day' + ts: Add of
tz AT TIME ZONE 'UTC': AtTimeZone; ts + interval '1 hour' * 2: Add of timestamp; to_timestamp(k): UNIX; age(ts): age
'a'::bytea: bytes; timestamptz '2024-01-31 10:00+02'::timestamp: in parentheses; date '2024-01-31'::text: in parentheses
 s::bytea: bytes; v::real: real; localtimestamp: Localtimestamp; date_part('second', ts): date_part
date_trunc('day', '2024-01-31'): of text; d - date '2024-01-01': Sub of date
"""
REFUSED_IN_ZONE = """
current_date; coalesce(tz, '2024-01-01'); CASE WHEN k = 1 THEN tz ELSE '2024-01-01' END
greatest(tz, '2024-01-01 10:00')
"""
CHOSEN_REALS = """
coalesce('0.1'::real, 0.1); coalesce(NULL::real, 16777217); greatest('0.1'::real, 0.1); '0.1'::real IN (0.1, 1.5)
CASE WHEN k = 1 THEN '16777216'::real ELSE 16777217 END; least('1'::real, k)
coalesce('\\x61'::bytea, '\\x00'); '\\x00ff'::bytea = '\\x00ff'
'\\x61'::bytea IN ('\\x61', 'b'); '\\x61'::bytea; '1.5'::real; '0.1'::real = '0.1'; sum('0.1'::real) OVER ()
"""
"""PostgreSQL has real and bytea, where Spark would take double precision and the characters of the text."""
