"""Writes the topics of customers.yaml: customers by key, and accounts as Debezium writes the changes of a table.

    python customers.py 127.0.0.1:9092

It needs the package `confluent-kafka`, and a broker that creates topics by itself, or has `customers` and
`shop.public.accounts`.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from confluent_kafka import Producer

CUSTOMERS: list[tuple[int, Any]] = [
    (1, {"name": "ann"}),
    (2, {"name": "bob"}),
    (1, {"name": "eve"}),  # a newer row with key 1
    (2, None),  # no row with key 2 any more
]
ACCOUNTS: list[tuple[int, str, Any]] = [
    (7, "c", {"id": 7, "customer": 1, "balance": "10.00"}),
    (8, "c", {"id": 8, "customer": 1, "balance": "5.00"}),
    (7, "u", {"id": 7, "customer": 1, "balance": "12.50"}),
    (8, "d", None),
]


def produce(brokers: str) -> None:
    producer = Producer({"bootstrap.servers": brokers})
    for id, customer in CUSTOMERS:
        value = None if customer is None else json.dumps(customer)
        producer.produce("customers", value, json.dumps({"id": id}))
    for place, (id, op, after) in enumerate(ACCOUNTS, 1):
        source = {"connector": "postgresql", "sequence": json.dumps([str(place - 1), str(place)]), "ts_ms": place}
        event = {"op": op, "before": None, "after": after, "source": source}
        producer.produce("shop.public.accounts", json.dumps(event), json.dumps({"id": id}))
    if producer.flush(60):
        raise SystemExit("the broker takes no records")


if __name__ == "__main__":
    produce(sys.argv[1])
