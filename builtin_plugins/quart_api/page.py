"""``/docs``: the document as a page, made here: no script, and nothing from elsewhere."""

from __future__ import annotations

import json
from collections.abc import Iterator
from html import escape
from typing import Any

from .answers import Answer

_STYLE = """
:root { color-scheme: light dark; font: 16px/1.5 system-ui, sans-serif }
body { max-width: 60rem; margin: 2rem auto; padding: 0 1rem }
details { border: 1px solid #8886; border-radius: .4rem; margin: .5rem 0; padding: .4rem .8rem }
summary { cursor: pointer } summary b { display: inline-block; min-width: 4.5rem }
code, pre { font: .875rem/1.45 ui-monospace, monospace } pre { overflow-x: auto; background: #8882; padding: .6rem }
table { border-collapse: collapse } td, th { text-align: left; padding: .15rem .8rem .15rem 0; vertical-align: top }
"""
_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'; base-uri 'none'",
}


def page(document: dict[str, Any]) -> Answer:
    """Show an OpenAPI document of ours."""
    return Answer("".join(_page(document)).encode(), 200, _HEADERS, "text/html; charset=utf-8")


def _page(document: dict[str, Any]) -> Iterator[str]:
    info = document["info"]
    yield f"<!doctype html><html lang=en><meta charset=utf-8><title>{escape(info['title'])} API</title>"
    yield f"<meta name=viewport content='width=device-width'><style>{_STYLE}</style>"
    yield f"<h1>{escape(info['title'])} {escape(info['version'])}</h1><p>{_words(info['description'])}</p>"
    yield "<p>The same for programs: <a href=openapi.json>openapi.json</a>. The tools, each an operation of its own: "
    yield "<code>/api/tools/openapi.json</code>, with a token.</p>"
    for tag in document["tags"]:
        yield f"<h2>{escape(tag['name'])}</h2>"
        for path, methods in document["paths"].items():
            for method, operation in methods.items():
                if tag["name"] in operation["tags"]:
                    yield from _operation(path, method, operation)
    yield "<h2>shapes</h2>"
    for name, schema in sorted(document["components"]["schemas"].items()):
        yield f"<details id='{escape(name)}'><summary><code>{escape(name)}</code></summary>{_json(schema)}</details>"


def _operation(path: str, method: str, operation: dict[str, Any]) -> Iterator[str]:
    yield f"<details id='{operation['operationId']}'><summary><b>{method.upper()}</b> <code>{escape(path)}</code> "
    yield f"{_words(operation['summary'])}</summary>"
    yield from (f"<p>{_words(part)}</p>" for part in operation["description"].split("\n\n"))
    if operation["parameters"]:
        yield "<table><tr><th>parameter<th>in<th>what"
        for each in operation["parameters"]:
            yield f"<tr><td><code>{escape(each['name'])}</code><td>{each['in']}<td>{_words(each['description'])}"
        yield "</table>"
    for kind, content in operation.get("requestBody", {}).get("content", {}).items():
        yield f"<p>Body, <code>{kind}</code>:</p>{_json(content)}"
    yield "<table><tr><th>status<th>what"
    for status, response in operation["responses"].items():
        yield f"<tr><td>{status}<td>{_words(response['description'])}"
    yield "</table>"
    for status, response in operation["responses"].items():
        if status.startswith("2"):
            yield from (
                f"<p>{status}, <code>{kind}</code>:</p>{_json(content)}"
                for kind, content in response.get("content", {}).items()
            )
    yield "</details>"


def _words(text: str) -> str:
    """Text with what stands in backquotes as code."""
    parts = escape(text).split("`")
    return "".join(f"<code>{part}</code>" if number % 2 else part for number, part in enumerate(parts))


def _json(value: Any) -> str:
    return f"<pre>{escape(json.dumps(value, indent=2, ensure_ascii=False))}</pre>"
