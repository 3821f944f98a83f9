"""Tools for models: what OpenAI's and Anthropic's APIs are given, what was weakened for them, and calls that come in.

Run as a program, this writes what the 180 real tools become to `fixtures/converted/`; look at what changed in it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from jsonschema import Draft7Validator, Draft201909Validator, Draft202012Validator
from referencing.exceptions import Unresolvable

from bascule.builtin_plugins import anthropic_converter, openai_converter
from bascule.core.naming import alias, tool_id
from bascule.hookspecs import (
    BASIC_KEYWORDS,
    MORE_KEYWORDS,
    Accepted,
    ConversionUnsupported,
    ToolArgumentsInvalid,
    ToolConverter,
    ToolDefinition,
    ToolResult,
    weaken,
)

FIXTURES = Path(__file__).resolve().parents[1] / "fixtures"
CONVERTED = FIXTURES / "converted"

OPENAI, ANTHROPIC = openai_converter.OpenAiConverter(), anthropic_converter.AnthropicConverter()
DIALECTS: dict[str, tuple[Any, Accepted]] = {
    "openai": (OPENAI, openai_converter.ACCEPTED),
    "anthropic": (ANTHROPIC, anthropic_converter.ACCEPTED),
}
ANNOTATIONS = {"title", "description", "default", "examples", "deprecated", "readOnly", "writeOnly"}

Json = dict[str, Any]

every_dialect = pytest.mark.parametrize("dialect", DIALECTS)


def tool(parameters: Json, description: str = "does it", name: str = "tool") -> ToolDefinition:
    full = tool_id("fx", name)
    return ToolDefinition(full, description, parameters, plugin_id="fx", remote_name=name, alias=alias(full))


def real_tools() -> Iterator[tuple[str, ToolDefinition]]:
    for path in sorted((FIXTURES / "tool-lists").glob("*.json")):
        for listed in json.loads(path.read_text(encoding="utf-8"))["tools_list_result"]["tools"]:
            shown = listed.get("description", "")
            yield f"{path.stem}/{listed['name']}", tool(listed["inputSchema"], shown, listed["name"])


REAL = dict(real_tools())


def schema_of(dialect: str, written: Any) -> Json:
    schema: Json = written["function"]["parameters"] if dialect == "openai" else written["input_schema"]
    return schema


def golden(dialect: str) -> Json:
    """What becomes of the real tools: only those that are not told as they came are shown whole."""
    converter = DIALECTS[dialect][0]
    told: Json = {}
    for name, real in REAL.items():
        schema = schema_of(dialect, converter.write_tool(real))
        came = {key: value for key, value in real.parameters.items() if key != "$schema"}
        shown: Json = {} if schema == came else {"schema": schema}
        notes = list(converter.notes(real))
        told[name] = {**shown, **({"notes": notes} if notes else {})} or "as it came"
    return told


# --- what the consumers demand ----------------------------------------------------------------------------


def faults(schema: Any, accepted: Accepted, where: str = "") -> Iterator[str]:
    """Everything in ``schema`` that the consumer would refuse."""
    if isinstance(schema, bool):
        return
    for key in schema.keys() - accepted.keywords - ANNOTATIONS:
        yield f"{where}: {key}"
    types = schema.get("type", [])
    if isinstance(types, list) and types and not accepted.type_lists:
        yield f"{where}: a list of types"
    if "array" in types and not isinstance(schema.get("items"), dict):
        yield f"{where}: an array without items"
    if types == "object" and "properties" not in schema:
        yield f"{where}: an object without properties"
    for key in ("properties", "patternProperties", "dependentSchemas"):
        for name, part in schema.get(key, {}).items():
            if isinstance(part, bool) and key == "properties":
                yield f"{where}/{key}/{name}: {part}"
            yield from faults(part, accepted, f"{where}/{key}/{name}")
    for key in ("items", "additionalProperties", "propertyNames", "not", "if", "then", "else"):
        if key in schema:
            yield from faults(schema[key], accepted, f"{where}/{key}")
    for key in ("anyOf", "oneOf", "allOf", "prefixItems"):
        for at, part in enumerate(schema.get(key, [])):
            yield from faults(part, accepted, f"{where}/{key}/{at}")


def check(schema: Json, accepted: Accepted) -> None:
    assert list(faults(schema, accepted)) == []
    assert schema["type"] == "object"
    assert isinstance(schema["properties"], dict)
    assert not schema.keys() & {"anyOf", "oneOf", "allOf", "not", "enum", "const", "if", "then", "else"}
    assert len(json.dumps(schema, ensure_ascii=False).encode()) <= accepted.bytes
    Draft202012Validator.check_schema(schema, format_checker=None)


def test_there_are_the_180_real_tools() -> None:
    assert len(REAL) == 180


@every_dialect
def test_what_real_tools_become_is_what_was_looked_at(dialect: str) -> None:
    looked_at = json.loads((CONVERTED / f"{dialect}.json").read_text(encoding="utf-8"))
    told = golden(dialect)
    assert told.keys() == looked_at.keys()
    for name in told:
        assert told[name] == looked_at[name], name


@every_dialect
def test_real_tools_fit_what_the_consumer_takes(dialect: str) -> None:
    converter, accepted = DIALECTS[dialect]
    for real in REAL.values():
        written = converter.write_tool(real)
        json.dumps(written)
        check(schema_of(dialect, written), accepted)
        named = written["function"] if dialect == "openai" else written
        assert named["name"] == real.alias
        assert len(named["description"]) <= (1_024 if dialect == "openai" else 100_000)


@every_dialect
@pytest.mark.parametrize("path", sorted((FIXTURES / "hostile-schemas").glob("*.json")), ids=lambda path: path.stem)
def test_hostile_schemas_come_out_fit_and_bounded(dialect: str, path: Path) -> None:
    schema = json.loads(path.read_text(encoding="utf-8")).get("schema")
    check(weaken(schema, DIALECTS[dialect][1]).schema, DIALECTS[dialect][1])


# --- weaker, never stronger -------------------------------------------------------------------------------

NAMES = st.sampled_from(["a", "b", "c", "user name"])
TYPES = ("object", "array", "string", "number", "integer", "boolean", "null")
TYPE = st.sampled_from(TYPES)
ATOMS = st.sampled_from([None, True, False, -1, 0, 1, 2, 0.5, "", "a", "ab"])
VALUES = st.recursive(
    ATOMS, lambda below: st.lists(below, max_size=2) | st.dictionaries(NAMES, below, max_size=3), max_leaves=5
)
REFERENCES = st.sampled_from(["#", "#/$defs/x", "#/$defs/y", "#/$defs/x/properties/a", "#named", "#/nowhere"])

LEAVES = st.one_of(
    st.booleans(),
    st.just({}),
    st.builds(lambda kind: {"type": kind}, TYPE),
    st.builds(lambda kinds: {"type": kinds}, st.lists(TYPE, min_size=1, max_size=3, unique=True)),
    st.builds(lambda value: {"const": value}, ATOMS),
    st.builds(lambda values: {"enum": values}, st.lists(ATOMS, min_size=1, max_size=3)),
    st.builds(lambda key, n: {key: n}, st.sampled_from(["minimum", "maximum", "exclusiveMinimum"]), st.integers(-1, 2)),
    st.builds(
        lambda key, n: {key: n},
        st.sampled_from(["minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties"]),
        st.integers(0, 2),
    ),
    st.builds(lambda to: {"$ref": to}, REFERENCES),
    st.builds(lambda to, names: {"$ref": to, "required": names}, REFERENCES, st.lists(NAMES, max_size=2, unique=True)),
    st.builds(lambda names: {"required": names}, st.lists(NAMES, max_size=2, unique=True)),
    st.just({"pattern": "^a"}),
    st.just({"uniqueItems": True}),
)


def compound(below: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    several = st.lists(below, min_size=1, max_size=3)
    named = st.dictionaries(NAMES, below, max_size=3)
    one = st.one_of(
        *(st.builds(lambda part, key=key: {key: part}, several) for key in ("anyOf", "oneOf", "allOf", "prefixItems")),
        *(
            st.builds(lambda part, key=key: {key: part}, below)
            for key in ("not", "items", "additionalProperties", "propertyNames", "contains", "unevaluatedProperties")
        ),
        st.builds(lambda parts: {"properties": parts}, named),
        st.builds(lambda parts, rest: {"properties": parts, "additionalProperties": rest}, named, below),
        st.builds(lambda part, rest: {"patternProperties": {"^a": part}, "additionalProperties": rest}, below, below),
        st.builds(lambda c, y, n: {"if": c, "then": y, "else": n}, below, below, below),
        st.builds(lambda first, rest: {"items": first, "additionalItems": rest}, several, below),
        st.builds(lambda part: {"dependentSchemas": {"a": part}, "dependentRequired": {"b": ["c"]}}, below),
        st.builds(lambda part: {"dependencies": {"a": part, "b": ["c"]}}, below),
    )
    return st.builds(lambda some, more: {**some, **more} if isinstance(more, dict) else some, one, one | below)


SCHEMAS = st.recursive(LEAVES, compound, max_leaves=8)
ROOTS = st.builds(
    lambda top, x, y, dialect: {
        **dialect,
        **(top if isinstance(top, dict) else {}),
        "type": "object",
        "$defs": {"x": x, "y": {"$anchor": "named", "$id": "#named", **y} if "draft-07" in str(dialect) else y},
    },
    SCHEMAS,
    SCHEMAS,
    SCHEMAS.filter(lambda part: isinstance(part, dict)),
    st.sampled_from(
        [
            {},
            {"$schema": "https://json-schema.org/draft/2020-12/schema"},
            {"$schema": "https://json-schema.org/draft/2019-09/schema"},
            {"$schema": "http://json-schema.org/draft-07/schema#"},
        ]
    ),
)


UNJUDGED = (Unresolvable, RecursionError, TypeError, AttributeError)
"""A reference to nowhere, a loop, or what its dialect does not know, such as a list of ``items``."""


def validator(schema: Json) -> Any:
    """By the schema's own dialect."""
    dialect = schema.get("$schema", "")
    kind = (
        Draft7Validator
        if "draft-07" in dialect
        else Draft201909Validator
        if "2019" in dialect
        else Draft202012Validator
    )
    return kind(schema)


def fits(schema: Json, value: Any) -> bool:
    """Whether ``schema`` takes ``value``; one that can't be judged takes nothing."""
    try:
        return bool(validator(schema).is_valid(value))
    except UNJUDGED:
        return False


@every_dialect
@pytest.mark.req("N5.3")
def test_what_the_schema_accepts_the_weakened_one_accepts(dialect: str) -> None:
    accepted = DIALECTS[dialect][1]
    agreed = []

    @settings(
        max_examples=150,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.generate],
        derandomize=True,
    )
    @given(ROOTS, st.lists(st.dictionaries(NAMES, VALUES, max_size=3), min_size=3, max_size=3))
    def weaker(schema: Json, instances: list[Json]) -> None:
        weakened = weaken(schema, accepted)
        check(weakened.schema, accepted)
        for value in ({}, {"a": 1}, {"a": "a"}, {"a": []}, {"a": {}, "b": None}, *instances):
            if fits(schema, value):
                agreed.append(value)
                assert Draft202012Validator(weakened.schema).is_valid(value), (value, weakened)

    weaker()
    assert len(agreed) > 200, "the schemas that were tried accept hardly anything: this proves nothing"


@every_dialect
def test_without_a_note_the_two_accept_the_same(dialect: str) -> None:
    accepted = DIALECTS[dialect][1]

    @settings(
        max_examples=100,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.generate],
        derandomize=True,
    )
    @given(ROOTS, st.lists(st.dictionaries(NAMES, VALUES, max_size=3), min_size=3, max_size=3))
    def equal(schema: Json, instances: list[Json]) -> None:
        weakened = weaken(schema, accepted)
        if weakened.notes:
            return
        for value in ({}, {"a": 1}, {"a": "a"}, *instances):
            try:
                told = validator(schema).is_valid(value)
            except UNJUDGED:
                continue
            assert told == Draft202012Validator(weakened.schema).is_valid(value), (value, weakened)

    equal()


# --- by example -------------------------------------------------------------------------------------------


def both(parameters: Json) -> tuple[Json, Json]:
    return weaken(parameters, openai_converter.ACCEPTED).schema, weaken(parameters, anthropic_converter.ACCEPTED).schema


def of(part: Json) -> Json:
    return {"type": "object", "properties": {"p": part}}


def test_an_array_without_items_gets_some() -> None:
    for schema in both(of({"type": "array"})):
        assert schema == of({"type": "array", "items": {}})
    openai, anthropic = both(of({"type": ["string", "array"], "minItems": 1}))
    assert openai == of({"anyOf": [{"type": "string"}, {"type": "array", "minItems": 1, "items": {}}]})
    assert anthropic == of({"type": ["string", "array"], "minItems": 1, "items": {}})


def test_a_nullable_is_a_union_where_lists_of_types_are_not_taken() -> None:
    openai, anthropic = both(of({"type": ["string", "null"], "description": "who", "maxLength": 3}))
    assert openai == of({"description": "who", "anyOf": [{"type": "string", "maxLength": 3}, {"type": "null"}]})
    assert anthropic == of({"type": ["string", "null"], "description": "who", "maxLength": 3})


def test_a_reference_is_replaced_by_what_it_names() -> None:
    filter_ = {"type": "object", "properties": {"q": {"type": "string"}}}
    parameters = {
        **of({"anyOf": [{"$ref": "#/$defs/Filter"}, {"type": "null"}], "default": None}),
        "$defs": {"Filter": filter_},
    }
    for schema in both(parameters):
        assert schema == of({"anyOf": [filter_, {"type": "null"}], "default": None})


def test_words_beside_a_reference_win_over_those_behind_it() -> None:
    parameters = {
        **of({"$ref": "#/definitions/N", "description": "here"}),
        "definitions": {"N": {"type": "integer", "description": "there"}},
    }
    for dialect in ({}, {"$schema": "http://json-schema.org/draft-07/schema#"}):
        for schema in both({**dialect, **parameters}):
            assert schema == of({"type": "integer", "description": "here"})


def test_a_recursion_is_cut_off_and_noted() -> None:
    node = {"type": "object", "properties": {"next": {"$ref": "#/$defs/Node"}}}
    weakened = weaken({**of({"$ref": "#/$defs/Node"}), "$defs": {"Node": node}}, openai_converter.ACCEPTED)
    inner = {"type": "object", "properties": {}}
    assert weakened.schema == of({"type": "object", "properties": {"next": inner}})
    assert weakened.notes == ("/properties/p/properties/next: a recursion is cut off here",)


def test_several_forms_at_the_top_become_one() -> None:
    forms = [
        {
            "type": "object",
            "properties": {"kind": {"const": kind}, name: {"type": "string"}},
            "required": ["kind", name],
        }
        for kind, name in (("file", "path"), ("page", "url"))
    ]
    closed = [{**form, "additionalProperties": False} for form in forms]
    for schema in both({"type": "object", "oneOf": closed}):
        assert schema == {
            "type": "object",
            "properties": {"kind": {"enum": ["file", "page"]}, "path": {"type": "string"}, "url": {"type": "string"}},
            "required": ["kind"],
            "additionalProperties": False,
        }
    for schema in both({"type": "object", "anyOf": forms}):  # open: in the other form, path may be anything
        assert schema["properties"]["path"] == {}
        assert schema["required"] == ["kind"]


def test_what_must_all_hold_is_merged() -> None:
    parameters = {
        "type": "object",
        "properties": {"a": {"type": "number"}},
        "allOf": [{"properties": {"a": {"minimum": 1}, "b": {}}, "required": ["a"]}, {"required": ["b"]}],
    }
    for schema in both(parameters):
        assert schema == {
            "type": "object",
            "properties": {"a": {"type": "number", "minimum": 1}, "b": {}},
            "required": ["a", "b"],
        }


def test_a_property_that_anthropic_cannot_name_is_noted_and_let_through() -> None:
    parameters = {"type": "object", "properties": {"user name": {}, "a": {}}, "additionalProperties": False}
    weakened = weaken(parameters, anthropic_converter.ACCEPTED)
    assert weakened.schema == {"type": "object", "properties": {"a": {}}}
    assert "'user name'" in " ".join(weakened.notes)
    assert weaken(parameters, openai_converter.ACCEPTED).schema == parameters


def test_a_long_description_is_cut_off_for_openai_alone() -> None:
    long = tool({"type": "object"}, "x" * 2_000)
    assert len(OPENAI.write_tool(long)["function"]["description"]) == 1_024
    assert OPENAI.notes(long) == ("description: cut off at 1,024 characters",)
    assert len(ANTHROPIC.write_tool(long)["description"]) == 2_000
    assert ANTHROPIC.notes(long) == ()


# --- calls and results ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "call",
    [
        {"id": "1", "type": "function", "function": {"name": "fx__t", "arguments": '{"a": null}'}},
        {"type": "function_call", "call_id": "1", "name": "fx__t", "arguments": '{"a": null}'},
        {"name": "fx__t", "arguments": {"a": None}},
    ],
)
def test_openais_calls_are_read(call: Json) -> None:
    assert OPENAI.read_call(call) == ("fx__t", {"a": None})


@pytest.mark.parametrize("nothing", ["", "  ", "{}", None])
def test_openais_calls_without_arguments_have_none(nothing: str | None) -> None:
    assert OPENAI.read_call({"function": {"name": "t", "arguments": nothing}}) == ("t", {})


@pytest.mark.parametrize(
    "arguments", ["{", "[]", "1", '{"a": NaN}', "[" * 100_000, 7, "x" * (2 * 1024 * 1024 + 1)], ids=lambda a: str(a)[:9]
)
def test_openais_bad_arguments_are_refused_in_words(arguments: Any) -> None:
    with pytest.raises(ToolArgumentsInvalid, match="arguments"):
        OPENAI.read_call({"function": {"name": "t", "arguments": arguments}})


def test_anthropics_calls_are_read() -> None:
    assert ANTHROPIC.read_call({"type": "tool_use", "id": "1", "name": "fx__t", "input": {"a": None}}) == (
        "fx__t",
        {"a": None},
    )
    assert ANTHROPIC.read_call({"type": "tool_use", "name": "fx__t"}) == ("fx__t", {})


@every_dialect
@pytest.mark.parametrize("call", [{}, {"name": 7}, {"name": ""}, {"function": "t"}, {"function": None}])
def test_a_call_that_names_nothing_is_refused(dialect: str, call: Json) -> None:
    with pytest.raises(ToolArgumentsInvalid):
        DIALECTS[dialect][0].read_call(call)


def test_anthropics_input_must_be_an_object() -> None:
    with pytest.raises(ToolArgumentsInvalid):
        ANTHROPIC.read_call({"name": "t", "input": []})


@every_dialect
def test_there_is_no_way_from_them_to_us(dialect: str) -> None:
    converter: ToolConverter = DIALECTS[dialect][0]
    for read in (converter.read_tool, converter.read_result):
        with pytest.raises(ConversionUnsupported):
            read({})


BLOCKS = (
    {"type": "text", "text": "hello"},
    {"type": "image", "mimeType": "image/png", "data": "AAAA"},
    {"type": "audio", "mimeType": "audio/wav", "data": "AAAA"},
    {"type": "resource", "resource": {"uri": "file:///x", "text": "inside"}},
    {"type": "resource_link", "uri": "file:///x"},
)


def test_results_are_written_with_all_that_the_dialect_holds() -> None:
    result = ToolResult(list(BLOCKS), BLOCKS, failed=True)
    texts = ["hello", "inside", "[audio audio/wav, which can't be shown here]"]
    written = OPENAI.write_result(result)
    assert written["role"] == "tool"
    assert written["content"].startswith("The tool failed: hello")
    for text in (*texts, "[image image/png, which can't be shown here]"):
        assert text in written["content"]
    block = ANTHROPIC.write_result(result)
    assert (block["type"], block["is_error"]) == ("tool_result", True)
    assert block["content"][1]["source"] == {"type": "base64", "media_type": "image/png", "data": "AAAA"}
    shown = [part["text"] for part in block["content"] if part["type"] == "text"]
    assert set(texts) < set(shown)


@every_dialect
def test_structured_output_is_told_as_json(dialect: str) -> None:
    written = json.dumps(DIALECTS[dialect][0].write_result(ToolResult({"a": "ü"})), ensure_ascii=False)
    assert r"{\"a\": \"ü\"}" in written


async def test_a_models_call_by_its_alias_reaches_the_tool(host, echo):
    """The whole round: described to a model, called by it, answered to it."""
    async with host(echo) as bridge, bridge.run("test") as run:
        (listed,) = [each for each in await run.tools() if each.name == "mcp-fixture.echo"]
        for dialect, call in (
            ("openai", lambda name: {"function": {"name": name, "arguments": '{"message": "hello"}'}}),
            ("anthropic", lambda name: {"type": "tool_use", "name": name, "input": {"message": "hello"}}),
        ):
            converter = bridge.converter(dialect)
            written = converter.write_tool(listed)
            name = written["function"]["name"] if dialect == "openai" else written["name"]
            result = await run.call(*converter.read_call(call(name)))
            assert "hello" in json.dumps(converter.write_result(result))


def test_more_keywords_are_beyond_the_basic_ones() -> None:
    assert not BASIC_KEYWORDS & MORE_KEYWORDS


if __name__ == "__main__":
    for each in DIALECTS:
        (CONVERTED / f"{each}.json").write_text(
            json.dumps(golden(each), indent=1, ensure_ascii=False) + "\n", encoding="utf-8"
        )


def test_the_text_of_a_result_is_of_its_text_blocks_alone():
    blocks = [{"type": "text", "text": "a"}, {"type": "text", "text": 5}, {"type": "text"}, {"type": "image"}]
    assert ToolResult(blocks, [*blocks, {"type": "text", "text": "b"}]).text == "a\nb"
