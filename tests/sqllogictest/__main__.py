"""The command: files of sqllogictest against Tidemark, in three ways.

    python -m tests.sqllogictest FILE... [--dialect postgres] [--mode peek|before|churn] [--json]

The last line of the output is JSON, also of a run that is terminated. The exit status is 1 if something failed.
"""

from __future__ import annotations

import argparse
import json
import logging
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from tests.sqllogictest.first_pass import FAILED
from tests.sqllogictest.modes import MODES
from tests.sqllogictest.parse import ENGINES
from tests.sqllogictest.runner import Runner
from tests.sqllogictest.tally import Tally
from tests.sqllogictest.time_limit import SECONDS
from tidemark_replica.render.step_worker.pool import StepWorkers
from tidemark_replica.spark.session import SparkHolder, start_spark

_SECONDS_BETWEEN = 10.0  # lines of progress


def main(arguments: Sequence[str]) -> int:
    options = _options(arguments)
    missing = [str(f) for f in options.files if not f.is_file()]
    if missing:
        print(f"no such file: {', '.join(missing)}", file=sys.stderr)
        return 2
    logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    folder = Path(tempfile.mkdtemp(prefix="tidemark-slt-"))
    holder = SparkHolder(lambda: start_spark("local[2]", "2g", folder / "spark"))
    workers = StepWorkers(member_seconds=options.patience)
    total = Tally()
    try:
        engines = {*ENGINES, *(name.lower() for name in options.engine or ())}
        how = {"engines": engines, "workers": workers, "patience": options.patience}
        _run(Runner(holder.get(), options.dialect or "", **how), options, total, folder)
    except KeyboardInterrupt:
        _say("terminated; this is what was found so far")
        total.terminated = True
    finally:
        if not options.json:
            print("\n".join(total.explained()))
        print(json.dumps(total.summary()), flush=True)
        workers.close()
        holder.stop()
        shutil.rmtree(folder, ignore_errors=True)
    return 1 if total.counts[FAILED] or total.terminated else 0


def _options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.sqllogictest", description=__doc__.split("\n")[0])
    add = parser.add_argument
    add("files", nargs="+", type=Path, metavar="FILE")
    add("--dialect", help="the SQL of the files: spark, postgres, sqlite, duckdb, ...; else each file's own signs")
    add("--mode", choices=MODES, help="only one of the three ways")
    add("--engine", action="append", help="a name, besides tidemark, that skipif and onlyif mean this engine by")
    add("--patience", type=float, default=SECONDS, help="seconds that a query may take before it has failed")
    add("--json", action="store_true", help="print nothing but the last line")
    return parser.parse_args(arguments)


def _run(runner: Runner, options: argparse.Namespace, total: Tally, folder: Path) -> None:
    modes = [options.mode] if options.mode else MODES
    for number, path in enumerate(options.files):
        began, started, own = time.monotonic(), time.monotonic(), Tally()
        within = folder / str(number)
        for outcome in runner.run(path, modes, within):
            own.add(outcome)
            total.add(outcome)
            if time.monotonic() - started > _SECONDS_BETWEEN:
                started = time.monotonic()
                _say(f"{outcome.place} ({outcome.mode}): {own}")
        shutil.rmtree(within, ignore_errors=True)
        line = f"{path}: {own} in {time.monotonic() - began:.1f} s"
        print(line, flush=True) if not options.json else _say(line)


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
