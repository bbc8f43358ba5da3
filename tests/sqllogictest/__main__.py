"""The command: files of sqllogictest against Tidemark, in three ways.

    python -m tests.sqllogictest FILE... [--dialect postgres] [--mode peek|before|churn] [--json]

The last line of the output is JSON. The exit status is 1 if something failed.
"""

from __future__ import annotations

import argparse
import json
import logging
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from tests.sqllogictest.first_pass import FAILED, PASSED, UNSUPPORTED
from tests.sqllogictest.modes import MODES
from tests.sqllogictest.parse import ENGINES
from tests.sqllogictest.runner import Outcome, Runner
from tidemark_replica.spark_session import SparkHolder, start_spark

MOST_SHOWN = 20
MOST_LISTED = 1_000


def main(arguments: Sequence[str]) -> int:
    options = _options(arguments)
    missing = [str(f) for f in options.files if not f.is_file()]
    if missing:
        print(f"no such file: {', '.join(missing)}", file=sys.stderr)
        return 2
    logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)
    folder = Path(tempfile.mkdtemp(prefix="tidemark-slt-"))
    holder = SparkHolder(lambda: start_spark("local[2]", "2g", folder / "spark"))
    workers = StepWorkers(patience=options.patience)
    try:
        modes = [options.mode] if options.mode else MODES
        outcomes = list(_run(Runner(holder.get(), options.dialect or "", engines=engines, workers=workers), options, modes, folder))
    finally:
        workers.close()
        holder.stop()
        shutil.rmtree(folder, ignore_errors=True)
    if not options.json:
        _explain(outcomes)
    print(json.dumps(summary(outcomes)), flush=True)
    return 1 if any(o.kind == FAILED for o in outcomes) else 0


def summary(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """What the last line says."""
    counts = Counter(o.kind for o in outcomes)
    failures = [
        {
            "file": str(o.place.file),
            "line": o.place.line,
            "mode": o.mode,
            "sql": o.sql,
            "reason": o.reason,
            "expected": o.expected,
            "found": o.found,
        }
        for o in outcomes
        if o.kind == FAILED
    ]
    numbers = {kind: counts[kind] for kind in (PASSED, FAILED, UNSUPPORTED)}
    return {**numbers, "failures": failures[:MOST_LISTED]}


def _options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.sqllogictest", description=__doc__.split("\n")[0])
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE")
    parser.add_argument(
        "--dialect", help="the SQL of the files: spark, postgres, sqlite, ...; else each file's own signs"
    )
    parser.add_argument("--engine", action="append", help="a name by which skipif and onlyif know this engine, too")
    parser.add_argument("--mode", choices=MODES, help="only one of the three ways")
    parser.add_argument("--json", action="store_true", help="print nothing but the last line")
    return parser.parse_args(arguments)


def _run(spark: Any, options: argparse.Namespace, modes: Sequence[str], folder: Path) -> Iterable[Outcome]:
    engines = {*ENGINES, *(name.lower() for name in options.engine or ())}
    runner = Runner(spark, options.dialect or "", engines=engines)
    for number, path in enumerate(options.files):
        began, found = time.monotonic(), Counter[str]()
        within = folder / str(number)
        for outcome in runner.run(path, modes, within):
            found[outcome.kind] += 1
            if sum(found.values()) % 100 == 0:
                _say(f"{path} ({outcome.mode}): {_counted(found)}")
            yield outcome
        shutil.rmtree(within, ignore_errors=True)
        line = f"{path}: {_counted(found)} in {time.monotonic() - began:.1f} s"
        print(line, flush=True) if not options.json else _say(line)


def _explain(outcomes: Sequence[Outcome]) -> None:
    """Failures in full, and why the rest is not supported, by reason."""
    failed = [o for o in outcomes if o.kind == FAILED]
    for o in failed[:MOST_SHOWN]:
        print(f"{o.place} ({o.mode}): {o.reason}\n  {o.sql}\n  expected: {o.expected}\n  found:    {o.found}")
    if len(failed) > MOST_SHOWN:
        print(f"and {len(failed) - MOST_SHOWN} more")
    for reason, n in Counter(o.reason for o in outcomes if o.kind == UNSUPPORTED).most_common(MOST_SHOWN):
        print(f"{n} times unsupported: {reason}")


def _counted(found: Counter[str]) -> str:
    return ", ".join(f"{found[kind]} {kind}" for kind in (PASSED, FAILED, UNSUPPORTED))


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
