"""The definition of re-evaluated groups, in plain Python over every group at every time."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable

from tests.arrangement.histories import plain

Row = tuple
Error = str


def expected_output(
    rows: Iterable[tuple[Row | Error, int, int]],
    key: tuple[int, ...],
    as_of: int,
    function: Callable[[Row, Counter], Counter],
    *,
    always: bool = False,
    width: int,
) -> Counter:
    """{(row, error, time): diff}: `function` says what a group of some key and contents (without zeros) shows.

    It gives {(row, error): multiplicity}; an input row that is a text is an error, which passes through.
    """
    output: Counter = Counter()
    groups: dict[Row, list] = defaultdict(list)
    for row, time, diff in rows:
        if isinstance(row, str):
            output[(None,) * width, row, time] += diff
        else:
            canonical = tuple(map(plain, row))
            groups[tuple(canonical[k] for k in key)].append((canonical, time, diff))
    if always:
        groups[()].append((None, as_of, 0))
    for of, changes in groups.items():
        shown: Counter = Counter()
        for time in sorted({t for _, t, _ in changes}):
            contents: Counter = Counter()
            for row, at, diff in changes:
                if at <= time and diff:
                    contents[row] += diff
            contents = Counter({r: n for r, n in contents.items() if n})
            now = _shows(contents, of, function, always, width)
            for what in {*now, *shown}:
                output[(*what, time)] += now[what] - shown[what]
            shown = now
    return Counter({k: d for k, d in output.items() if d})


def _shows(contents: Counter, key: Row, function: Callable, always: bool, width: int) -> Counter:
    if any(n < 0 for n in contents.values()):
        error = '{"code":"NEGATIVE_MULTIPLICITY","expression":"count(*)"}'
        return Counter({((None,) * width, error): 1})
    return function(key, contents) if contents or always else Counter()


def in_order(contents: Counter, *columns: tuple[int, bool, bool]) -> list[Row]:
    """The rows, as often as they are there, by (column, descending, nulls last), then by the whole row."""
    rows = sorted((r for r, n in contents.items() for _ in range(n)), key=lambda r: [rank(v) for v in r])
    for column, descending, nulls_last in reversed(columns):
        rows.sort(key=lambda r: rank(r[column]), reverse=descending)
        rows.sort(key=lambda r: (r[column] is None) == nulls_last)
    return rows


def rank(value: object) -> tuple:
    """By what a value is sorted: NULL first, NaN last, texts by their bytes."""
    if value is None:
        return (0, 0)
    if value == "NaN":
        return (2, 0)
    return (1, value.encode() if isinstance(value, str) else value)
