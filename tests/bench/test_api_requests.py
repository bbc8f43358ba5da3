"""The API server's request counters, as the operator's benchmark reads them."""

from __future__ import annotations

import pytest

from bench.harness.api_requests import Asked, Rates, parsed

BEFORE = """
# TYPE apiserver_request_total counter
apiserver_request_total{code="200",component="apiserver",dry_run="",group="compute.tidemark.dev",resource="dataflows",\
scope="resource",subresource="status",verb="PATCH",version="v1alpha1"} 10
apiserver_request_total{code="409",component="apiserver",dry_run="",group="compute.tidemark.dev",resource="dataflows",\
scope="resource",subresource="status",verb="PATCH",version="v1alpha1"} 1
apiserver_request_total{code="200",component="apiserver",dry_run="",group="coordination.k8s.io",resource="leases",\
scope="resource",subresource="",verb="PUT",version="v1"} 100
apiserver_request_total{code="200",component="",dry_run="",group="",resource="",scope="",subresource="/metrics",\
verb="GET",version=""} 7
""".replace("\\\n", "")
AFTER = BEFORE.replace("} 100", "} 1.3e+02").replace("} 10", "} 60").replace("} 7", "} 9")
STATUS = Asked("PATCH", "dataflows.compute.tidemark.dev/status")
LEASE = Asked("PUT", "leases.coordination.k8s.io")


def test_requests_are_counted_by_what_was_asked_for_whatever_the_answer() -> None:
    """Requests that concern no resource, such as these metrics, are left out."""
    assert parsed(BEFORE) == {STATUS: 11, LEASE: 100}


def test_status_writes_are_told_from_the_rest_and_the_rest_from_what_is_asked_anyway() -> None:
    """Fifty writes in ten seconds; three renewals a second, of which others make two and a half."""
    rates = Rates.between(parsed(BEFORE), parsed(AFTER), 10.0)

    assert rates.status_writes == 5.0
    assert rates.others(Rates({})) == 3.0
    assert rates.others(Rates({LEASE: 2.5, STATUS: 9.0, Asked("LIST", "nodes."): 1.0})) == pytest.approx(0.5)
    assert rates.most(1) == {"PATCH dataflows.compute.tidemark.dev/status": 5.0}
