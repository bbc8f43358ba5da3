"""The Iceberg catalogue of a ComputeInstance: which ones are refused, and what replicas and statuses get."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.resources.manifests import body
from tidemark_operator.controller.reports.publication import publication_report
from tidemark_operator.handlers.publish.status_documents import published_document
from tidemark_operator.handlers.replica_specs import replica_spec
from tidemark_operator.resources.manifest.errors import InvalidValue
from tidemark_operator.resources.manifest.instance import ComputeInstance
from tidemark_operator.resources.manifest.replica import ComputeReplica

SECRET = {"sourceSecrets": ["catalogue"]}


def instance(iceberg: dict[str, Any], **more: Any) -> ComputeInstance:
    spec = {"storage": {"location": "/data"}, "publish": {"iceberg": iceberg}, **more}
    return ComputeInstance.parse(body("ComputeInstance", spec, "i"))


def test_replicas_get_the_name_of_the_secret_alone() -> None:
    found = instance({"uri": "https://c/x", "warehouse": "w", "secretName": "catalogue"}, **SECRET)
    replica = ComputeReplica.parse(body("ComputeReplica", {"instance": "i"}, "r", uid="u"))
    pod = replica_spec(replica, found).pod
    assert json.loads(pod.iceberg) == {"uri": "https://c/x", "warehouse": "w", "secret": "catalogue"}
    assert replica_spec(replica, None).pod.iceberg == ""


@pytest.mark.parametrize(
    ("iceberg", "more", "message"),
    [
        ({"uri": "ftp://c"}, {}, "uri"),
        ({"uri": "https://user:word@c"}, {}, "without user"),
        ({"uri": "https://c?token=x"}, {}, "without user"),
        ({"uri": "http://c", "secretName": "catalogue"}, SECRET, "must be https"),
        ({"uri": "https://c", "secretName": "catalogue"}, {}, "one of sourceSecrets"),
    ],
)
def test_refused(iceberg: dict[str, Any], more: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidValue, match=message):
        instance(iceberg, **more)


def test_the_status_has_the_time_of_the_iceberg_table() -> None:
    report = publication_report({"time": "7", "rows": "1", "bytes": "9", "icebergTime": "5"})
    document = published_document("/lake/t", report, "sales.spent")
    assert document == {
        "location": "/lake/t",
        "time": 7,
        "rows": 1,
        "bytes": 9,
        "iceberg": {"table": "sales.spent", "time": 5},
    }
    assert published_document("/lake/t", None, "sales.spent")["iceberg"] == {"table": "sales.spent"}
    assert "iceberg" not in published_document("/lake/t", report)
