"""A plugin's manifest, ``plugin.yaml``: read and checked, while nothing of the plugin runs (N3).

The models say what stands in the file and are pydantic's; :class:`Manifest` is what the rest of the core sees.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, Literal, cast

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationInfo

from ..hookspecs.config import Limits
from ..hookspecs.errors import (
    ExtensionIdInvalid,
    ExtensionPermissionInvalid,
    ManifestInvalid,
    ManifestNotFound,
    McpToolInvalid,
    PackageNotFound,
)
from ..hookspecs.tools import DEFAULT_PERMISSION, Visibility
from ..hookspecs.transports import ClientTransport
from .documents import Document, DocumentInvalid, Problem, field_name, quoted, summary
from .naming import PLUGIN_ID, check_remote_name, tool_id, unescape
from .validation import check, choice_hint, fault, keys_of, near
from .yaml_source import HIDDEN, read

MANIFEST_NAME = "plugin.yaml"

_CONTROL = re.compile("[\0-\x1f\x7f-\x9f]")
_GROUP = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
_ID_FAULT = "plugin_id"
_PERMISSION_FAULT = "permission_unknown"


@dataclass(frozen=True, slots=True)
class ToolDeclaration:
    """A tool that the manifest announces. ``remote_name`` is the server's own, unescaped.

    ``permission`` is what this entry says, ``None`` where it says nothing: the server may say it then (N5.4).
    """

    id: str
    remote_name: str
    permission: str | None = None
    groups: frozenset[str] = frozenset()
    visibility: Visibility = Visibility.PUBLIC
    confirm: bool = False


@dataclass(frozen=True, slots=True)
class Manifest:
    """What a plugin says of itself. ``digest`` is the SHA-256 of the file, in hex; approvals are bound to it.

    ``permissions`` are all that the owner is asked for: those declared, and ``tools.call``, which every manifest holds
    (N5.4). ``tools`` are in the file's order, by id. ``backend`` is the transport's ``backend_model``.
    """

    id: str
    name: str
    version: str
    description: str | None
    permissions: tuple[str, ...]
    tools: Mapping[str, ToolDeclaration]
    backend_type: str
    transport: str
    startup_seconds: float
    tool_seconds: float
    progress_idle_seconds: float
    backend: BaseModel = field(repr=False)
    directory: Path
    path: Path
    text: str = field(repr=False)
    digest: str


@dataclass(slots=True)
class _Facts:
    """What the validators know beside the value in front of them."""

    plugin_id: str | None
    declared: frozenset[str]
    vocabulary: Sequence[str]
    transports: Sequence[str]
    limits: Limits
    seen: set[tuple[str, str]] = field(default_factory=set)

    def once(self, sort: str, value: str) -> None:
        if (sort, value) in self.seen:
            raise fault(f"{quoted(value)} is listed twice", "remove one of the two")
        self.seen.add((sort, value))


def _facts(info: ValidationInfo) -> _Facts:
    return cast(_Facts, info.context)


def _plugin_id(value: Any) -> str:
    if not isinstance(value, str):
        raise fault("must be text", "write it in quotes", _ID_FAULT)
    if PLUGIN_ID.fullmatch(value):
        return value
    hint = "write 1 to 63 of a-z, 0-9, _ and -, a letter or a digit first"
    raise fault(f"{quoted(value)} can't be a plugin's id", hint, _ID_FAULT)


def _one_line(text: str) -> str:
    if _CONTROL.search(text):
        raise fault("holds a line end or a control character", "write printable text in one line")
    return _readable(text)


def _readable(text: str) -> str:
    if _CONTROL.search(text.replace("\n", "").replace("\t", "")) or HIDDEN.search(text):
        raise fault("holds characters that hide or reorder text", "write printable text")
    if not text.strip():
        raise fault("is empty", "write some text")
    return text


def _group(name: str) -> str:
    if _GROUP.fullmatch(name):
        return name
    raise fault(f"{quoted(name)} can't be a group", "write 1 to 64 of A-Z, a-z, 0-9, _, . and -")


def _known_permission(name: str, info: ValidationInfo) -> str:
    known = [*_facts(info).vocabulary]
    if name in known:
        return name
    raise fault(f"no one has registered the permission {quoted(name)}", choice_hint(name, known), _PERMISSION_FAULT)


def _manifest_permission(name: str, info: ValidationInfo) -> str:
    _facts(info).once("permission", name)
    return _known_permission(name, info)


def _tool_permission(name: str, info: ValidationInfo) -> str:
    _known_permission(name, info)
    if name not in _facts(info).declared and name != DEFAULT_PERMISSION:
        problem = f"declares {name} but the manifest's permissions do not list it"
        raise fault(problem, f"add {name} to permissions, or ask for less here")
    return name


def _tool_id(text: str, info: ValidationInfo) -> str:
    facts = _facts(info)
    plugin, _, remote = text.partition(".")
    if facts.plugin_id is not None and plugin != facts.plugin_id:
        example = quoted(f"{facts.plugin_id}.{remote or plugin}")
        hint = f"write the plugin's id, a dot and the name that the server lists, such as {example}"
        raise fault(f"{quoted(text)} does not begin with the plugin's id and a dot", hint)
    if not remote:
        hint = "write the plugin's id, a dot and the name that the server lists"
        raise fault(f"{quoted(text)} names no tool", hint)
    full = tool_id(plugin, _remote_name(remote))
    facts.once("tool", full)
    return full


def _remote_name(text: str) -> str:
    try:
        name = unescape(text)
        check_remote_name(name)
    except McpToolInvalid as error:
        raise fault(error.message, error.hint or "rename the tool") from error
    except ValueError as error:
        raise fault(f"the escapes in {quoted(text)} are not UTF-8", "write the name as the server lists it") from error
    return name


def _as_tool(entry: Any) -> Any:
    if isinstance(entry, str):
        return {"id": entry}
    if isinstance(entry, dict):
        return entry
    raise fault("is neither a tool's id nor a mapping with one", 'write "<id>", or {id: <id>, permission: …}')


def _few_enough(entries: Any, info: ValidationInfo) -> Any:
    most = _facts(info).limits.tools_per_plugin
    if isinstance(entries, list) and len(entries) > most:
        raise fault(
            f"lists {len(entries)} tools, more than {most}",
            "offer fewer, or have limits.tools_per_plugin raised in the settings",
        )
    return entries


def _transport(name: str, info: ValidationInfo) -> str:
    if name in _facts(info).transports:
        return name
    raise fault(f"no transport {quoted(name)} is registered", choice_hint(name, _facts(info).transports))


def _seconds(setting: str) -> AfterValidator:
    """Bound a number of seconds by the owner's limit of the name ``setting``."""

    def bounded(seconds: float, info: ValidationInfo) -> float:
        most = getattr(_facts(info).limits, setting)
        if not 0 < seconds <= most:
            problem = f"must be more than 0 and at most {most:g} seconds"
            raise fault(problem, f"write {most:g} or less, or have limits.{setting} raised in the settings")
        return seconds

    return AfterValidator(bounded)


_Number = Annotated[float, Field(strict=True, allow_inf_nan=False)]
_ToolSeconds = Annotated[_Number, _seconds("tool_seconds_max")]


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class ToolEntry(_Part):
    """An entry of ``contributes.tools``; a bare id stands for one that says nothing more."""

    id: Annotated[str, AfterValidator(_tool_id)]
    permission: Annotated[str, AfterValidator(_tool_permission)] | None = None
    groups: tuple[Annotated[str, AfterValidator(_group)], ...] = ()
    visibility: Visibility = Visibility.PUBLIC
    confirm: bool = False


class Contributes(_Part):
    """What the plugin adds."""

    tools: Annotated[tuple[Annotated[ToolEntry, BeforeValidator(_as_tool)], ...], BeforeValidator(_few_enough)]


class Backend(_Part):
    """How the plugin's server is reached; keys that do not stand here are the transport's."""

    model_config = ConfigDict(extra="ignore")

    type: Literal["mcp"]
    transport: Annotated[str, AfterValidator(_transport)]
    startup_timeout_seconds: Annotated[_Number, _seconds("startup_seconds_max")] | None = None
    tool_timeout_seconds: _ToolSeconds | None = None
    progress_idle_seconds: _ToolSeconds | None = None


class ManifestFile(_Part):
    """The whole of ``plugin.yaml``."""

    id: Annotated[str, BeforeValidator(_plugin_id)]
    name: Annotated[str, Field(max_length=100), AfterValidator(_one_line)]
    version: Annotated[str, Field(max_length=64), AfterValidator(_one_line)]
    description: Annotated[str, Field(max_length=2000), AfterValidator(_readable)] | None = None
    permissions: tuple[Annotated[str, AfterValidator(_manifest_permission)], ...] = ()
    contributes: Contributes
    backend: Backend


def load_manifest(
    directory: Path, *, transports: Mapping[str, ClientTransport], permissions: Collection[str], limits: Limits
) -> Manifest:
    """Read the manifest in ``directory`` against what is registered; start and import nothing.

    ``permissions`` is the vocabulary. Raises ``PackageNotFound``, ``ManifestNotFound`` or, with every problem at once,
    ``ManifestInvalid`` (``ExtensionIdInvalid`` and ``ExtensionPermissionInvalid`` are such).
    """
    path = _find(directory)
    try:
        document = read(path)
    except DocumentInvalid as invalid:
        raise _refusal(path, invalid.problems) from None
    facts = _gather(document.data, transports, permissions, limits)
    entry, problems = check(ManifestFile, document.data, document, context=facts)
    backend, more = _check_backend(document, transports)
    if entry is None or backend is None or problems or more:
        raise _refusal(path, sorted([*problems, *more], key=lambda problem: problem.line or 0))
    return _manifest(entry, backend, document, limits)


def _find(directory: Path) -> Path:
    if not os.path.isdir(directory):
        hint = f"name the directory that holds {MANIFEST_NAME}" if os.path.exists(directory) else "check the path"
        raise PackageNotFound("this is no directory", where=str(directory), hint=hint)
    directory = directory.resolve()
    path = directory / MANIFEST_NAME
    if not os.path.lexists(path):
        raise ManifestNotFound(f"no {MANIFEST_NAME} stands here", where=str(directory), hint=_search_hint(directory))
    if not Path(os.path.realpath(path)).is_relative_to(directory):
        problem = Problem(None, "", "the file is a link out of the plugin's directory", "put the file itself there")
        raise _refusal(path, [problem])
    return path


def _search_hint(directory: Path) -> str:
    if (directory / "plugin.yml").exists():
        return f"rename plugin.yml to {MANIFEST_NAME}"
    try:
        with os.scandir(directory) as entries:
            found = [entry.name for entry in islice(entries, 1000) if os.path.isfile(Path(entry.path, MANIFEST_NAME))]
    except OSError:
        found = []
    if len(found) == 1:
        return f"did you mean its subdirectory {quoted(found[0])}?"
    return f"name the directory that holds {MANIFEST_NAME}"


def _gather(data: dict[str, Any], transports: Collection[str], permissions: Collection[str], limits: Limits) -> _Facts:
    plugin_id, declared = data.get("id"), data.get("permissions")
    listed = declared if isinstance(declared, list) else []
    return _Facts(
        plugin_id=plugin_id if isinstance(plugin_id, str) and PLUGIN_ID.fullmatch(plugin_id) else None,
        declared=frozenset(name for name in listed if isinstance(name, str)),
        vocabulary=sorted({*permissions, DEFAULT_PERMISSION}),
        transports=sorted(transports),
        limits=limits,
    )


def _check_backend(
    document: Document, transports: Mapping[str, ClientTransport]
) -> tuple[BaseModel | None, list[Problem]]:
    """Let the transport judge its own keys; what is wrong with ours is reported by :class:`ManifestFile`."""
    data = document.data.get("backend")
    ours = keys_of(Backend)
    if not isinstance(data, dict):
        return None, []
    theirs = {key: value for key, value in data.items() if key not in ours}
    transport = data.get("transport")
    if isinstance(transport, str) and transport in transports:
        return check(transports[transport].backend_model, theirs, document, at=("backend",), also=ours)
    if transport is None and (misspelt := near("transport", theirs)):
        keys = ("backend", misspelt)
        return None, [Problem(document.line(keys), field_name(keys), "is not a key here", "did you mean transport?")]
    return None, []


def _manifest(entry: ManifestFile, backend: BaseModel, document: Document, limits: Limits) -> Manifest:
    tools = [_declaration(tool) for tool in entry.contributes.tools]
    head = entry.backend
    return Manifest(
        id=entry.id,
        name=entry.name,
        version=entry.version,
        description=entry.description,
        permissions=tuple(dict.fromkeys([*entry.permissions, DEFAULT_PERMISSION])),
        tools=MappingProxyType({tool.id: tool for tool in tools}),
        backend_type=head.type,
        transport=head.transport,
        startup_seconds=head.startup_timeout_seconds or limits.startup_seconds,
        tool_seconds=head.tool_timeout_seconds or limits.tool_seconds,
        progress_idle_seconds=head.progress_idle_seconds or limits.progress_idle_seconds,
        backend=backend,
        directory=document.path.parent,
        path=document.path,
        text=document.text,
        digest=document.digest,
    )


def _declaration(entry: ToolEntry) -> ToolDeclaration:
    remote = unescape(entry.id.partition(".")[2])
    return ToolDeclaration(entry.id, remote, entry.permission, frozenset(entry.groups), entry.visibility, entry.confirm)


def _refusal(path: Path, problems: Sequence[Problem]) -> ManifestInvalid:
    message, where, hint = summary(path, problems)
    kinds = {problem.kind for problem in problems}
    error = ManifestInvalid
    if _ID_FAULT in kinds:
        error = ExtensionIdInvalid
    elif _PERMISSION_FAULT in kinds:
        error = ExtensionPermissionInvalid
    return error(message, where=where, hint=hint, problems=[problem.as_dict() for problem in problems])
