"""One query in Pathway: `python program.py FOLDER QUERY`, in an environment that has `pathway` and nothing of ours.

Base tables are static CSV files; lines that change come by a connector: first those that rounds will retract, then
round after round. A round is over when a marker behind it, and the query's rows of that time, have come out. Prints
milliseconds as lines of JSON; results are files of FOLDER. Hydration ends with the rows of `wanted.csv`.
"""

from __future__ import annotations

import csv
import json
import os
import sys
import threading
import time
from collections import Counter
from pathlib import Path

import pathway as pw

NEWEST_SHIPPED, SPRING_1995 = 10471, 9204  # 1998-09-02, 1995-03-15
FIRST_OF_1994, FIRST_OF_1995 = 8766, 9131
ASIA, LARGE = 2, 27000
COLUMNS = ("ok", "sk", "quantity", "price", "discount", "tax", "flags", "shipdate")
# where a time's rows are what they were, its end is not told: then the marker alone says that it is over
QUIET_SECONDS = 0.3
HYDRATION_SECONDS = 1200.0
OTHER_ROWS = 3
"""Exit code: in that time its rows did not become those that are wanted."""


class Line(pw.Schema):
    ok: int
    sk: int
    quantity: int
    price: int
    discount: int
    tax: int
    flags: int
    shipdate: int


class ChangingLine(Line):
    id_: int = pw.column_definition(primary_key=True)


class Order(pw.Schema):
    ok: int = pw.column_definition(primary_key=True)
    ck: int
    orderdate: int
    priority: int
    total: int


class Customer(pw.Schema):
    ck: int = pw.column_definition(primary_key=True)
    nk: int
    building: int


class Supplier(pw.Schema):
    sk: int = pw.column_definition(primary_key=True)
    nk: int


class Nation(pw.Schema):
    nk: int = pw.column_definition(primary_key=True)
    rk: int


def q1(lines: pw.Table, _: Path) -> pw.Table:
    shipped = lines.filter(pw.this.shipdate <= NEWEST_SHIPPED)
    priced = shipped.select(
        pw.this.flags, pw.this.quantity, pw.this.price, pw.this.tax, less=pw.this.price * (100 - pw.this.discount)
    )
    charged = priced.with_columns(charge=pw.this.less * (100 + pw.this.tax))
    return charged.groupby(pw.this.flags).reduce(
        pw.this.flags,
        quantity=pw.reducers.sum(pw.this.quantity),
        price=pw.reducers.sum(pw.this.price),
        less=pw.reducers.sum(pw.this.less),
        charge=pw.reducers.sum(pw.this.charge),
        count=pw.reducers.count(),
    )


def q3(lines: pw.Table, folder: Path) -> pw.Table:
    customers = read(folder, "customer", Customer).filter(pw.this.building == 1)
    orders = read(folder, "orders", Order).filter(pw.this.orderdate < SPRING_1995)
    orders = orders.join(customers, orders.ck == customers.ck).select(orders.ok, orders.orderdate, orders.priority)
    late = lines.filter(pw.this.shipdate > SPRING_1995).select(pw.this.ok, r=revenue())
    met = orders.join(late, orders.ok == late.ok).select(orders.ok, orders.orderdate, orders.priority, late.r)
    return met.groupby(pw.this.ok, pw.this.orderdate, pw.this.priority).reduce(
        pw.this.ok, pw.this.orderdate, pw.this.priority, revenue=pw.reducers.sum(pw.this.r)
    )


def q5(lines: pw.Table, folder: Path) -> pw.Table:
    nations = read(folder, "nation", Nation).filter(pw.this.rk == ASIA)
    suppliers, customers = read(folder, "supplier", Supplier), read(folder, "customer", Customer)
    suppliers = suppliers.join(nations, suppliers.nk == nations.nk).select(suppliers.sk, suppliers.nk)
    customers = customers.join(nations, customers.nk == nations.nk).select(customers.ck, customers.nk)
    orders = read(folder, "orders", Order)
    orders = orders.filter((pw.this.orderdate >= FIRST_OF_1994) & (pw.this.orderdate < FIRST_OF_1995))
    orders = orders.join(customers, orders.ck == customers.ck).select(orders.ok, customers.nk)
    priced = lines.select(pw.this.ok, pw.this.sk, r=revenue())
    met = priced.join(orders, priced.ok == orders.ok).select(priced.sk, orders.nk, priced.r)
    local = met.join(suppliers, met.sk == suppliers.sk, met.nk == suppliers.nk).select(met.nk, met.r)
    return local.groupby(pw.this.nk).reduce(pw.this.nk, revenue=pw.reducers.sum(pw.this.r))


def q18(lines: pw.Table, folder: Path) -> pw.Table:
    sums = lines.groupby(pw.this.ok).reduce(pw.this.ok, quantity=pw.reducers.sum(pw.this.quantity))
    large = sums.filter(pw.this.quantity > LARGE)
    orders, customers = read(folder, "orders", Order), read(folder, "customer", Customer)
    met = orders.join(large, orders.ok == large.ok).select(
        orders.ck, orders.ok, orders.orderdate, orders.total, large.quantity
    )
    return met.join(customers, met.ck == customers.ck).select(met.ck, met.ok, met.orderdate, met.total, met.quantity)


QUERIES = {"q1": q1, "q3": q3, "q5": q5, "q18": q18}


def revenue() -> pw.ColumnExpression:
    return pw.this.price * (100 - pw.this.discount)


def read(folder: Path, name: str, schema: type[pw.Schema]) -> pw.Table:
    return pw.io.csv.read(str(folder / f"{name}.csv"), schema=schema, mode="static")


def integers(path: Path, header: bool) -> list[tuple[int, ...]]:
    with path.open(newline="") as file:
        rows = csv.reader(file)
        if header:
            next(rows)
        return [tuple(map(int, row)) for row in rows]


class Result:
    """The query's rows as they come out, and how far they and the markers are."""

    def __init__(self, wanted: Counter[tuple[int, ...]]) -> None:
        self.rows, self.wanted = Counter[tuple[int, ...]](), wanted
        self.hydrated_at: float | None = None
        self.changed = threading.Condition()
        self._over, self._markers = -1, dict[int, int]()

    def on_change(self, key: object, row: dict[str, int], time: int, is_addition: bool) -> None:
        values = tuple(row.values())
        self.rows[values] += 1 if is_addition else -1
        if self.rows[values] == 0:
            del self.rows[values]

    def on_time_end(self, at: int) -> None:
        with self.changed:
            self._over = at
            if self.hydrated_at is None and len(self.rows) == len(self.wanted) and self.rows == self.wanted:
                self.hydrated_at = time.perf_counter()
            self.changed.notify_all()

    def on_marker(self, key: object, row: dict[str, int], time: int, is_addition: bool) -> None:
        if is_addition:
            with self.changed:
                self._markers[row["ids"]] = time
                self.changed.notify_all()

    def wait_hydrated(self) -> float:
        with self.changed:
            if not self.changed.wait_for(lambda: self.hydrated_at is not None, HYDRATION_SECONDS):
                print(f"not hydrated: {len(self.rows)} rows for {len(self.wanted)}", file=sys.stderr, flush=True)
                os._exit(OTHER_ROWS)
        assert self.hydrated_at is not None
        return self.hydrated_at

    def wait_round(self, ids: int) -> float:
        """When the marker of this sum of ids had come out, and with it the rows."""
        with self.changed:
            self.changed.wait_for(lambda: ids in self._markers, HYDRATION_SECONDS)
            marked = time.perf_counter()
            in_time = self.changed.wait_for(lambda: self._over >= self._markers[ids], QUIET_SECONDS)
        return time.perf_counter() if in_time else marked

    def write(self, path: Path) -> None:
        with path.open("w", newline="") as file:
            csv.writer(file).writerows(self.rows.elements())


class Rounds(pw.io.python.ConnectorSubject):
    """Feeds the lines that change, and takes the times."""

    def __init__(self, folder: Path, result: Result) -> None:
        super().__init__()
        self._folder, self._result = folder, result
        self._sizes = [size for (size,) in integers(folder / "sizes.csv", header=True)]
        self._going, self._coming = (self._numbered(name) for name in ("going", "coming"))
        self._ids = 0

    def run(self) -> None:
        for lines in self._going:
            for line in lines:
                self._add(line)
        self.commit()
        said(began, self._result.wait_hydrated())
        self._result.write(self._folder / "hydrated.csv")
        for size, going, coming in zip(self._sizes, self._going, self._coming, strict=True):
            start = time.perf_counter(), time.process_time()
            for line in going:
                self._ids -= line["id_"]
                self.delete(**line)
            for line in coming:
                self._add(line)
            self.commit()
            said(start, self._result.wait_round(self._ids), rows=size)
        self._result.write(self._folder / "final.csv")
        sys.stdout.flush()
        os._exit(0)

    def _add(self, line: dict[str, int]) -> None:
        self._ids += line["id_"]
        self.next(**line)

    def _numbered(self, name: str) -> list[list[dict[str, int]]]:
        rounds: list[list[dict[str, int]]] = [[] for _ in self._sizes]
        # a marker is the sum of all ids there are, and grows with every round
        first = 1 if name == "going" else 10**6
        for number, (at, *line) in enumerate(integers(self._folder / f"{name}.csv", header=True), first):
            rounds[at].append({"id_": number, **dict(zip(COLUMNS, line, strict=True))})
        return rounds


def said(start: tuple[float, float], end: float, **more: int) -> None:
    cpu = time.process_time() - start[1]
    print(json.dumps({**more, "wall": (end - start[0]) * 1e3, "cpu": cpu * 1e3}), flush=True)


if __name__ == "__main__":
    home, query = Path(sys.argv[1]), sys.argv[2]
    result = Result(Counter(integers(home / "wanted.csv", header=False)))
    subject = Rounds(home, result)
    changing = pw.io.python.read(subject, schema=ChangingLine, autocommit_duration_ms=None)
    base, others = read(home, "lineitem", Line), changing.without(pw.this.id_)
    pw.universes.promise_are_pairwise_disjoint(base, others)
    rows = QUERIES[query](base.concat(others), home)
    markers = changing.reduce(ids=pw.reducers.sum(pw.this.id_))
    pw.io.subscribe(rows, on_change=result.on_change, on_time_end=result.on_time_end)
    pw.io.subscribe(markers, on_change=result.on_marker)
    began = time.perf_counter(), time.process_time()
    pw.run(monitoring_level=pw.MonitoringLevel.NONE)
