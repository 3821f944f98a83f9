"""Both engines give one verdict: on real tools' schemas, and on any schema that passes the gate."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from bascule.core import contracts
from bascule.core.contracts import CheckTooExpensive, compiled, metered
from bascule.core.contracts.gate import prepare
from bascule.core.contracts.keywords import Dialect
from bascule.core.contracts.metered import Reference
from bascule.core.contracts.pointer import resolve
from bascule.hookspecs.errors import McpToolInvalid

pytestmark = [pytest.mark.slow, pytest.mark.req("N5.3")]

FIXTURES = Path(__file__).parent.parent / "fixtures"
BOTH = settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))

NAMES = ("a", "b", "ab", "c")
PATTERNS = ("a", "^a", "b$", "^[ab]+$", "^.$", "\\d", "^\\w*$", "^(a|b){1,2}$", "^$")
NUMBERS = (0, 1, 2, 3, -1, 1.0, 0.1, 0.3, 1.5, 19.99, 2**53, 2**53 + 1, 2.0**53, 10**22, 1e22, 10**29 + 7, 1e300)
TEXTS = ("", "a", "b", "ab", "aab", "a\n", "é", "\N{GRINNING FACE}", "1", "\u2028")
TYPES = ("string", "integer", "number", "boolean", "null", "array", "object")


class Maker:
    """Makes values and schemas by chance, from few names and numbers, so that they often meet."""

    def __init__(self, random: Random, dialect: Dialect) -> None:
        self._random = random
        self._pick = random.choice
        self._dialect = dialect

    def value(self, depth: int = 3) -> Any:
        chance = self._random.random() if depth else 1.0
        if chance < 0.25:
            return [self.value(depth - 1) for _ in range(self._count())]
        if chance < 0.6:
            return {self._pick(NAMES): self.value(depth - 1) for _ in range(self._count())}
        return self._pick((None, True, False, self._number(), self._number(), *self._random.sample(TEXTS, 3)))

    def schema(self) -> dict[str, Any]:
        """A root with two definitions that it and they may refer to."""
        root = self._subschema(3)
        body = root if isinstance(root, dict) else {"allOf": [root]}
        definitions = {"one": self._subschema(2), "two": self._subschema(2)}
        return {**body, "$schema": self._dialect.value, "$defs": definitions}

    def _count(self) -> int:
        return self._random.randint(0, 3)

    def _number(self) -> float:
        return self._pick((*NUMBERS, self._random.randint(-5, 5)))

    def _names(self) -> list[str]:
        return self._random.sample(NAMES, self._random.randint(0, 2))

    def _some(self, fields: dict[str, Callable[[], Any]], share: float) -> dict[str, Any]:
        return {name: make() for name, make in fields.items() if self._random.random() < share}

    def _subschema(self, depth: int) -> Any:
        if self._random.random() < 0.1:
            return self._pick((True, False))
        simple = self._some(self._simple(), 0.06)
        return {**simple, **self._some(self._applying(depth - 1), 0.12)} if depth else simple

    def _simple(self) -> dict[str, Callable[[], Any]]:
        counts = ("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties")
        limits = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")
        return {
            **dict.fromkeys(counts, self._count),
            **dict.fromkeys(limits, self._number),
            "type": lambda: self._pick((self._pick(TYPES), self._random.sample(TYPES, 2))),
            "enum": lambda: [self.value(2) for _ in range(1 + self._count())],
            "const": lambda: self.value(2),
            "multipleOf": lambda: self._pick((1, 2, 0.1, 0.01, 1.5, 7, 2.0**53, 10**22)),
            "pattern": lambda: self._pick(PATTERNS),
            "uniqueItems": lambda: self._pick((True, False)),
            "required": self._names,
            "format": lambda: self._pick(("email", "date-time", "regex")),
            "contentEncoding": lambda: "base64",
            "contentMediaType": lambda: "application/json",
        }

    def _applying(self, depth: int) -> dict[str, Callable[[], Any]]:
        def one() -> Any:
            return self._subschema(depth)

        def several() -> list[Any]:
            return [one() for _ in range(1 + self._random.randint(0, 2))]

        def named() -> dict[str, Any]:
            return {self._pick(NAMES): one() for _ in range(self._count())}

        singles = ("additionalProperties", "propertyNames", "items", "contains", "not", "if", "then", "else")
        fields: dict[str, Callable[[], Any]] = {
            **dict.fromkeys(singles, one),
            **dict.fromkeys(("allOf", "anyOf", "oneOf"), several),
            "properties": named,
            "patternProperties": lambda: {self._pick(PATTERNS): one() for _ in range(self._count())},
            "dependencies": lambda: {self._pick(NAMES): self._pick((one, self._names))() for _ in range(self._count())},
            "$ref": lambda: self._pick(("#", "#/$defs/one", "#/$defs/two")),
        }
        if self._dialect is not Dialect.DRAFT_7:
            fields |= dict.fromkeys(("minContains", "maxContains"), self._count)
            fields |= dict.fromkeys(("unevaluatedProperties", "unevaluatedItems"), one)
            fields |= {"dependentSchemas": named, "dependentRequired": lambda: {self._pick(NAMES): self._names()}}
        if self._dialect is Dialect.DRAFT_2020_12:
            return fields | {"prefixItems": several}
        return fields | {"items": lambda: self._pick((one, several))(), "additionalItems": one}


# By seed: choices made through hypothesis one by one cost a hundred times more, and there are hundreds in a schema.
randoms = st.integers(0, 2**32).map(Random)
makers = st.builds(Maker, randoms, st.sampled_from(Dialect))


def _real_schemas() -> list[dict[str, Any]]:
    lists = sorted(FIXTURES.joinpath("tool-lists").glob("*.json"))
    tools = [tool for path in lists for tool in json.loads(path.read_bytes())["tools_list_result"]["tools"]]
    return [tool[part] for tool in tools for part in ("inputSchema", "outputSchema") if part in tool]


REAL = _real_schemas()


# --- one verdict --------------------------------------------------------------------------------------


def _agree(schema: Any, instance: Any) -> None:
    prepared, dialect, _ = prepare(schema)
    fits = compiled.fits(prepared, dialect)
    assert fits is not None
    try:
        expected = Reference(prepared, dialect).fits(instance)
    except CheckTooExpensive:
        return
    assert fits(instance) == expected
    assert (not contracts.compile(schema).problems(instance)) == expected


@BOTH
@given(maker=makers)
def test_both_engines_agree_on_any_schema(maker: Maker) -> None:
    schema = maker.schema()
    assume(_passes(schema))
    for _ in range(5):
        _agree(schema, maker.value())


@pytest.mark.parametrize("dialect", Dialect)
@pytest.mark.parametrize(
    "schema",
    [
        {"items": True, "additionalItems": False},
        {"items": False, "additionalItems": True},
        {"items": True, "unevaluatedItems": False},
        {"contains": {"type": "string"}, "unevaluatedItems": False},
        {"contains": {"type": "string"}, "minContains": 0, "maxContains": 1},
        {"dependencies": {"a": ["b"], "b": {"required": ["c"]}}},
        {"contentEncoding": "base64", "contentMediaType": "application/json"},
        {"$defs": {"text": {"type": "string"}}, "$ref": "#/$defs/text", "maxLength": 1},
        {"properties": {"a": False}, "patternProperties": {"^b": False}, "unevaluatedProperties": True},
        {"propertyNames": {"pattern": "^a$"}},
        {"patternProperties": {"^a$": {"type": "string"}}},
    ],
)
def test_both_engines_agree_where_dialects_and_libraries_differ(schema: dict[str, Any], dialect: Dialect) -> None:
    for instance in ([1], ["a"], ["a", "b", 1], [[]], {"a": 1}, {"b": 1}, {"a\n": 1}, {"a": 1, "b": 2}, "ab", "%%", 1):
        _agree({**schema, "$schema": dialect.value}, instance)


@pytest.mark.parametrize(
    "keyword", ["const", "multipleOf", "minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum"]
)
def test_both_engines_agree_on_numbers(keyword: str) -> None:
    for limit in NUMBERS:
        if keyword != "multipleOf" or limit > 0:
            for number in NUMBERS:
                _agree({keyword: limit}, number)


def test_both_engines_agree_on_what_is_equal() -> None:
    different = [*NUMBERS, True, False, None, *TEXTS, [], {}, [1], [True], {"a": 1}, {"a": 1, "b": [2]}]
    for one in different:
        for other in different:
            _agree({"uniqueItems": True}, [one, other])
            _agree({"enum": ["x", [one]]}, [other])
    _agree({"uniqueItems": True}, [{"a": 1, "b": [2.0]}, {"b": [2], "a": 1.0}])


@pytest.mark.timeout(10)  # comparing each with each would take half a minute
def test_the_reference_finds_equal_items_in_linear_time() -> None:
    prepared, dialect, _ = prepare({"uniqueItems": True})
    items: list[Any] = [[{"a": n}, n, str(n)] for n in range(10_000)]
    assert Reference(prepared, dialect).fits(items)
    assert not Reference(prepared, dialect).fits([*items, items[0]])


@BOTH
@given(schema=st.sampled_from(REAL), maker=makers, random=randoms)
def test_both_engines_agree_on_the_schemas_of_real_tools(schema: Any, maker: Maker, random: Random) -> None:
    for _ in range(5):
        _agree(schema, _instance(schema, schema, maker, random))


@BOTH
@given(maker=makers, path=st.lists(st.integers(0, 5), min_size=1, max_size=4))
def test_both_engines_agree_on_what_is_a_schema(maker: Maker, path: list[int]) -> None:
    schema = maker.schema()
    dialect = Dialect(schema["$schema"])
    broken = _spoil(schema, path, maker.value(2))
    if broken.get("$schema") == dialect.value:
        rs = compiled.engine()
        assert rs is not None
        faulty = compiled.metaschema_fault(rs, broken) is not None
        assert faulty == (metered.metaschema_fault(broken, dialect) is not None)


@BOTH
@given(maker=makers)
def test_no_problem_holds_a_value_of_the_instance(maker: Maker) -> None:
    schema = maker.schema()
    assume(_passes(schema))
    assert SECRET not in str(contracts.compile(schema).problems(_marked(maker.value())))


SECRET = "s3cret"


def _marked(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _marked(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_marked(each) for each in value]
    return SECRET if isinstance(value, str) else value


def _passes(schema: Any) -> bool:
    try:
        contracts.gate(schema, root_object=False)
    except McpToolInvalid:
        return False
    graph = prepare(schema)[2]
    return not compiled.overflows(graph)


def _spoil(schema: Any, path: list[int], fault: Any) -> Any:
    """Replace one part of a schema."""
    if not path or not isinstance(schema, dict | list) or not schema:
        # Metaschemas differ in the formats that they assert, and we ask for none: no text for a text.
        return schema if isinstance(fault, str) else fault
    places = list(schema) if isinstance(schema, dict) else list(range(len(schema)))
    place = places[path[0] % len(places)]
    spoilt = _spoil(schema[place], path[1:], fault)
    if isinstance(schema, dict):
        return {**schema, place: spoilt}
    return [*schema[:place], spoilt, *schema[place + 1 :]]


# --- real tools ---------------------------------------------------------------------------------------


def _instance(schema: Any, root: dict[str, Any], maker: Maker, random: Random, depth: int = 6) -> Any:
    """Mostly what fits, so that the verdict hangs on details; now and then anything."""
    if not depth or not isinstance(schema, dict) or random.random() < 0.05:
        return maker.value()

    def below(subschema: Any) -> Any:
        return _instance(subschema, root, maker, random, depth - 1)

    if "$ref" in schema:
        return below(resolve(root, schema["$ref"][1:]))
    for keyword in ("anyOf", "oneOf"):
        if keyword in schema:
            return below(random.choice(schema[keyword]))
    if "const" in schema:
        return schema["const"]
    if "enum" in schema:
        return random.choice(schema["enum"])
    if schema.get("type") == "object":
        wanted = [name for name in schema.get("properties", {}) if random.random() < 0.9]
        return {name: below(schema["properties"][name]) for name in wanted} | random.choice(({}, {}, {"unknown": 1}))
    if schema.get("type") == "array":
        return [below(schema.get("items", {})) for _ in range(random.randint(0, 3))]
    simple = {"integer": random.randint(-5, 50), "number": 1.5, "boolean": True, "null": None}
    return simple.get(str(schema.get("type")), random.choice(TEXTS))
