"""What a ``$ref`` names; for :mod:`.schemas`. Nothing is fetched, and nothing outside of the document is found."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote


def resolved(reference: str, base: Mapping[str, Any]) -> tuple[Mapping[str, Any] | bool | None, Mapping[str, Any]]:
    """What a reference inside ``base`` names, and what its own references are relative to.

    It is a JSON pointer or an anchor; whatever else it is, and whatever leaves the document, names nothing.
    """
    if not reference.startswith("#"):
        return None, base
    fragment = unquote(reference[1:])
    if fragment and not fragment.startswith("/"):
        return _anchored(fragment, base), base
    found: Any = base
    for step in fragment.split("/")[1:]:
        step = step.replace("~1", "/").replace("~0", "~")
        if isinstance(found, list) and step.isdecimal() and int(step) < len(found):
            found = found[int(step)]
        elif isinstance(found, Mapping) and step in found:
            found = found[step]
        else:
            return None, base
        if isinstance(found, Mapping) and is_resource(found):
            base = found
    return found if isinstance(found, Mapping | bool) else None, base


def is_resource(schema: Mapping[str, Any]) -> bool:
    identity = schema.get("$id")
    return isinstance(identity, str) and not identity.startswith("#")


def _anchored(name: str, base: Mapping[str, Any]) -> Mapping[str, Any] | None:
    for key in ("$defs", "definitions"):
        for part in mapping(base, key).values():
            if isinstance(part, Mapping) and (part.get("$anchor") == name or part.get("$id") == f"#{name}"):
                return part
    return None


def mapping(schema: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = schema.get(key)
    return value if isinstance(value, Mapping) else {}
