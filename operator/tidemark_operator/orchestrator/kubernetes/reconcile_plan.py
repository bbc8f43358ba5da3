"""What to do about the difference between what should run and what there is. Pure.

                      nothing there        this shape there      another shape there
    Surge             apply                apply                 apply beside; the other goes once it is taken over
    Recreate          apply                apply                 delete; apply when it is gone
    not wanted        -                    delete                delete
    kept              -                    -                     -         not known yet in which shape

A resource that was deleted and made anew waits until the name is free.

Of several shapes the one that took over serves, else the oldest: all others were made beside it, and never came so far.
Where that is the wanted one, as when an edit is taken back, they go at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, field

from tidemark_operator.kube.client import Body
from tidemark_operator.orchestrator.kubernetes.names import INSTANCE_UID, Member
from tidemark_operator.orchestrator.kubernetes.ownership import shape_of_set
from tidemark_operator.resources.manifest.replica import UpdateStrategy

Shape = tuple[str, str]
"""Uid of a replica, and one shape of it."""


@dataclass(frozen=True)
class Found:
    """A StatefulSet of ours; `key`: the uid of the replica that it is of."""

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
        """Its uid."""
        return str((self.body["metadata"].get("labels") or {}).get(INSTANCE_UID, ""))

    @property
    def going(self) -> bool:
        return bool(self.body["metadata"].get("deletionTimestamp"))

    @property
    def age(self) -> tuple[str, str]:
        return self.body["metadata"]["creationTimestamp"], self.name


@dataclass(frozen=True)
class Decision:
    apply: tuple[Member, ...]
    delete: tuple[Found, ...]


def found_in(stateful_sets: Iterable[Body]) -> list[Found]:
    """Those of ours, the oldest first."""
    ours = [(shape_of_set(body), body) for body in stateful_sets]
    return sorted((Found(*shape, body) for shape, body in ours if shape), key=lambda found: found.age)


def decide(
    wanted: Mapping[str, Member], found: Iterable[Found], taken_over: Set[Shape], kept: Set[str] = frozenset()
) -> Decision:
    """`wanted` and `kept` by uid; `taken_over`: shapes that have taken the place of those before."""
    apply, delete = [], []
    of: dict[str, list[Found]] = {}
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
            continue  # that of a resource of the same name, which was deleted, is still there
        mine = len(others) < len(shapes)
        if mine or not others or strategy(member) is UpdateStrategy.SURGE:
            apply.append(member)
    return Decision(tuple(apply), tuple(each for each in delete if not each.going))


def server(member: Member, shapes: Iterable[Found], taken_over: Set[Shape]) -> Found | None:
    """Which other shape serves while the wanted one hydrates; None: there is none. `shapes`: all that are there, the
    oldest first."""
    if strategy(member) is not UpdateStrategy.SURGE or (member.spec.key, member.shape) in taken_over:
        return None
    there = [each for each in shapes if not each.going]
    serves = next((each for each in there if (each.key, each.shape) in taken_over), there[0] if there else None)
    return None if serves is None or serves.shape == member.shape else serves


def strategy(member: Member) -> UpdateStrategy:
    return member.spec.strategy or UpdateStrategy.SURGE
