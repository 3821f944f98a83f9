"""What several schemas say together, in one: the arithmetic behind :mod:`.schemas`.

Both functions take schemas without references, in the dialect 2020-12, and give one that accepts at least as much.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

Json = dict[str, Any]
Tell = Callable[[str], None]

ANNOTATIONS = ("title", "description", "default", "examples", "deprecated", "readOnly", "writeOnly")

_FORMS = ("anyOf", "oneOf")
_AT_LEAST = frozenset({"minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties"})
_AT_MOST = frozenset({"maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties"})
_NOT_AT_THE_TOP = ("not", "if", "then", "else", "enum", "const")

_MEMBERS = ("properties", "patternProperties", "additionalProperties")
_GROUPS = (_MEMBERS, ("prefixItems", "items"), ("if", "then", "else"))
"""Keywords whose meaning depends on each other: they go together or not at all."""


def any_of(kinds: list[Any]) -> Json:
    """What fits any of ``kinds``."""
    unique: list[Any] = []
    for kind in kinds:
        if kind not in unique:
            unique.append(kind)
    return dict(unique[0]) if len(unique) == 1 else {"anyOf": unique}


def completed(out: Json) -> Json:
    """Say what some consumers want to see said; it means the same."""
    types = out.get("type", ())
    types = [types] if isinstance(types, str) else types
    if "array" in types:
        out.setdefault("items", {})
    if types == ["object"]:
        out.setdefault("properties", {})
    return out


def conjoin(parts: Sequence[Json], tell: Tell, *, keep: bool) -> Json:
    """One schema for all of ``parts``; what can't be merged goes to ``allOf`` (``keep``), or is told and left out."""
    parts = [part for part in parts if part]
    if len(parts) < 2:
        return dict(parts[0]) if parts else {}
    merged: Json = {}
    left: list[Json] = []
    for group in _GROUPS:
        having = [found for part in parts if (found := {key: part[key] for key in group if key in part})]
        if group == _MEMBERS and not any("patternProperties" in found for found in having):
            merged |= _members(having, tell, keep)
            continue
        merged |= having[0] if having else {}
        left += [found for found in having[1:] if found != having[0]]
    grouped = {key for group in _GROUPS for key in group} | {"allOf"}
    for part in parts:
        other = {key: value for key, value in part.items() if key not in grouped and not _merge(merged, key, value)}
        left += [other] if other else []
        left += part.get("allOf", [])
    if keep and left:
        merged["allOf"] = left
    elif left:
        tell(f"{', '.join(sorted({key for part in left for key in part}))}: one of several is told")
    return completed(merged)


def _merge(merged: Json, key: str, value: Any) -> bool:
    """Add a keyword to ``merged``; ``False`` where both can't be said at once."""
    if key not in merged:
        merged[key] = value
    elif key == "required":
        merged[key] = [*merged[key], *(name for name in value if name not in merged[key])]
    elif key in _AT_LEAST:
        merged[key] = max(merged[key], value)
    elif key in _AT_MOST:
        merged[key] = min(merged[key], value)
    elif key == "type":
        both = _common_types(merged[key], value)
        if not both:
            return False
        merged[key] = both[0] if len(both) == 1 else both
    else:
        return key in ANNOTATIONS or _same(merged[key], value)
    return True


def _same(one: Any, other: Any) -> bool:
    """Whether two JSON values are one; ``true`` is not 1."""
    return one == other and repr(one) == repr(other)


def _common_types(one: Any, other: Any) -> list[str]:
    first, second = ([kinds] if isinstance(kinds, str) else kinds for kinds in (one, other))
    common = [kind for kind in first if kind in second or (kind == "integer" and "number" in second)]
    return common + [kind for kind in second if kind == "integer" and "number" in first and kind not in common]


def _members(having: Sequence[Json], tell: Tell, keep: bool) -> Json:
    """What several schemas say of an object's properties: a name that one lacks is one of its additional ones."""
    if not having:
        return {}
    merged: Json = {"properties": {}} if any("properties" in found for found in having) else {}
    for name in _names(having):
        said = [_of(found, name) for found in having]
        if False not in said:
            merged["properties"][name] = conjoin([part for part in said if part is not True], tell, keep=keep)
    rests = [found["additionalProperties"] for found in having if "additionalProperties" in found]
    if False in rests:
        merged["additionalProperties"] = False
    elif rests:
        schemas = [rest for rest in rests if rest is not True]
        merged["additionalProperties"] = conjoin(schemas, tell, keep=keep) if schemas else True
    return merged


def _names(having: Sequence[Json]) -> list[str]:
    return list(dict.fromkeys(name for found in having for name in found.get("properties", ())))


def _of(found: Json, name: str) -> Any:
    """What a schema without patterns says of the property ``name``."""
    properties = found.get("properties", {})
    return properties[name] if name in properties else found.get("additionalProperties", True)


# --- the top ----------------------------------------------------------------------------------------------


def flatten(schema: Json, tell: Tell) -> Json:
    """An object's schema with nothing at its top but properties and bounds."""
    base = {key: value for key, value in schema.items() if key not in (*_FORMS, "allOf", *_NOT_AT_THE_TOP)}
    gone = [key for key in _NOT_AT_THE_TOP if key in schema]
    if gone:
        tell(f"{'/'.join(gone)} at the top is left out")
    parts = [base, *(flatten(part, tell) for part in schema.get("allOf", ()))]
    for key in _FORMS:
        if key in schema:
            parts.append(_one_form([flatten(part, tell) for part in schema[key]], tell))
    return conjoin(parts, tell, keep=False)


def _one_form(forms: Sequence[Json], tell: Tell) -> Json:
    """One form for several: every property of any, and only what all of them require."""
    of_objects = [form for form in forms if "object" in _types(form)]
    if not of_objects:
        tell("that no arguments fit is left out")
    if len(of_objects) < 2:
        return of_objects[0] if of_objects else {}
    tell("several forms at the top are told as one")
    merged: Json = {"properties": {name: _in_any(of_objects, name) for name in _names(of_objects)}}
    shared = [
        name for name in of_objects[0].get("required", ()) if all(name in f.get("required", ()) for f in of_objects)
    ]
    if shared:
        merged["required"] = shared
    if all(form.get("additionalProperties") is False and "patternProperties" not in form for form in of_objects):
        merged["additionalProperties"] = False
    return merged


def _types(form: Json) -> Sequence[str]:
    types = form.get("type", "object")
    return [types] if isinstance(types, str) else types


def _in_any(forms: Sequence[Json], name: str) -> Json:
    """What a property may be in any of the forms; where one of them takes anything, only the words are kept."""
    said: list[Any] = []
    for form in forms:
        told = True if _by_pattern(form, name) else _of(form, name)
        if told is not False and told not in said:
            said.append(told)
    if any(part is True or not part.keys() - set(ANNOTATIONS) for part in said):
        return next(({key: part[key] for key in ANNOTATIONS if key in part} for part in said if part is not True), {})
    if len(said) == 1:
        return dict(said[0])
    if all(part.keys() <= {"type", "const", "enum"} and part.keys() & {"const", "enum"} for part in said):
        return _choice(said)
    return {"anyOf": said}


def _by_pattern(form: Json, name: str) -> bool:
    """Whether patterns may have a say: then nothing is known of a name that is not told."""
    return "patternProperties" in form and name not in form.get("properties", {})


def _choice(said: Sequence[Json]) -> Json:
    """Several constants as one choice."""
    values: list[Any] = []
    for part in said:
        for value in part["enum"] if "enum" in part else [part["const"]]:
            if not any(_same(value, known) for known in values):
                values.append(value)
    types = {part.get("type") for part in said if isinstance(part.get("type"), str)}
    kind = {"type": types.pop()} if len(types) == 1 and all("type" in part for part in said) else {}
    return {**kind, "enum": values}
