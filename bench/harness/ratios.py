"""Costs as figures: statistics by name, and ratios by the clock and by CPU time."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from bench.harness.clock import Cost, cpu_mean, p50, p95, wall_p50

Figures = dict[str, float | None]
# nothing costs nothing: few and short steps may show no CPU time at all
CPU_LEAST_MS = 1e-3


def ratio(name: str, costs: Sequence[Cost], over: Sequence[Cost], of: str = "") -> Figures:
    """`name_ratio_of` by the clock, at the median; `name_cpu_ratio_of` by CPU time, which neighbours change less."""
    suffix = f"_{of}" if of else ""
    return {
        f"{name}_ratio{suffix}": wall_p50(costs) / wall_p50(over),
        f"{name}_cpu_ratio{suffix}": cpu_mean(costs) / max(cpu_mean(over), CPU_LEAST_MS),
    }


def statistics(name: str, costs: Sequence[Cost], of: str = "") -> Figures:
    """Milliseconds: median, 95th percentile, least, and the mean of CPU time."""
    suffix = f"_{of}" if of else ""
    walls = [cost.wall for cost in costs]
    found = {"ms_p50": p50(walls), "ms_p95": p95(walls), "ms_min": min(walls), "cpu_ms_mean": cpu_mean(costs)}
    return {f"{name}_{statistic}{suffix}": value for statistic, value in found.items()}


def rounded(figures: Mapping[str, float | None]) -> Figures:
    """Four digits behind the point are more than any clock is worth."""
    return {name: None if value is None else round(value, 4) for name, value in figures.items()}


def worst(
    figures: Mapping[str, float | None], name: str, of: Sequence[str], pick: Callable[[Sequence[float]], float]
) -> Figures:
    """The least favourable value of a ratio for several views, under its plain name; None where there is none."""
    found = Figures()
    for kind in ("ratio", "cpu_ratio"):
        ratios = [figures.get(f"{name}_{kind}_{view}") for view in of]
        known = [value for value in ratios if value is not None]
        found[f"{name}_{kind}"] = pick(known) if known else None
    return found
