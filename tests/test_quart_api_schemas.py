"""A tool's schema in an OpenAPI document means what it meant: same verdicts, references that lead somewhere."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import pytest
from openapi_spec_validator import OpenAPIV31SpecValidator

from bascule.builtin_plugins.quart_api.embedding import embed
from bascule.builtin_plugins.quart_api.tool_document import tool_document
from bascule.core.contracts import compile as compiled
from bascule.hookspecs import ToolDefinition

D7, D19 = "http://json-schema.org/draft-07/schema#", "https://json-schema.org/draft/2019-09/schema"
TREE = {"type": "object", "properties": {"left": {"$ref": "#"}, "right": {"$ref": "#"}}, "additionalProperties": False}

# schema, instances: judged by the core as it stands, and by a 2020-12 engine inside the document
CASES: dict[str, tuple[dict[str, Any], list[Any]]] = {
    "plain": ({"type": "object", "required": ["a"]}, [{}, {"a": 1}]),
    "recursive": (TREE, [{}, {"left": {"right": {}}}, {"left": {"up": {}}}, {"left": 1}]),
    "defs": (
        {"type": "object", "properties": {"a": {"$ref": "#/$defs/b~1c"}}, "$defs": {"b/c": {"type": "integer"}}},
        [{"a": 1}, {"a": "x"}],
    ),
    "escaped": (
        {"type": "object", "properties": {"a": {"$ref": "#/$defs/x%25y%20z"}}, "$defs": {"x%y z": {"type": "null"}}},
        [{"a": None}, {"a": 1}],
    ),
    "anchor": (
        {"type": "object", "properties": {"a": {"$ref": "#n"}}, "$defs": {"q": {"$anchor": "n", "type": "null"}}},
        [{"a": None}, {"a": 1}],
    ),
    "id": (
        {
            "$id": "https://example/x",
            "type": "object",
            "properties": {"a": {"$ref": "#/$defs/b"}},
            "$defs": {"b": False},
        },
        [{}, {"a": 1}],
    ),
    "property called $ref": (
        {"type": "object", "properties": {"$ref": {"type": "integer"}, "$id": {"type": "null"}}},
        [{"$ref": 1}, {"$ref": "#/nothing"}, {"$id": 1}],
    ),
    "data called $ref": (
        {"type": "object", "properties": {"a": {"const": {"$ref": "#/x"}}}},
        [{"a": {"$ref": "#/x"}}, {"a": 1}],
    ),
    "unknown keyword": (
        {
            "type": "object",
            "properties": {"a": {"$ref": "#/x-shared/b"}},
            "x-shared": {"b": {"$ref": "#/$defs/c"}},
            "$defs": {"c": {"type": "integer"}},
        },
        [{"a": 1}, {"a": "x"}],
    ),
    "tuple of draft-07": (
        {
            "$schema": D7,
            "type": "object",
            "properties": {"a": {"items": [{"type": "integer"}], "additionalItems": False}},
        },
        [{"a": [1]}, {"a": ["x"]}, {"a": [1, 2]}, {"a": []}],
    ),
    "tuple of 2019-09": (
        {
            "$schema": D19,
            "type": "object",
            "properties": {"a": {"items": [{"type": "integer"}], "additionalItems": {"type": "null"}}},
        },
        [{"a": [1, None]}, {"a": [1, 2]}, {"a": ["x"]}],
    ),
    "reference into a tuple": (
        {
            "$schema": D7,
            "type": "object",
            "properties": {
                "a": {"items": [{"items": [{"type": "integer"}]}]},
                "b": {"$ref": "#/properties/a/items/0/items/0"},
            },
        },
        [{"b": 1}, {"b": "x"}, {"a": [[1]]}, {"a": [["x"]]}],
    ),
    "dependencies": (
        {"$schema": D7, "type": "object", "dependencies": {"a": ["b"], "c": {"required": ["d"]}}},
        [{"a": 1}, {"a": 1, "b": 1}, {"c": 1}, {"c": 1, "d": 1}],
    ),
    "reference into dependencies": (
        {
            "$schema": D7,
            "type": "object",
            "dependencies": {"c": {"required": ["d"]}},
            "properties": {"x": {"$ref": "#/dependencies/c"}},
        },
        [{"x": {}}, {"x": {"d": 1}}],
    ),
    "beside a reference in draft-07": (
        {
            "$schema": D7,
            "type": "object",
            "properties": {"a": {"$ref": "#/definitions/b", "type": "string"}},
            "definitions": {"b": {"type": "integer"}},
        },
        [{"a": 1}, {"a": "x"}],
    ),
    "beside a reference in 2020-12": (
        {
            "type": "object",
            "properties": {"a": {"$ref": "#/$defs/b", "maximum": 3}},
            "$defs": {"b": {"type": "integer"}},
        },
        [{"a": 1}, {"a": 7}, {"a": "x"}],
    ),
    "later keywords in draft-07": (
        {
            "$schema": D7,
            "type": "object",
            "dependentRequired": {"a": ["b"]},
            "properties": {"a": {"minContains": 2, "contains": {"const": 1}}},
        },
        [{"a": [1]}, {"a": [2]}],
    ),
    "extensions": (
        {"type": "object", "x-b": {"$ref": "#/nowhere"}, "examples": [{"$ref": "#/nowhere"}], "default": {"$id": 1}},
        [{}],
    ),
}


def document_of(schema: dict[str, Any], **more: Any) -> dict[str, Any]:
    tool = ToolDefinition("p.t", "does it", schema, plugin_id="p", remote_name="t", alias="p__t", **more)
    return json.loads(json.dumps(tool_document([tool], "1")))


@pytest.mark.req("N5.3")
@pytest.mark.parametrize("name", CASES)
def test_the_same_is_accepted_and_refused(name):
    schema, instances = CASES[name]
    document = document_of(schema, output_schema=schema)
    assert [error.message for error in OpenAPIV31SpecValidator(document).iter_errors()] == []
    operation = document["paths"]["/tools/p__t"]["post"]
    ours = compiled(schema)
    for shown in (
        operation["requestBody"]["content"]["application/json"]["schema"],
        operation["responses"]["200"]["content"]["application/json"]["schema"],
    ):
        theirs = jsonschema.Draft202012Validator({**shown, "components": document["components"]})
        verdicts = [(not ours.problems(instance), theirs.is_valid(instance)) for instance in instances]
        assert all(one == other for one, other in verdicts), f"{verdicts}: {shown}"


@pytest.mark.parametrize("name", CASES)
def test_the_servers_own_schema_is_left_as_it_is(name):
    schema = CASES[name][0]
    before = json.dumps(schema)
    embed(schema, "#/components/schemas/x")
    assert json.dumps(schema) == before


def test_every_case_tells_something():
    both = [{not compiled(schema).problems(each) for each in instances} for schema, instances in CASES.values()]
    assert sum(verdicts == {True, False} for verdicts in both) >= len(CASES) - 2


def test_what_a_server_writes_is_data_in_the_document():
    text = '"><script>alert(1)</script> `x` </title>'
    document = document_of({"type": "object"}, title=text)
    assert document["paths"]["/tools/p__t"]["post"]["summary"] == text
