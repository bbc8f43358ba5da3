"""Spark's expression classes that are plain calls of the allow-list: the same arguments, and a fixed result type.

Year(date)  ->  year: int          Sqrt(double)  ->  sqrt: double          Abs(x)  ->  abs: the type of x
"""

from __future__ import annotations

from tidemark_protocol.functions.intervals import DAYS, MONTHS
from tidemark_protocol.functions.nested import STRINGS
from tidemark_protocol.types import BIGINT, BOOLEAN, DATE, DOUBLE, INT, STRING, TIMESTAMP, SqlType


def _by_type(result: SqlType | None, classes: str) -> dict[str, tuple[str, SqlType | None]]:
    """Entries of the form `Class:name`; a class without a name has its own name in lower case."""
    pairs = (entry.partition(":") for entry in classes.split())
    return {kind: (name or kind.lower(), result) for kind, _, name in pairs}


# By class: the name in the allow-list, and the type of the result (None: the type of the first argument).
CLASSES: dict[str, tuple[str, SqlType | None]] = {
    **_by_type(
        BOOLEAN,
        "EqualTo:= EqualNullSafe:<=> LessThan:< LessThanOrEqual:<= GreaterThan:> GreaterThanOrEqual:>= Like "
        "StartsWith EndsWith Contains In IsNull:is_null IsNotNull:is_not_null IsNaN Not RLike",
    ),
    **_by_type(
        INT,
        "Year Month DayOfMonth:day Quarter DayOfWeek Hour Minute Second Length DateDiff Ascii StringInstr:instr "
        "StringLocate:locate FindInSet:find_in_set Levenshtein BitLength:bit_length OctetLength:octet_length "
        "BitwiseCount:bit_count RegExpInStr:regexp_instr WeekDay DayOfYear WeekOfYear YearOfWeek "
        "UnixDate:unix_date Murmur3Hash:hash",
    ),
    **_by_type(
        STRING,
        "Upper Lower StringTrim:trim StringTrimLeft:ltrim StringTrimRight:rtrim Substring StringReplace:replace "
        "InitCap SoundEx Chr StringTranslate:translate ConcatWs:concat_ws SubstringIndex:substring_index Overlay "
        "StringLPad:lpad StringRPad:rpad RegExpExtract:regexp_extract "
        "RegExpReplace:regexp_replace Hex Md5 Sha1 Sha2 Bin DateFormatClass:date_format DayName MonthName Mask Elt "
        "Conv FormatNumber:format_number FormatString:format_string ToCharacter:to_char FromUnixTime:from_unixtime",
    ),
    **_by_type(
        None,
        "BitwiseAnd:& BitwiseOr:| BitwiseXor:^ BitwiseNot:~ ShiftLeft ShiftRight ShiftRightUnsigned Abs Greatest "
        "Least Coalesce NaNvl MultiplyDTInterval:interval_times MultiplyYMInterval:interval_times "
        "DivideDTInterval:interval_divided DivideYMInterval:interval_divided",
    ),
    **_by_type(
        DOUBLE,
        "Sqrt Cbrt Exp Expm1 Signum:sign Rint Sin Cos Tan Cot Sec Csc Asin Acos Atan Sinh Cosh Tanh Asinh Acosh "
        "Atanh ToDegrees:degrees ToRadians:radians Log:ln Log10 Log2 Log1p Logarithm:log Pow:power Atan2 Hypot "
        "BRound MonthsBetween:months_between",
    ),
    **_by_type(
        BIGINT,
        "Factorial Crc32 WidthBucket:width_bucket UnixSeconds:unix_seconds UnixMillis:unix_millis "
        "UnixMicros:unix_micros XxHash64:xxhash64",
    ),
    **_by_type(
        DATE,
        "LastDay:last_day DateFromUnixDate:date_from_unix_date MakeDate:make_date NextDay:next_day TruncDate:trunc",
    ),
    **_by_type(
        TIMESTAMP,
        "SecondsToTimestamp:timestamp_seconds MillisToTimestamp:timestamp_millis MicrosToTimestamp:timestamp_micros "
        "FromUTCTimestamp:from_utc_timestamp ToUTCTimestamp:to_utc_timestamp TruncTimestamp:date_trunc",
    ),
    **_by_type(SqlType("timestamp_ntz"), "ConvertTimezone:convert_timezone"),
    **_by_type(
        DAYS, "SubtractTimestamps:timestamps_between SubtractDates:dates_between MakeDTInterval:make_dt_interval"
    ),
    **_by_type(MONTHS, "MakeYMInterval:make_ym_interval"),
    **_by_type(SqlType("binary"), "Unhex UnBase64"),
    **_by_type(SqlType("tinyint"), "BitwiseGet:getbit"),
    **_by_type(STRINGS, "RegExpExtractAll:regexp_extract_all"),
    **_by_type(SqlType("decimal", 8, 6), "SecondWithFraction:second_with_fraction"),
}
# The SQL names of these functions, beside those in planning/allowed_sql.py.
NAMES = frozenset(
    "sqrt cbrt exp expm1 sign signum rint sin cos tan cot sec csc asin acos atan sinh cosh tanh asinh acosh "
    "atanh degrees radians ln log log10 log2 log1p pow power atan2 hypot bround nanvl pmod factorial bit_count "
    "width_bucket bin initcap soundex ascii chr char translate concat_ws instr position locate find_in_set "
    "levenshtein substring_index overlay lpad rpad repeat left right btrim regexp_like regexp rlike "
    "regexp_extract regexp_replace regexp_instr regexp_substr bit_length octet_length hex unhex md5 sha sha1 "
    "sha2 crc32 decode zeroifnull nullifzero last_day weekday dayofyear weekofyear extract dayname monthname "
    "unix_date date_from_unix_date make_date next_day months_between date_format to_date to_timestamp "
    "timestamp_seconds timestamp_millis unix_seconds unix_millis unix_micros timestampdiff timestampadd "
    "hash xxhash64 base64 unbase64 encode to_binary url_encode url_decode try_url_decode parse_url try_parse_url "
    "luhn_check jaro_winkler_similarity quote mask elt conv bit_get getbit format_number format_string printf "
    "to_char to_varchar to_number try_to_number regexp_count regexp_extract_all pi e space typeof make_timestamp "
    "make_timestamp_ltz make_timestamp_ntz try_make_timestamp try_make_timestamp_ltz try_make_timestamp_ntz "
    "to_timestamp_ltz to_timestamp_ntz try_to_timestamp try_to_date from_unixtime to_unix_timestamp unix_timestamp "
    "timestamp_micros from_utc_timestamp to_utc_timestamp convert_timezone make_dt_interval make_ym_interval "
    "to_json".split()
)
