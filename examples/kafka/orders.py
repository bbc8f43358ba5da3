"""Writes the topic of topic.yaml: three orders each time it is called, and a record that is no order.

    python orders.py 127.0.0.1:9092

It needs the package `confluent-kafka`, and a broker that creates topics by itself, or has the topic `orders`.
"""

from __future__ import annotations

import json
import sys

from confluent_kafka import Producer

NAMES = ["ann", "bob", "eve"]


def produce(brokers: str, first: int = 0) -> None:
    producer = Producer({"bootstrap.servers": brokers})
    for number, name in enumerate(NAMES, first):
        order = {"id": number, "customer": name, "amount": 10.25}
        producer.produce("orders", json.dumps(order), name)
    producer.produce("orders", "no order")
    if producer.flush(60):
        raise SystemExit("the broker takes no records")


if __name__ == "__main__":
    produce(sys.argv[1])
