"""A page of metrics as Prometheus would store it."""

from __future__ import annotations

import urllib.request

from prometheus_client.parser import text_string_to_metric_families

from tests.waiting import BOUND


class Scraped:
    """Values by name and all labels; what was never counted is 0."""

    def __init__(self, page: str) -> None:
        samples = [sample for family in text_string_to_metric_families(page) for sample in family.samples]
        self._values = {(s.name, frozenset(s.labels.items())): s.value for s in samples}

    def value(self, name: str, **labels: str) -> float:
        return self._values.get((name, frozenset(labels.items())), 0.0)


def scrape(port: int) -> Scraped:
    """Raises OSError where nobody serves metrics."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=BOUND) as answer:
        return Scraped(answer.read().decode())
