"""Kubernetes' own kinds that the operator applies: StatefulSets, Services and what they need."""

from __future__ import annotations

from tidemark_operator.kube.client import CONFIG_MAPS, Body, Resource

PODS = Resource("", "v1", "pods", "Pod")
SERVICES = Resource("", "v1", "services", "Service")
STATEFUL_SETS = Resource("apps", "v1", "statefulsets", "StatefulSet")
DISRUPTION_BUDGETS = Resource("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget")
MADE = (STATEFUL_SETS, SERVICES, CONFIG_MAPS, DISRUPTION_BUDGETS)


def resource_of(body: Body) -> Resource:
    """The kind of an object that we create; raises KeyError for every other kind."""
    return {(each.api_version, each.kind): each for each in MADE}[body["apiVersion"], body["kind"]]
