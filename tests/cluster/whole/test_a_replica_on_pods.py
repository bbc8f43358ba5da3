"""A ComputeReplica whose driver and executors are pods: what it computes, what may be read, and what nobody may."""

from __future__ import annotations

import base64
import json

import yaml

from tests.cluster.waiting import wait_for
from tests.cluster.whole.gateway import Gateway, let_read
from tests.cluster.whole.system import EXAMPLES, EXECUTORS, System

REVENUE = yaml.safe_load((EXAMPLES / "40-revenue.yaml").read_text())["spec"]["sql"]
NEWCOMER = "newcomer"


def test_views_hydrate_on_two_executors_and_their_frontiers_advance(ready: System) -> None:
    """The rows of a materialized view are those of DuckDB on the tables at the same time, in the object store."""
    assert len(ready.drivers()) == 1
    assert len(ready.running_executors()) == EXECUTORS
    ready.right_at_a_new_frontier("revenue", REVENUE, "customer", "orders", "lineitem", "nation")
    ready.wait_progress("regions")


def test_rows_are_read_by_whom_it_was_granted(ready: System) -> None:
    """`get` on dataflows/data, by a RoleBinding; without it, the gateway says what is missing."""
    ready.kubectl("create", "serviceaccount", NEWCOMER)
    way = Gateway(ready, NEWCOMER)
    refused = way.ask("SELECT * FROM regions")
    assert (refused.returncode, "dataflows/data" in refused.stderr) == (1, True), refused.stderr
    let_read(ready, NEWCOMER)

    def granted() -> list[dict[str, str]]:
        done = way.ask("SELECT * FROM regions")
        return list(json.loads(done.stdout)["rows"]) if done.returncode == 0 else []

    assert len(wait_for("the right to be seen", granted, ready.explain)) == 5


def test_executors_have_no_token_and_nobody_tells_a_secret(ready: System) -> None:
    """Neither Spark's own nor that of the object store is in a pod's specification, a status or an event."""
    spark = ready.get("secret", ready.driver().removesuffix("-0"))["data"]["secret"]
    hidden = [base64.b64decode(spark).decode(), ready.store.secret_key]
    told = ready.kubectl("get", "pods,statefulsets,configmaps,events,controllerrevisions", "--output=yaml")
    told += ready.kubectl("get", "computeinstances,computereplicas,dataflows,datasources", "--output=yaml")
    assert not any(secret in told for secret in hidden)
    for executor in ready.executors():
        assert executor["spec"]["serviceAccountName"] == "tidemark-executor"
        assert not any("projected" in volume for volume in executor["spec"]["volumes"])
