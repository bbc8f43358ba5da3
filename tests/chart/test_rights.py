"""The rights of the chart's roles at a real API server: all that each account needs, and no more."""

from __future__ import annotations

import pytest

from tests.chart.clusters import GROUP, OURS, May, account, answers, apply, cluster, rights, wait_for_bindings
from tests.chart.render import NAMESPACE, rendered_objects
from tidemark_devcluster.control_plane.control_plane import ControlPlane
from tidemark_operator.certificates.names import AUTHORITY
from tidemark_operator.certificates.names import PLANNER as PLANNER_SECRET

__all__ = ["cluster", "rights"]

pytestmark = pytest.mark.cluster

OPERATOR, PLANNER, TEST = account("tidemark-operator"), account("tidemark-planner"), account("tidemark-test")
DRIVER, EXECUTOR = account("tidemark-driver", "team-a"), account("tidemark-executor", "team-a")
ALL = ("get", "list", "watch", "create", "update", "patch", "delete", "deletecollection")
CHANGES = ("create", "update", "patch", "delete", "deletecollection")
OTHERS = ("secrets", "configmaps", "services", "persistentvolumeclaims")
LEASE = "leases.coordination.k8s.io"
SLICES = "endpointslices.discovery.k8s.io"
FOR_USERS = {"tidemark-reach-gateway"}


def of(who: str, verbs: tuple[str, ...], ending: str = "", namespace: str = "team-a") -> list[May]:
    """On each of our four kinds."""
    return [May(who, verb, f"{kind}.{GROUP}{ending}", namespace) for verb in verbs for kind in OURS]


MAY = [
    *of(OPERATOR, ("get", "list", "watch")),
    *(May(OPERATOR, "patch", f"{kind}.{GROUP}") for kind in ("datasources", "dataflows")),
    *of(OPERATOR, ("patch",), "/status"),
    *of(OPERATOR, ("patch",), "/status", "team-b"),
    *of(OPERATOR, ("update",), "/finalizers"),
    *(May(OPERATOR, verb, "controllerrevisions.apps") for verb in ("get", "list", "create", "delete")),
    *(May(OPERATOR, verb, "events.events.k8s.io") for verb in ("create", "list")),
    *(May(OPERATOR, verb, "statefulsets.apps") for verb in ("list", "create", "patch", "delete")),
    *(May(OPERATOR, verb, "poddisruptionbudgets.policy") for verb in ("list", "create", "patch", "delete")),
    *(May(OPERATOR, verb, kind) for verb in ("create", "patch") for kind in ("services", "configmaps")),
    May(OPERATOR, "get", "configmaps"),
    *(May(OPERATOR, verb, "secrets") for verb in ("get", "create", "update")),
    May(OPERATOR, "list", "pods"),
    May(OPERATOR, "create", "secrets", NAMESPACE),
    *(
        May(OPERATOR, verb, f"secrets:{name}", NAMESPACE)
        for verb in ("get", "update")
        for name in (AUTHORITY, PLANNER_SECRET)
    ),
    # what Spark's driver asks for, and what its executors do not
    *(May(DRIVER, verb, "pods") for verb in ("create", "get", "list", "watch", "delete", "deletecollection")),
    May(OPERATOR, "create", LEASE, NAMESPACE),
    *(May(OPERATOR, verb, f"{LEASE}:tidemark-operator", NAMESPACE) for verb in ("get", "update")),
    *(May(OPERATOR, verb, f"{SLICES}:tidemark-gateway", NAMESPACE) for verb in ("get", "update")),
    # asked for with defaultInstance, where it is to be and nowhere else
    May(OPERATOR, "create", f"computeinstances.{GROUP}"),
    May(TEST, "get", f"{LEASE}:tidemark-operator", NAMESPACE),
]


def every_other_verb(granted: list[May]) -> list[May]:
    """The verbs on all that somebody may do something with. A verb on all objects of a kind holds for each by name."""
    held = set(granted)
    return [
        asked
        for who, what, namespace in dict.fromkeys((may.who, may.what, may.namespace) for may in granted)
        for verb in ALL
        if (asked := May(who, verb, what, namespace)) not in held
        and asked._replace(what=what.partition(":")[0]) not in held
    ]


MAY_NOT = [
    *every_other_verb(MAY),
    *of(OPERATOR, ("create",), namespace="team-b"),
    *of(OPERATOR, ("get", "list", "watch"), namespace="default"),
    *of(OPERATOR, ("get", "create"), "/data"),
    *(May(OPERATOR, "create", f"pods/{sub}") for sub in ("exec", "attach", "portforward", "ephemeralcontainers")),
    *(May(OPERATOR, verb, "secrets", NAMESPACE) for verb in ("get", "list", "update", "delete")),
    *(May(OPERATOR, verb, "secrets", "team-c") for verb in ("get", "create")),
    *(May(DRIVER, verb, "pods", "team-b") for verb in ALL),
    *(May(DRIVER, "create", f"pods/{sub}") for sub in ("exec", "attach", "eviction")),
    *(
        May(DRIVER, verb, kind)
        for verb in ALL
        for kind in ("secrets", "configmaps", "services", "persistentvolumeclaims")
    ),
    *of(DRIVER, ("get", "list")),
    *(May(EXECUTOR, verb, kind) for verb in ALL for kind in ("pods", "secrets", "configmaps")),
    *of(EXECUTOR, ("get", "list")),
    *(May(OPERATOR, verb, f"{LEASE}:other", NAMESPACE) for verb in ("get", "update", "delete")),
    # who may write these, says where the traffic of other Services goes
    *(May(OPERATOR, verb, SLICES, NAMESPACE) for verb in ALL),
    *(May(OPERATOR, verb, f"{SLICES}:tidemark-gateway") for verb in ("get", "update")),
    May(OPERATOR, "create", "serviceaccounts/token", NAMESPACE),
    May(OPERATOR, "impersonate", "users", ""),
    *(May(OPERATOR, verb, "roles.rbac.authorization.k8s.io") for verb in ("create", "patch", "escalate", "bind")),
    May(OPERATOR, "list", "nodes", ""),
    # the planner has an account so as not to have the namespace's default one
    *of(PLANNER, ("get", "list"), namespace=NAMESPACE),
    May(PLANNER, "get", "secrets", NAMESPACE),
    May(PLANNER, "get", f"{LEASE}:tidemark-operator", NAMESPACE),
    *of(TEST, ("get", "list")),
    May(TEST, "get", "secrets", NAMESPACE),
]


def test_accounts_may_do_their_work_and_nothing_else(rights: ControlPlane) -> None:
    """No secrets, no pods, no objects of their own making, no other namespace, nobody else's Lease."""
    assert answers(rights, [*MAY, *MAY_NOT]) == {**dict.fromkeys(MAY, True), **dict.fromkeys(MAY_NOT, False)}


def test_all_that_the_roles_of_accounts_name_is_asked_about() -> None:
    """A rule that is added is found by the test above only where it asks for the kind."""
    roles = [
        body
        for body in rendered_objects("confined")
        if body["kind"] == "Role" and body["metadata"]["name"] not in FOR_USERS
    ]
    named = {
        f"{resource}.{group}".rstrip(".") if "/" not in resource else resource.replace("/", f".{group}/")
        for role in roles
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    }

    assert named == {may.what.partition(":")[0] for may in MAY}


COPIES = f"dataflows.{GROUP}/copies"
FILES = f"datasources.{GROUP}/files"
TABLES = f"dataflows.{GROUP}/tables"
WRITTEN = f"datasources.{GROUP}/rows"
ROWS = [f"{kind}.{GROUP}/data" for kind in ("datasources", "dataflows")]
USERS = [
    *((may, True) for may in of("viewer", ("get", "list", "watch"))),
    *((may, False) for may in of("viewer", CHANGES)),
    *((May("viewer", "get", rows), False) for rows in ROWS),
    *((may, True) for may in of("editor", CHANGES)),
    *((may, False) for may in of("editor", ("patch", "update"), "/status")),
    *((May("editor", "get", rows), False) for rows in ROWS),
    *((May("reader", "get", rows), True) for rows in ROWS),
    *((May("reader", "create", rows), False) for rows in ROWS),
    *((may, False) for may in of("reader", ("get", "list"))),
    *((may, False) for who in ("viewer", "editor") for may in of(who, ("get", "create"), namespace="team-b")),
    *((May("reader", "get", rows, "team-b"), False) for rows in ROWS),
    *((May(who, "create", COPIES), who == "copier") for who in ("viewer", "editor", "reader", "copier")),
    *((May("copier", "get", rows), False) for rows in ROWS),
    *((may, False) for may in of("copier", ("get", "list", "create"))),
    (May("copier", "create", COPIES, "team-b"), False),
    *((May(who, "update", FILES), who == "mender") for who in ("viewer", "editor", "reader", "copier", "mender")),
    *((May("mender", "get", rows), False) for rows in ROWS),
    (May("mender", "update", FILES, "team-b"), False),
    *(
        (May(who, verb, WRITTEN), who == "writer")
        for who in ("editor", "mender", "writer")
        for verb in ("create", "update", "delete")
    ),
    *((may, False) for may in of("writer", ("get", "list", "delete"))),
    (May("writer", "create", WRITTEN, "team-b"), False),
    *((May(who, "delete", TABLES), who == "cleaner") for who in ("viewer", "editor", "mender", "cleaner")),
    *((may, False) for may in of("cleaner", ("get", "list", "delete"))),
    (May("cleaner", "delete", TABLES, "team-b"), False),
]


def test_to_see_status_is_not_to_see_rows(rights: ControlPlane) -> None:
    """Each has a role of its own, given in one namespace. Viewers and editors read no rows, readers of rows make no
    files of them, and nobody but the operator writes status."""
    bindings = {
        "viewer": "tidemark-view",
        "editor": "tidemark-edit",
        "reader": "tidemark-read-data",
        "copier": "tidemark-copy-data",
        "mender": "tidemark-change-files",
        "cleaner": "tidemark-delete-tables",
        "writer": "tidemark-write-data",
    }
    apply(
        rights,
        [
            {
                "apiVersion": "rbac.authorization.k8s.io/v1",
                "kind": "RoleBinding",
                "metadata": {"name": user, "namespace": "team-a"},
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
                "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}],
            }
            for user, role in bindings.items()
        ],
    )
    wait_for_bindings(rights)
    assert answers(rights, [may for may, _ in USERS]) == dict(USERS)


def test_roles_of_users_are_part_of_the_clusters_own() -> None:
    """Viewers and editors of a namespace have our rights without another binding; rows are given on purpose."""
    labels = {
        b["metadata"]["name"]: b["metadata"]["labels"]
        for b in rendered_objects("default")
        if b["kind"] == "ClusterRole"
    }
    parts = {
        name: {label.rpartition("aggregate-to-")[2] for label in found if "aggregate-to-" in label}
        for name, found in labels.items()
    }

    assert parts == {
        "tidemark-operator": set(),
        "tidemark-view": {"view"},
        "tidemark-edit": {"edit", "admin"},
        "tidemark-read-data": set(),
        "tidemark-copy-data": set(),
        "tidemark-change-files": set(),
        "tidemark-delete-tables": set(),
        "tidemark-write-data": set(),
    }
