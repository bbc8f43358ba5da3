"""The difference between wanted and existing StatefulSets, as a decision. Pure.

                      nothing there        this shape there      another shape there
    Surge             apply                apply                 apply beside it; delete the other after the takeover
    Recreate          apply                apply                 delete; apply once it is gone
    not wanted        -                    delete                delete
    kept              -                    -                     -         the wanted shape is not known yet

A resource that was deleted and created again waits until the StatefulSet of the old one has freed the name.

The one of several shapes that took over serves, or else the oldest: the others were made beside it and never took
over. If the serving shape is the wanted one, because an edit was reverted, the others are deleted at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, field

from tidemark_operator.kube.client import Body
from tidemark_operator.orchestrator.kubernetes.names import INSTANCE_UID, ReplicaShape
from tidemark_operator.orchestrator.kubernetes.ownership import shape_of_set
from tidemark_operator.resources.manifest.replica import UpdateStrategy

Shape = tuple[str, str]
"""The uid of a replica, and one of its shapes."""


@dataclass(frozen=True)
class OwnedStatefulSet:
    """A StatefulSet that the operator made; `key`: the uid of its replica."""

    key: str
    shape: str
    body: Body = field(compare=False)

    @property
    def name(self) -> str:
        return str(self.body["metadata"]["name"])

    @property
    def namespace(self) -> str:
        return str(self.body["metadata"]["namespace"])

    @property
    def uid(self) -> str:
        return str(self.body["metadata"]["uid"])

    @property
    def instance(self) -> str:
        """The uid of its instance."""
        return str((self.body["metadata"].get("labels") or {}).get(INSTANCE_UID, ""))

    @property
    def deleting(self) -> bool:
        return bool(self.body["metadata"].get("deletionTimestamp"))

    @property
    def age(self) -> tuple[str, str]:
        return self.body["metadata"]["creationTimestamp"], self.name


@dataclass(frozen=True)
class Decision:
    """The objects to apply and those to delete."""

    apply: tuple[ReplicaShape, ...]
    delete: tuple[OwnedStatefulSet, ...]


def found_in(stateful_sets: Iterable[Body]) -> list[OwnedStatefulSet]:
    """The StatefulSets that a replica owns, the oldest first."""
    ours = [(shape_of_set(body), body) for body in stateful_sets]
    return sorted((OwnedStatefulSet(*shape, body) for shape, body in ours if shape), key=lambda found: found.age)


def decide(
    wanted: Mapping[str, ReplicaShape],
    found: Iterable[OwnedStatefulSet],
    taken_over: Set[Shape],
    kept: Set[str] = frozenset(),
) -> Decision:
    """The table above. `wanted`, `kept`: by uid of the replica; `taken_over`: shapes that serve after a takeover."""
    apply, delete = [], []
    of: dict[str, list[OwnedStatefulSet]] = {}
    named: dict[tuple[str, str], str] = {}
    for each in found:
        of.setdefault(each.key, []).append(each)
        named[each.namespace, each.name] = each.key
    for key in of.keys() - wanted.keys() - kept:
        delete += of[key]
    for key, member in wanted.items():
        shapes = of.get(key, [])
        others = [each for each in shapes if each.shape != member.shape]
        serving = server(member, shapes, taken_over)
        delete += [each for each in others if each is not serving]
        if named.get((member.spec.namespace, member.name), key) != key:
            continue  # the StatefulSet of a deleted resource of the same name still exists
        mine = len(others) < len(shapes)
        if mine or not others or strategy(member) is UpdateStrategy.SURGE:
            apply.append(member)
    return Decision(tuple(apply), tuple(each for each in delete if not each.deleting))


def server(member: ReplicaShape, shapes: Iterable[OwnedStatefulSet], taken_over: Set[Shape]) -> OwnedStatefulSet | None:
    """The other shape that serves while the wanted one hydrates; None: there is none. `shapes`: all existing ones, the
    oldest first."""
    if strategy(member) is not UpdateStrategy.SURGE or (member.spec.key, member.shape) in taken_over:
        return None
    there = [each for each in shapes if not each.deleting]
    serves = next((each for each in there if (each.key, each.shape) in taken_over), there[0] if there else None)
    return None if serves is None or serves.shape == member.shape else serves


def strategy(member: ReplicaShape) -> UpdateStrategy:
    """The replica's update strategy, by default Surge."""
    return member.spec.strategy or UpdateStrategy.SURGE
