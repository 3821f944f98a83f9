"""A schema as a graph: its subschemas, and which of them judge the same place, a member or an item.

Building it refuses what has no place in it: what stands where a subschema should and is none, a reference
that leads nowhere or outside, and what would change the meaning of references. Whatever a reference leads to
is walked as a schema, also under a keyword that nobody knows.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any, Final, NoReturn, TypeAlias

from . import keywords
from .bounds import MAX_EXPANSION, MAX_SUBSCHEMAS, refuse
from .pointer import fragment, quoted, resolve, step, unquote


class Each(Enum):
    """Places below an instance that a subschema judges, where it is not one by name or index."""

    MEMBER = auto()
    OTHER_MEMBER = auto()
    """Those that ``properties`` beside it does not name."""
    ITEM = auto()


Place: TypeAlias = str | int | Each

_BELOW: Final = {
    "patternProperties": Each.MEMBER,
    "additionalProperties": Each.OTHER_MEMBER,
    "unevaluatedProperties": Each.MEMBER,
    "propertyNames": Each.MEMBER,
    "items": Each.ITEM,
    "additionalItems": Each.ITEM,
    "unevaluatedItems": Each.ITEM,
    "contains": Each.ITEM,
}
_IN_PLACE: Final = keywords.IN_PLACE_LISTS | keywords.IN_PLACE_SINGLES | keywords.IN_PLACE_MAPS


@dataclass(slots=True, eq=False)
class Node:
    """One subschema that is an object, and the subschemas that it applies."""

    where: str
    schema: dict[str, Any]
    in_place: list[Node] = field(default_factory=list)
    below: list[tuple[Place, Node]] = field(default_factory=list)

    @property
    def applied(self) -> list[Node]:
        return self.in_place + [node for _, node in self.below]

    @property
    def looks_back(self) -> bool:
        return "unevaluatedProperties" in self.schema or "unevaluatedItems" in self.schema


@dataclass(slots=True)
class Graph:
    """All subschemas that are objects.

    In ``bottom_up`` each stands after those that it applies in its own place, and where no recursion forbids
    it after those that it applies below.
    """

    root: Node
    bottom_up: list[Node]
    recursive: bool

    def looks_back(self) -> bool:
        """Whether any subschema asks what the others have evaluated."""
        return any(node.looks_back for node in self.bottom_up)

    def chain(self) -> int:
        """How many subschemas at most apply one another in a row, all in one place."""
        lengths: dict[Node, int] = {}
        for node in self.bottom_up:
            lengths[node] = 1 + max((lengths[each] for each in node.in_place), default=0)
        return max(lengths.values())


def build(root: dict[str, Any]) -> Graph:
    """Walk a schema, and make its references and annotations such that all engines read them alike.

    ``root`` must be a tree of which nobody else holds a part: it is changed. Raises McpToolInvalid.
    """
    walk = _Walk(root)
    walk.visit(root, "")
    walk.run()
    recursions: list[Node] = []
    below_first = _postorder(walk.nodes, lambda node: node.applied, recursions.append)
    bottom_up = _postorder(below_first, lambda node: node.in_place, _refuse_cycle)
    _check_expansion(bottom_up)
    return Graph(walk.nodes[0], bottom_up, bool(recursions))


class _Walk:
    def __init__(self, root: dict[str, Any]) -> None:
        self.root = root
        self.nodes: list[Node] = []
        self._known: dict[int, Node] = {}
        self._unread: deque[Node] = deque()
        self._pointers: list[Node] = []
        self._names: list[Node] = []
        self._anchors: dict[str, Node] = {}
        self._subschemas = 0

    def run(self) -> None:
        """Read until nothing is left; named anchors come last, when all of them are known."""
        while self._unread or self._pointers:
            while self._unread:
                self._read(self._unread.popleft())
            if self._pointers:
                self._follow(self._pointers.pop())
        for node in self._names:
            self._follow_name(node)

    def visit(self, value: object, where: str) -> Node | None:
        """The node of a subschema; None for ``true`` and ``false``."""
        if isinstance(value, dict) and id(value) in self._known:
            return self._known[id(value)]
        self._subschemas += 1
        if self._subschemas > MAX_SUBSCHEMAS:
            refuse(f"the schema has more than {MAX_SUBSCHEMAS:,} subschemas", where)
        if isinstance(value, bool):
            return None
        if not isinstance(value, dict):
            refuse("a subschema must be an object, true or false", where)
        node = Node(where, value)
        self._known[id(value)] = node
        self.nodes.append(node)
        self._unread.append(node)
        return node

    # --- one subschema --------------------------------------------------------------------------------

    def _read(self, node: Node) -> None:
        for keyword, value in list(node.schema.items()):
            if keyword in keywords.MAPS:
                self._read_map(node, keyword, value)
            elif keyword in keywords.LISTS or (keyword == "items" and isinstance(value, list)):
                self._read_list(node, keyword, value)
            elif keyword in keywords.SINGLES or keyword == "items":
                self._apply(node, keyword, _BELOW.get(keyword), self.visit(value, node.where + step(keyword)))
            elif keyword[:1] == "$" or keyword in keywords.ANNOTATIONS:
                self._read_core(node, keyword, value, node.where + step(keyword))

    def _read_map(self, node: Node, keyword: str, value: object) -> None:
        where = node.where + step(keyword)
        if not isinstance(value, dict):
            refuse(f"{keyword} must be an object of subschemas", where)
        for name, each in value.items():
            if keyword == "dependencies" and isinstance(each, list):
                continue
            place: Place | None = name if keyword == "properties" else _BELOW.get(keyword)
            self._apply(node, keyword, place, self.visit(each, where + step(name)))

    def _read_list(self, node: Node, keyword: str, value: object) -> None:
        where = node.where + step(keyword)
        if not isinstance(value, list):
            refuse(f"{keyword} must be an array of subschemas", where)
        for index, each in enumerate(value):
            self._apply(node, keyword, index, self.visit(each, where + step(index)))

    def _apply(self, node: Node, keyword: str, place: Place | None, applied: Node | None) -> None:
        if applied is None:
            return
        if keyword in _IN_PLACE:
            node.in_place.append(applied)
        elif place is not None:
            node.below.append((place, applied))

    # --- identity and references ----------------------------------------------------------------------

    def _read_core(self, node: Node, keyword: str, value: object, where: str) -> None:
        if keyword in keywords.FORBIDDEN:
            refuse(f"{keyword} is not supported", where)
        if keyword in keywords.FORBIDDEN_INSIDE and node.where:
            refuse(f"{keyword} is supported at the root alone", where)
        if keyword == "$ref":
            self._read_reference(node, value, where)
        elif keyword == "$anchor":
            self._read_anchor(node, value, where)
        elif keyword in keywords.ANNOTATIONS:
            del node.schema[keyword]

    def _read_anchor(self, node: Node, value: object, where: str) -> None:
        if not isinstance(value, str) or value in self._anchors:
            refuse("$anchor must be a string, and another one each time", where)
        self._anchors[value] = node
        del node.schema["$anchor"]

    def _read_reference(self, node: Node, value: object, where: str) -> None:
        if not isinstance(value, str):
            refuse("$ref must be a string", where)
        if value == "#" or value.startswith("#/"):
            self._pointers.append(node)
        elif value.startswith("#"):
            self._names.append(node)
        else:
            refuse(
                f"$ref {quoted(value)} leads out of the schema, and nothing is fetched",
                where,
                "put what it means under $defs and refer to it by #/$defs/…",
            )

    def _follow(self, node: Node) -> None:
        target = unquote(node.schema["$ref"][1:])
        try:
            found = resolve(self.root, target)
        except LookupError:
            self._refuse_dangling(node)
        if not isinstance(found, dict | bool):
            refuse(f"$ref {quoted('#' + target)} points at no subschema", node.where + "/$ref")
        node.schema["$ref"] = fragment(target)
        applied = self.visit(found, target)
        if applied is not None:
            node.in_place.append(applied)

    def _follow_name(self, node: Node) -> None:
        target = self._anchors.get(unquote(node.schema["$ref"][1:]))
        if target is None:
            self._refuse_dangling(node)
        node.schema["$ref"] = fragment(target.where)
        node.in_place.append(target)

    def _refuse_dangling(self, node: Node) -> NoReturn:
        refuse(f"$ref {quoted(node.schema['$ref'])} points at nothing", node.where + "/$ref")


def _postorder(
    roots: Iterable[Node], applied: Callable[[Node], Iterable[Node]], on_cycle: Callable[[Node], None]
) -> list[Node]:
    """Order nodes so that each stands after those that it applies; without recursion, since rows are long."""
    order: list[Node] = []
    finished: dict[Node, bool] = {}
    stack: list[tuple[Node, Iterator[Node]]] = []
    for root in roots:
        if root not in finished:
            finished[root] = False
            stack.append((root, iter(applied(root))))
        while stack:
            node, rest = stack[-1]
            for following in rest:
                if following not in finished:
                    finished[following] = False
                    stack.append((following, iter(applied(following))))
                    break
                if not finished[following]:
                    on_cycle(following)
            else:
                finished[node] = True
                order.append(node)
                stack.pop()
    return order


def _refuse_cycle(node: Node) -> None:
    refuse("a cycle of references comes back to this subschema for one and the same value", node.where)


def _check_expansion(bottom_up: list[Node]) -> None:
    expansion: dict[Node, int] = {}
    for node in bottom_up:
        size = 1 + sum(expansion[applied] for applied in node.in_place)
        if size > MAX_EXPANSION:
            refuse(f"the expansion has more than {MAX_EXPANSION:,} subschemas that judge one place", node.where)
        expansion[node] = size
