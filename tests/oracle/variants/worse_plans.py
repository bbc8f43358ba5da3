"""Plans that planning would not choose, in the place of the chosen ones: each of its choices made for the worse."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, replace

from tests.checked_patches import CheckedPatches
from tests.oracle.variants.join_orders import forced, last, worst
from tests.oracle.variants.reduced_first import reduced_first, wherever_possible
from tests.oracle.variants.unshared import apart
from tidemark_planner.lir import hir_to_lir
from tidemark_planner.lir.joins.order import PossibleLookup, Preference
from tidemark_protocol.messages.planning import Planned
from tidemark_protocol.plan.lir import Plan


@dataclass(frozen=True)
class WorsePlans:
    """`choices`: what is chosen in a block in which plans are made. `is_apart`: nothing is shared in them."""

    choices: Callable[[], AbstractContextManager[object]]
    is_apart: bool = False

    def of(self, ask: Callable[[], Planned]) -> Planned:
        """The worse plans of what `ask` plans."""
        with self.choices():
            planned = ask()
        return replace(planned, objects=apart(planned.objects)) if self.is_apart else planned


@contextmanager
def shrinking() -> Iterator[None]:
    """Nothing that is planned in the block is known to grow alone."""
    with CheckedPatches.context() as patch:
        patch.setattr(hir_to_lir, "is_monotonic", lambda node: False)
        yield


@contextmanager
def _all() -> Iterator[None]:
    with ExitStack() as entered:
        for choices in (forced(_worst, last, by_paths=False), reduced_first(wherever_possible), shrinking()):
            entered.enter_context(choices)
        yield


def _worst(lookups: Sequence[PossibleLookup], prefer: Preference) -> PossibleLookup:
    """By an equality, as long as there is one: the rows of a cross join of TPC-H's tables are too many to keep."""
    return worst([each for each in lookups if each.columns] or lookups, prefer)


def _best(lookups: Sequence[PossibleLookup], prefer: Preference) -> PossibleLookup:
    return min(lookups, key=prefer)


WORSE = {
    "worst order": WorsePlans(lambda: forced(_worst, last)),
    "worst order, linear": WorsePlans(lambda: forced(_worst, last, by_paths=False)),
    "chosen order, linear": WorsePlans(lambda: forced(_best, None, by_paths=False)),
    "aggregates first": WorsePlans(lambda: reduced_first(wherever_possible)),
    "never only growing": WorsePlans(shrinking),
    "apart": WorsePlans(nullcontext, is_apart=True),
    "all of these": WorsePlans(_all, is_apart=True),
}


def changed(chosen: Planned, worse: Planned) -> set[str]:
    """The exports whose own plan is another one."""

    def plans(planned: Planned) -> dict[str, Plan]:
        objects = {built.id: built.plan for built in planned.objects}
        return {export.name: objects[export.on] for export in planned.exports}

    before = plans(chosen)
    return {name for name, plan in plans(worse).items() if plan != before[name]}
