"""Samples as a table, pure: one line per measure, a few columns of time, and the growth in the second half.

The first half is left out of the growth: hydration, warming up, and what is kept for a while before it goes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

COLUMNS = 6
_SINGLE = ("shard ", "arrangement ")


def render(samples: Sequence[Mapping[str, float]], *, everything: bool = False) -> str:
    """The table as text."""
    names = sorted({name for sample in samples for name in sample} - {"minute"})
    shown = [name for name in names if everything or not name.startswith(_SINGLE)]
    chosen = spread(len(samples), COLUMNS)
    start = samples[0]["minute"]
    minutes = [f"{samples[i]['minute'] - start:.1f} min" for i in chosen]
    lines = [["", *minutes, "per hour"]]
    lines += [[name, *_cells(samples, name, chosen), f"{per_hour(samples, name):+.1f}"] for name in shown]
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    return "\n".join(_aligned(line, widths) for line in lines)


def spread(count: int, columns: int) -> list[int]:
    """At most so many positions of 0..count-1, evenly, with the first and the last."""
    if count <= columns:
        return list(range(count))
    return [round(i * (count - 1) / (columns - 1)) for i in range(columns)]


def per_hour(samples: Sequence[Mapping[str, float]], name: str) -> float:
    """The growth per hour: the slope of the least squares through the second half of the samples."""
    half = [s for s in samples[len(samples) // 2 if len(samples) > 3 else 0 :] if name in s]
    if len(half) < 2:
        return 0.0
    hours, values = [s["minute"] / 60 for s in half], [s[name] for s in half]
    mean_hour, mean_value = sum(hours) / len(hours), sum(values) / len(values)
    spread_of_hours = sum((h - mean_hour) ** 2 for h in hours)
    together = sum((h - mean_hour) * (v - mean_value) for h, v in zip(hours, values, strict=True))
    return together / spread_of_hours if spread_of_hours else 0.0


def _cells(samples: Sequence[Mapping[str, float]], name: str, chosen: Sequence[int]) -> list[str]:
    return [_number(samples[i].get(name)) for i in chosen]


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:.0f}" if value >= 100 or value == int(value) else f"{value:.1f}"


def _aligned(line: Sequence[str], widths: Sequence[int]) -> str:
    name, *cells = line
    return "  ".join([name.ljust(widths[0]), *(c.rjust(w) for c, w in zip(cells, widths[1:], strict=True))])
