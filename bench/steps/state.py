"""Does a step follow the delta, or the state? Each kind of state at two sizes, taking turns.

state_ratio_KIND   a step on the largest state over one on the smallest; plain: the greatest
"""

from __future__ import annotations

from bench.harness.ratios import Figures, ratio, statistics, worst
from bench.harness.workload.queries import STATE, Query
from bench.steps.setting import Setting


def figures(given: Setting, kinds: tuple[Query, ...] = STATE) -> Figures:
    """The figures of every kind, one after the other, over the same histories."""
    options, found = given.options, Figures()
    ticks = [options.delta_rows] * ((options.warm_up + options.steps) * len(kinds))
    with given.histories(options.state_lines, kinds, ticks) as histories:
        for kind in kinds:
            sizes = given.measure(histories, [kind]).views
            for size in sizes:
                found |= statistics("step", size.steps, f"{kind.name}_{size.label}")
                found[f"jobs_per_step_{kind.name}_{size.label}"] = sum(size.jobs) / len(size.jobs)
                found[f"hydration_s_{kind.name}_{size.label}"] = size.hydration.wall / 1e3
                found[f"state_rows_{kind.name}_{size.label}"] = size.state_rows
                found[f"state_mib_{kind.name}_{size.label}"] = size.state_bytes / 2**20
            found |= ratio("state", sizes[-1].steps, sizes[0].steps, kind.name)
    return found | worst(found, "state", [kind.name for kind in kinds], max)
