"""Alerts and dashboards name existing metrics with existing labels."""

from __future__ import annotations

import json
import re
from typing import Any, cast

import pytest
import yaml
from prometheus_client.core import Metric

from tests.chart.render import CHART, ROOT, rendered_objects
from tests.gateway.server.test_metrics import fleet
from tests.gateway.source_tables import registered
from tidemark_operator import metrics
from tidemark_operator.catalogue.registry import Registry
from tidemark_operator.kube.client import Kube
from tidemark_operator.kube.leadership import Leadership

ALERTS = yaml.safe_load((CHART / "files" / "alerts.yaml").read_text())
DASHBOARD = json.loads((CHART / "files" / "dashboard.json").read_text())
NAME = re.compile(r"tidemark_[a-z_]+")
SELECTOR = re.compile(r"(tidemark_[a-z_]+)\{([^}]*)\}")
GROUPED = re.compile(r"by \(([^)]*)\)")
# what is added up over instances is of no instance any more
OF_HISTOGRAMS = ("_bucket", "_sum", "_count")


def exported_metrics() -> dict[str, set[str]]:
    """Labels by the names that Prometheus stores."""
    samples: dict[str, set[str]] = {}
    there = fleet()
    leadership = Leadership(cast(Kube, None), "ns", "me")
    for metric in [*metrics.leading(leadership), *metrics.metrics(there, registered(there))]:
        for name in stored(metric):
            samples.setdefault(name, set()).update(*(s.labels for s in metric.samples if s.name == name))
    return samples


def stored(metric: Metric) -> list[str]:
    if metric.type == "histogram":
        return [metric.name + ending for ending in OF_HISTOGRAMS]
    return [f"{metric.name}_total"] if metric.type == "counter" else [metric.name]


def expressions() -> dict[str, str]:
    rules = {rule["alert"]: rule["expr"] for group in ALERTS["groups"] for rule in group["rules"]}
    panels = {f"{p['title']} {t['refId']}": t["expr"] for p in DASHBOARD["panels"] for t in p["targets"]}
    variables = {v["name"]: v["query"] for v in DASHBOARD["templating"]["list"] if v["type"] == "query"}
    return rules | panels | variables


@pytest.mark.parametrize("where", expressions())
def test_every_metric_that_is_asked_for_is_told_with_these_labels(where: str) -> None:
    """An alert on a metric that does not exist never fires, and nobody notices."""
    expression, there = expressions()[where], exported_metrics()

    assert NAME.search(expression)
    for name in NAME.findall(expression):
        assert name in there, f"{where}: nobody tells {name}"
    for name, matchers in SELECTOR.findall(expression):
        for matcher in filter(None, matchers.split(",")):
            assert re.match(r"[a-z_]+", matcher)[0] in there[name], f"{where}: {name} has no such label: {matcher}"  # type: ignore[index]
    labels = set.intersection(*(there[name] for name in NAME.findall(expression)))
    for group in GROUPED.findall(expression):
        assert set(group.split(", ")) - {"le"} <= labels, where


@pytest.mark.parametrize("where", expressions())
def test_brackets_of_an_expression_are_closed(where: str) -> None:
    """The test goes as far as it can without Prometheus's own parser."""
    text = re.sub(r'"[^"]*"', '""', expressions()[where])
    while (shorter := re.sub(r"\(\)|\{\}|\[\]", "", re.sub(r"[^(){}\[\]]", "", text))) != text:
        text = shorter

    assert text == ""


def test_buckets_that_are_asked_for_are_told() -> None:
    """`le` is compared as text."""
    bounds = {s.labels["le"] for m in metrics.metrics(fleet(), Registry()) for s in m.samples if "le" in s.labels}
    asked = {le for text in expressions().values() for le in re.findall(r'le="([^"]*)"', text)}

    assert asked
    assert asked <= bounds


def test_each_alert_says_what_it_means_and_what_to_do() -> None:
    """With labels that its expression leaves."""
    for rule in (rule for group in ALERTS["groups"] for rule in group["rules"]):
        assert rule["labels"]["severity"] in ("critical", "warning")
        says: dict[str, Any] = rule["annotations"]
        assert says.keys() == {"summary", "description"}
        asked = set(re.findall(r"\$labels\.(\w+)", str(says)))
        assert asked <= set.intersection(*(exported_metrics()[name] for name in NAME.findall(rule["expr"])))


def test_the_runbook_has_every_alert_once() -> None:
    """And none that does not exist."""
    page = (ROOT / "docs" / "guides" / "alerts.md").read_text()
    rules = [rule["alert"] for group in ALERTS["groups"] for rule in group["rules"]]

    assert re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE) == rules


def test_the_reference_has_every_metric_of_the_operator() -> None:
    """`_name` continues the beginning of the first name of its row, up to a whole word."""
    page = (ROOT / "docs" / "reference" / "metrics.md").read_text().partition("## Replica")[0]
    named = set()
    for row in re.findall(r"^\| (`tidemark_[^|]*) \|", page, re.MULTILINE):
        first, *more = re.findall(r"`([a-z_]+)`", row)
        words = first.split("_")
        named |= {first, *("_".join(words[:n]) + rest for rest in more for n in range(2, len(words)))}
    there, leadership = fleet(), Leadership(cast(Kube, None), "ns", "me")
    exported = {m.name for m in [*metrics.leading(leadership), *metrics.metrics(there, registered(there))]}

    assert exported - named == set()


def test_dashboard_and_alerts_are_rendered_as_they_are() -> None:
    """Their own braces are nothing that helm takes for its own."""
    bodies = {(body["kind"], body["metadata"]["name"]): body for body in rendered_objects("watched")}

    assert bodies["PrometheusRule", "tidemark-operator"]["spec"] == ALERTS
    assert json.loads(bodies["ConfigMap", "tidemark-dashboards"]["data"]["tidemark.json"]) == DASHBOARD
    assert bodies["PodMonitor", "tidemark-operator"]["metadata"]["labels"]["release"] == "prometheus"


def test_without_prometheus_there_is_nothing_of_it() -> None:
    """A release must not fail for kinds that the cluster does not have."""
    assert not [
        body
        for case in ("default", "confined")
        for body in rendered_objects(case)
        if "monitoring" in body["apiVersion"]
    ]
