"""The documents: valid, complete, true to the code, and the same as what docs/api.md says."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from openapi_spec_validator import OpenAPIV31SpecValidator
from pydantic import AliasChoices
from rest_server import serve_rest

from bascule import hookspecs
from bascule.builtin_plugins.quart_api import RestSettings
from bascule.builtin_plugins.quart_api.app import OPERATIONS
from bascule.builtin_plugins.quart_api.openapi import api_document
from bascule.builtin_plugins.quart_api.tool_document import CALL_ERRORS

PAGE = Path(__file__).resolve().parents[1] / "docs" / "api.md"
ROW = re.compile(r"^\| `(GET|POST|PUT|DELETE) (/\S*)` \| (.*?) \| (.+?) \|$", re.MULTILINE)
KEY = re.compile(r"^\| `(\w+)` \| (?:`([^`]+)`|\(none\)) \|", re.MULTILINE)
METHODS = ("get", "post", "put", "delete")

DOCUMENT = api_document(OPERATIONS, "1", ["mcp"])


def faults(document: dict[str, Any]) -> list[str]:
    return [error.message[:300] for error in OpenAPIV31SpecValidator(document).iter_errors()]


@pytest.mark.req("D5", "N7.5")
async def test_both_documents_are_valid(settings, http_server, echo, variant):
    async with serve_rest(settings, http_server, echo, variant("odd-names")) as api:
        api_itself = await api.ask("GET", "/openapi.json", headers={"authorization": ""})
        tools = await api.ask("GET", "/api/tools/openapi.json")
        for document in (api_itself, tools):
            assert document["openapi"].startswith("3.1.")
            assert faults(document) == []
        assert {"/api/plugins/{plugin_id}/host", "/api/plugins/{plugin_id}/host/restart"} <= set(api_itself["paths"])
        listed = (await api.ask("GET", "/api/tools"))["tools"]
        assert set(tools["paths"]) == {f"/tools/{tool['alias']}" for tool in listed}
        for tool in listed:
            operation = tools["paths"][f"/tools/{tool['alias']}"]["post"]
            assert operation["operationId"] == tool["alias"]
            assert operation["x-bascule-tool"] == tool["name"]
            if "$ref" not in str(tool["parameters"]):
                shown = operation["requestBody"]["content"]["application/json"]["schema"]
                assert shown == {key: tool["parameters"][key] for key in shown}


def test_a_validator_that_finds_nothing_would_find_something():
    assert faults({**DOCUMENT, "info": {"title": 1}})


def test_every_operation_is_in_the_document_with_all_that_it_says():
    shown = {(method, path) for path, methods in DOCUMENT["paths"].items() for method in methods}
    assert shown == {(operation.method.lower(), operation.path) for operation in OPERATIONS}
    assert len({operation.id for operation in OPERATIONS}) == len(OPERATIONS)
    for operation in OPERATIONS:
        entry = DOCUMENT["paths"][operation.path][operation.method.lower()]
        assert entry["summary"]
        assert entry.get("security") == ([] if not operation.scopes else None)
        for scope in operation.scopes:
            assert f"`{scope}`" in entry["description"]
        for error in operation.errors:
            kind, status = error if isinstance(error, tuple) else (error, error.status)
            assert kind.code in entry["responses"][str(status)]["description"]
        codes = [status for status in entry["responses"] if status.startswith("2")]
        assert codes == [str(operation.status)]


def test_every_error_of_a_call_is_documented():
    everyone: set[type[hookspecs.CallError]] = set()
    unseen = [hookspecs.CallError]
    while unseen:
        kind = unseen.pop()
        unseen += kind.__subclasses__()
        if kind.__module__.startswith(f"{hookspecs.errors.__name__}."):
            everyone.add(kind)
    nobody_hears = {hookspecs.ToolCallCancelled}  # whoever cancelled is gone
    nobody_asks = {hookspecs.ToolConfirmationDeclined}
    assert everyone - nobody_hears - nobody_asks - {hookspecs.CallError} == set(CALL_ERRORS) & everyone


def test_every_example_fits_its_schema():
    count = 0
    for methods in DOCUMENT["paths"].values():
        for operation in methods.values():
            bodies = [operation.get("requestBody", {}), *operation["responses"].values()]
            for kind, content in ((kind, c) for body in bodies for kind, c in body.get("content", {}).items()):
                schema = {**content["schema"], "components": DOCUMENT["components"]}
                examples = [each["value"] for each in content.get("examples", {}).values()]
                examples += [content["example"]] if "example" in content and "json" in kind else []
                for example in examples:
                    jsonschema.Draft202012Validator(schema).validate(example)
                    count += 1
    assert count > 200


@pytest.mark.req("D5")
async def test_what_is_answered_fits_what_is_documented(settings, http_server, echo):
    async with serve_rest(settings, http_server, echo) as api:
        run = (await api.ask("POST", "/api/runs", 201, json={"agent": "a"}))["id"]
        call = await api.call("mcp-fixture.echo", {"message": "x"}, headers={"bascule-run": run})
        names = {
            "plugin_id": "mcp-fixture",
            "name": "mcp-fixture.echo",
            "run_id": run,
            "trace_id": call.json()["trace_id"],
        }
        for operation in OPERATIONS:
            if operation.method != "GET" or operation.content_type != "application/json":
                continue
            answer = await api.ask("GET", operation.path.format(**names))
            content = DOCUMENT["paths"][operation.path]["get"]["responses"]["200"]["content"]["application/json"]
            schema = {**content["schema"], "components": DOCUMENT["components"]}
            jsonschema.Draft202012Validator(schema).validate(answer)


async def test_the_tools_document_is_that_of_the_moment(settings, http_server, echo):
    async with serve_rest(settings, http_server, echo) as api:
        path = "/api/tools/openapi.json"
        first = await api.http.get(path)
        assert (await api.http.get(path)).content == first.content
        await api.ask("POST", "/api/plugins/mcp-fixture/disable")
        assert (await api.ask("GET", path))["paths"] == {}
        await api.ask("POST", "/api/plugins/mcp-fixture/enable")
        assert (await api.http.get(path)).content == first.content


# --- the page for people ----------------------------------------------------------------------------------


class Links(HTMLParser):
    """Everything that a page would fetch, and every element that is there."""

    def __init__(self) -> None:
        super().__init__()
        self.fetched: list[str] = []
        self.elements: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.add(tag)
        self.fetched += [value or "" for name, value in attrs if name in ("href", "src", "srcset", "data")]


async def test_the_page_needs_no_other_server_and_no_script(settings, http_server):
    async with serve_rest(settings, http_server) as api:
        answer = await api.http.get("/docs", headers={"authorization": ""})
        assert answer.headers["content-type"] == "text/html; charset=utf-8"
        assert "default-src 'none'" in answer.headers["content-security-policy"]
        links = Links()
        links.feed(answer.text)
        assert links.fetched == ["openapi.json"]
        assert "script" not in links.elements
        for operation in OPERATIONS:
            assert f"<code>{operation.path}</code>" in answer.text


# --- docs/api.md ------------------------------------------------------------------------------------------


def test_the_table_of_endpoints_is_the_code():
    rows = {(method, path): scopes for method, path, scopes, _ in ROW.findall(PAGE.read_text(encoding="utf-8"))}
    assert rows == {
        (operation.method, operation.path): ", ".join(f"`{scope}`" for scope in sorted(operation.scopes)) or "–"
        for operation in OPERATIONS
    }


def test_every_key_of_the_section_is_explained_with_its_default():
    table = PAGE.read_text(encoding="utf-8").split("\n## Settings\n")[1].split("\n## ")[0]
    shown = dict(KEY.findall(table))
    defaults = {
        field.validation_alias.choices[0] if isinstance(field.validation_alias, AliasChoices) else name: default
        for (name, field), default in zip(RestSettings.model_fields.items(), dict(RestSettings()).values(), strict=True)
    }
    assert shown.keys() == defaults.keys()
    for key, default in defaults.items():
        assert (yaml.safe_load(shown[key]) or None) == (
            (list(default) if isinstance(default, frozenset) else default) or None
        )


def test_no_method_is_there_that_the_page_does_not_know():
    assert {method for methods in DOCUMENT["paths"].values() for method in methods} <= set(METHODS)
