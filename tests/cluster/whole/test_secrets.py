"""Secrets stay in Secrets: no other readable object and no log has their contents."""

from __future__ import annotations

import base64
from collections.abc import Iterator

from tests.cluster import pods
from tests.cluster.whole.system import System

OF_THE_TEAM = (
    "pods,statefulsets,services,configmaps,poddisruptionbudgets,events,controllerrevisions,"
    "computeinstances,computereplicas,dataflows,datasources"
)
OF_THE_RELEASE = "pods,deployments,replicasets,services,endpointslices,leases,configmaps,events"
PRIVATE = "PRIVATE KEY"


def test_no_object_and_no_log_has_a_secret(ready: System) -> None:
    """Neither Spark's own, nor the object store's, nor the key of any certificate."""
    hidden = {*private_lines(ready), spark_secret(ready), ready.store.secret_key, ready.store.access_key, PRIVATE}
    assert len(hidden) > 5, "of the authority, the planner and a replica, of Spark and the object store"
    for where, text in readable_texts(ready):
        found = sum(secret in text for secret in hidden)
        assert not found, f"{where} tells {found} of what is hidden"


def test_executors_have_no_token(ready: System) -> None:
    """They run under an account without rights, which they cannot even show."""
    for executor in ready.executors():
        assert executor["spec"]["serviceAccountName"] == "tidemark-executor"
        assert not any("projected" in volume for volume in executor["spec"]["volumes"])


def spark_secret(system: System) -> str:
    data = system.get("secret", system.driver().removesuffix("-0"))["data"]["secret"]
    return base64.b64decode(data).decode()


def private_lines(system: System) -> Iterator[str]:
    """The longest line of each key that a Secret of ours holds, as PEM has it: it is found however it is indented."""
    for namespace in (system.home, system.team):
        for secret in pods.get(system.node, namespace, "secrets")["items"]:
            for value in (base64.b64decode(each).decode(errors="replace") for each in secret.get("data", {}).values()):
                if PRIVATE in value:
                    yield max(value.splitlines(), key=len)


def readable_texts(system: System) -> Iterator[tuple[str, str]]:
    """Objects of both namespaces, and the logs of all pods in them."""
    for namespace, kinds in ((system.team, OF_THE_TEAM), (system.home, OF_THE_RELEASE)):
        yield f"{kinds} in {namespace}", system.node.kubectl("get", kinds, "-n", namespace, "--output=yaml")
        for pod in pods.get(system.node, namespace, "pods")["items"]:
            name = pod["metadata"]["name"]
            log = system.node.kubectl("logs", "-n", namespace, name, "--all-containers")
            assert log or pod["status"]["phase"] != "Running", f"{name} says nothing"
            yield f"the log of {namespace}/{name}", log
