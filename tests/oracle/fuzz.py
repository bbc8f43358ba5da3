"""Properties of any script of a case, in this process: DuckDB is the only batch engine.

incremental   at every frontier, contents = those of a dataflow that begins there
pieces        other steps, rows in another order, few at a time: the same updates
compacted     compacted after each step: the same updates, and the index says the same
restarted     begun anew in the middle: the same from there on
interrupted   every step cut short at several points, then run twice at once: the same updates, and no file too many
merged        batches merged in steps and beside them, settled and swept at any time: the same updates, no file too many
in tasks      every step, or some of them, exchanged among several tasks: the same updates
DuckDB        at every frontier its rows, where the case says that it means the same
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.oracle.check import Case, Wrong, rounded
from tests.oracle.harness import Updates, contents
from tests.oracle.reference import duckdb_answers
from tests.oracle.scripts import Script
from tests.oracle.variants import Variant, built, compacted, from_time, restarted
from tests.oracle.variants.in_process import InPieces, InProcessHarness, in_process, interrupted
from tests.oracle.variants.in_tasks import InTasks
from tests.oracle.variants.merged import merged
from tidemark_protocol.frontier import Frontier
from tidemark_protocol.plan.dataflow import DataflowDescription
from tidemark_replica.render.execution.step_shape import ExchangePolicy

WAYS: Mapping[str, Variant] = {
    "pieces": built(runner=InPieces),
    "compacted": compacted,
    "restarted": restarted,
    "interrupted": interrupted,
    "merged": merged,
    "in tasks": built(runner=InTasks, exchange_policy=ExchangePolicy(3, from_rows=0)),
    "in tasks now and then": built(runner=InTasks, exchange_policy=ExchangePolicy(2, from_rows=6)),
}


@dataclass(frozen=True)
class Planned:
    """A case and its dataflow, planned once, over tables in a folder."""

    case: Case
    description: DataflowDescription
    folder: Path

    def check(self, script: Script) -> None:
        """Raise Wrong if the script shows a mistake; NeedsCatalyst if it cannot be run here."""
        history = script.history
        with in_process(self.folder, self.case.tables, history) as of:
            description = self.description.with_as_of(Frontier.at(history.as_of))
            updates = of.run(description, script.bounds)
            for name, way in WAYS.items():
                as_of, found = way(of, description, script.other_bounds)
                if found != from_time(updates, as_of):
                    raise Wrong(f"{self.case.name}, {name}: {_difference(found, from_time(updates, as_of))}")
            self._check_incremental(of, script, updates)
        self._check_duckdb(script, updates)

    def _check_incremental(self, of: InProcessHarness, script: Script, updates: Updates) -> None:
        for time in script.history.times:
            anew = of.run(self.description.with_as_of(Frontier.at(time)), [time + 1])
            shown = contents(updates, time)
            if shown != contents(anew, time):
                raise Wrong(f"{self.case.name} at {time}: shows {shown}, begun there {contents(anew, time)}")
            if any(n < 0 for part in shown for n in part.values()):
                raise Wrong(f"{self.case.name} at {time}: negative multiplicities in {shown}")

    def _check_duckdb(self, script: Script, updates: Updates) -> None:
        case = self.case
        text = case.sql if case.duckdb == "same" else case.duckdb
        answers = {} if text is None else duckdb_answers(text, case.tables, script.history)
        for time, answer in answers.items():
            rows, errors = contents(updates, time)
            if answer.rows is not None and not errors and rounded(rows) != rounded(answer.rows):
                raise Wrong(f"{case.name} at {time}: shows {dict(rows)}, DuckDB answers {dict(answer.rows)}")


def _difference(one: Updates, other: Updates) -> str:
    return f"only {dict(one - other)} against {dict(other - one)}"
