"""A plugin's manifest, ``plugin.yaml``: read and checked, while nothing of the plugin runs (N3)."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import AfterValidator, AliasPath, BaseModel, BeforeValidator, Field, ValidationInfo, WrapValidator

from ..hookspecs import errors
from ..hookspecs.config import Limits, Section
from ..hookspecs.tools import DEFAULT_PERMISSION, Visibility
from ..hookspecs.transports import ClientTransport
from .demands import Demands
from .documents import Document, Problem, check, fault, meant, quoted
from .naming import PLUGIN_ID, check_remote_name, tool_id, unescape
from .yaml_source import read

MANIFEST_NAME = "plugin.yaml"

BACKEND_KEYS = ("type", "transport", "startup_timeout_seconds", "tool_timeout_seconds", "progress_idle_seconds")
"""Those that hold for every transport; the others of ``backend`` are the transport's."""


class _Facts(NamedTuple):
    """What the validators know beside the value in front of them, and what they have seen of the file."""

    transports: Collection[str]
    permissions: Collection[str]
    limits: Limits
    plugin_id: str
    declared: set[str]
    tools: set[str]


def _registered(word: str, known: Collection[str], what: str) -> str:
    """Return ``word``, which is to be one of ``known``."""
    if word in known:
        return word
    listed = sorted(known)
    problem = f"no {what} {quoted(word)} is registered; there are: {', '.join(listed) or 'none'}"
    raise fault(problem, meant(word, listed, "name one of these"), f"{what}_unknown")


def _once(word: str, seen: set[str]) -> str:
    """Return ``word``, which is to be none of those ``seen``, and remember it."""
    if word in seen:
        raise fault(f"{quoted(word)} is listed twice", "remove one of the two")
    seen.add(word)
    return word


def _permission(name: str, info: ValidationInfo[_Facts]) -> str:
    """Judge what the plugin may ask for."""
    return _registered(_once(name, info.context.declared), info.context.permissions, "permission")


def _tool_permission(name: str, info: ValidationInfo[_Facts]) -> str:
    """Judge what a tool asks for: what the plugin may ask for, or ``tools.call``."""
    known = _registered(name, info.context.permissions, "permission")
    if known == DEFAULT_PERMISSION or known in info.context.declared:
        return known
    raise fault("is not among the manifest's permissions", f"add {name} there, or ask for less here")


def _tool_id(text: str, info: ValidationInfo[_Facts]) -> str:
    """Return the id of the tool; the server's name in it may stand as it is, or escaped (N3.4, N5.1)."""
    plugin, _, written = text.partition(".")
    owner = info.context.plugin_id or plugin
    if plugin != owner or not written:
        example = quoted(f"{owner}.{written or plugin}")
        raise fault(f"{quoted(text)} is not the plugin's id, a dot and a tool's name", f"write all, such as {example}")
    try:
        name = unescape(written)
        check_remote_name(name)
    except errors.McpToolInvalid as error:
        raise fault(error.message, error.hint or "rename the tool") from error
    return _once(tool_id(plugin, name), info.context.tools)


def _entries(entries: Any, info: ValidationInfo[_Facts]) -> Any:
    """Bound the list of tools, and let a bare id stand for an entry that says nothing more."""
    if not isinstance(entries, list):
        return entries
    most = info.context.limits.tools_per_plugin
    if len(entries) > most:
        raise fault(f"lists {len(entries)} tools, more than {most}", "have limits.tools_per_plugin raised")
    return [{"id": entry} if isinstance(entry, str) else entry for entry in entries]


def _transport(name: str, info: ValidationInfo[_Facts]) -> str:
    """Judge the name of the transport (N3.1)."""
    return _registered(name, info.context.transports, "transport")


def _seconds(value: Any, number: Callable[[Any], float], info: ValidationInfo[_Facts]) -> float:
    """Bound seconds by the owner's limits; the one of the field's name holds where they are left out (N3.6)."""
    limits, name = info.context.limits, str(info.field_name)
    if value is None:
        return float(getattr(limits, name))
    most = "startup_seconds_max" if name == "startup_seconds" else "tool_seconds_max"
    seconds, bound = number(value), getattr(limits, most)
    if 0 < seconds <= bound:
        return seconds
    raise fault(f"must be more than 0 and at most {bound:g} seconds", f"change it, or have limits.{most} raised")


def _below_backend(key: str, **more: Any) -> Any:
    """Say that a field stands at ``key`` below ``backend`` in the file."""
    return Field(validation_alias=AliasPath("backend", key), validate_default=True, **more)


class ToolDeclaration(BaseModel, extra="forbid", frozen=True):
    """A tool that the manifest announces.

    ``permission`` is what this entry says, ``None`` where it says nothing: the server may say it then (N5.4).
    """

    id: Annotated[str, AfterValidator(_tool_id)]
    permission: Annotated[str, AfterValidator(_tool_permission)] | None = None
    groups: frozenset[Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$")]] = frozenset()
    visibility: Visibility = Visibility.PUBLIC
    confirm: bool = False

    @property
    def remote_name(self) -> str:
        """The server's own name for it, unescaped."""
        return unescape(self.id.partition(".")[2])


_Seconds = Annotated[float, Field(strict=True), WrapValidator(_seconds)]


class Contributes(BaseModel, extra="forbid", frozen=True):
    """What the plugin adds."""

    tools: Annotated[tuple[ToolDeclaration, ...], BeforeValidator(_entries)]


class ManifestFile(BaseModel, frozen=True):
    """``plugin.yaml`` as far as it is not the transport's."""

    id: Annotated[str, Field(pattern=f"^{PLUGIN_ID.pattern}$")]
    name: Annotated[str, Field(pattern=r"^.*\S.*$", max_length=100)]
    version: Annotated[str, Field(pattern=r"^.*\S.*$", max_length=64)]
    description: Annotated[str, Field(max_length=2000)] | None = None
    permissions: tuple[Annotated[str, AfterValidator(_permission)], ...] = ()
    contributes: Contributes
    isolation: Demands = Demands()
    backend_type: Literal["mcp"] = _below_backend("type")
    transport: Annotated[str, AfterValidator(_transport)] = _below_backend("transport")
    startup_seconds: _Seconds = _below_backend("startup_timeout_seconds", default=None)
    tool_seconds: _Seconds = _below_backend("tool_timeout_seconds", default=None)
    progress_idle_seconds: _Seconds = _below_backend("progress_idle_seconds", default=None)


class Manifest(ManifestFile, frozen=True):
    """What a plugin says of itself. ``digest`` is the SHA-256 of the file, in hex; approvals are bound to it.

    ``permissions`` are all that the owner is asked for: those declared, and ``tools.call``, which every manifest holds
    (N5.4). ``tools`` are in the file's order, by id. ``backend`` is the transport's ``backend_model``.
    """

    tools: Mapping[str, ToolDeclaration]
    backend: BaseModel = Field(repr=False)
    directory: Path
    path: Path
    text: str = Field(repr=False)
    digest: str


def load_manifest(
    directory: Path, *, transports: Mapping[str, ClientTransport], permissions: Collection[str], limits: Limits
) -> Manifest:
    """Read the manifest in ``directory`` against what is registered; start and import nothing.

    ``permissions`` is the vocabulary. Raises ``PackageNotFound``, ``ManifestNotFound`` or, with every problem at once,
    ``ManifestInvalid`` (``ExtensionIdInvalid`` and ``ExtensionPermissionInvalid`` are such).
    """
    document = _read(directory)
    owner = PLUGIN_ID.fullmatch(str(document.data.get("id")))
    facts = _Facts(transports, {*permissions, DEFAULT_PERMISSION}, limits, owner[0] if owner else "", set(), set())
    file, problems = check(ManifestFile, document.data, document, context=facts)
    backend, more = _check_backend(document, transports)
    if file is None or backend is None or more:
        raise _refusal(document, [*problems, *more])
    beside = {
        "permissions": tuple(dict.fromkeys([*file.permissions, DEFAULT_PERMISSION])),
        "tools": MappingProxyType({tool.id: tool for tool in file.contributes.tools}),
        "backend": backend,
        "directory": document.path.parent,
        "path": document.path,
        "text": document.text,
        "digest": document.digest,
    }
    return Manifest.model_construct(**dict(file)).model_copy(update=beside)


def remembered_manifest(plugin_id: str, directory: Path, text: str, digest: str) -> Manifest:
    """What is left of a manifest that can't be read any more: who it was. It declares nothing."""
    return Manifest.model_construct(
        id=plugin_id,
        name=plugin_id,
        version="",
        permissions=(),
        contributes=Contributes(tools=()),
        backend_type="mcp",
        transport="",
        tools=MappingProxyType({}),
        backend=Section(),
        directory=directory,
        path=directory / MANIFEST_NAME,
        text=text,
        digest=digest,
    )


def _read(directory: Path) -> Document:
    """Read the file in ``directory``, which must be inside it."""
    hint = f"name the directory that holds {MANIFEST_NAME}"
    if not os.path.isdir(directory):
        raise errors.PackageNotFound("this is no directory", where=str(directory), hint=hint)
    directory = directory.resolve()
    path = directory / MANIFEST_NAME
    if not os.path.lexists(path):
        near = [*directory.glob("plugin.yml"), *directory.glob(f"*/{MANIFEST_NAME}")]
        hint = f"did you mean {quoted(str(near[0].relative_to(directory)))}?" if len(near) == 1 else hint
        raise errors.ManifestNotFound(f"no {MANIFEST_NAME} stands here", where=str(directory), hint=hint)
    if Path(os.path.realpath(path)).is_relative_to(directory):
        return read(path)
    problem = Problem(None, "", "the file is a link out of the plugin's directory", "put the file itself there")
    return Document(path, problems=[problem])


def _check_backend(
    document: Document, transports: Mapping[str, ClientTransport]
) -> tuple[BaseModel | None, Sequence[Problem]]:
    """Let the transport judge its own keys; what is wrong with ours, the model of the file says."""
    data = document.data.get("backend")
    transport = transports.get(str(data.get("transport"))) if isinstance(data, dict) else None
    if not isinstance(data, dict) or transport is None:
        return None, []
    theirs = {key: value for key, value in data.items() if key not in BACKEND_KEYS}
    return check(transport.backend_model, theirs, document, ("backend",), BACKEND_KEYS)


def _refusal(document: Document, problems: Sequence[Problem]) -> errors.ManifestInvalid:
    """Make the error; the gravest problem gives its code."""
    problems = sorted(problems, key=lambda problem: problem.line or 0)
    kinds = {problem.kind for problem in problems}
    error = errors.ExtensionPermissionInvalid if "permission_unknown" in kinds else errors.ManifestInvalid
    if any(problem.field == "id" and problem.kind.startswith("string_") for problem in problems):
        error = errors.ExtensionIdInvalid
    message, where, hint = document.summary(problems)
    return error(message, where=where, hint=hint, problems=[problem.as_dict() for problem in problems])
