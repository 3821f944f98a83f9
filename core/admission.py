"""From what a server lists to what may stand in the registry, or the reason why not (N4.1.8, N4.1.9, N5).

Everything here is computed from values alone; it may run in a thread, since thousands of schemas take their time.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from ..hookspecs import (
    DEFAULT_PERMISSION,
    ExtensionPermissionInvalid,
    ForeignTool,
    JsonObject,
    McpToolInvalid,
    PluginContributionInvalid,
    PluginPermissionUndeclared,
    ToolConverter,
    ToolDefinition,
)
from . import contracts, hygiene, naming
from .manifest import Manifest, ToolDeclaration
from .registry import Destination, Entry

_SHOWN = 20  # names in one message


@dataclass(frozen=True, slots=True)
class Admission:
    """What a plugin's tools are measured by."""

    manifest: Manifest
    converter: ToolConverter
    vocabulary: Collection[str]

    def admit(
        self, listed: Sequence[JsonObject], destination: Destination, granted: frozenset[str], *, whole: bool = True
    ) -> list[Entry]:
        """Check every listed tool, then (``whole``) the set; raise on the first fault."""
        foreign = [self.converter.read_tool(tool) for tool in listed]
        names = self._ids(foreign)
        entries = [self._entry(tool, name, destination, granted) for tool, name in zip(foreign, names, strict=True)]
        if whole:
            self._check_set(names)
        return entries

    def _ids(self, foreign: Iterable[ForeignTool]) -> list[str]:
        names: dict[str, str] = {}
        looks: dict[str, str] = {}
        for tool in foreign:
            naming.check_remote_name(tool.name)
            name = naming.tool_id(self.manifest.id, tool.name)
            if name in names:
                raise McpToolInvalid(f"the server lists {tool.name!r} twice", where=name)
            names[name] = tool.name
            twin = looks.setdefault(hygiene.skeleton(tool.name), tool.name)
            if twin != tool.name:
                raise McpToolInvalid(f"{tool.name!r} looks like {twin!r}", where=name, hint="rename one of the two")
        return list(names)

    def _check_set(self, discovered: Sequence[str]) -> None:
        """The discovered set equals the manifest's exactly (N4.1.9)."""
        undeclared = sorted(set(discovered) - set(self.manifest.tools))
        missing = sorted(set(self.manifest.tools) - set(discovered))
        faults = []
        if undeclared:
            faults.append(f"the server lists what the manifest does not declare: {_listing(undeclared)}")
        if missing:
            faults.append(f"the manifest declares what the server does not list: {_listing(missing)}")
        if faults:
            raise PluginContributionInvalid(
                "; ".join(faults),
                where=str(self.manifest.path),
                hint="make contributes.tools say exactly what the server offers",
            )

    def _entry(self, tool: ForeignTool, name: str, destination: Destination, granted: frozenset[str]) -> Entry:
        hygiene.check(_written(tool), name)
        declared = self.manifest.tools.get(name)
        definition = ToolDefinition(
            name=name,
            description=tool.description,
            parameters=tool.parameters,
            permission=self._permission(tool, name, declared),
            plugin_id=self.manifest.id,
            remote_name=tool.name,
            alias=naming.alias(name),
            title=tool.title,
            output_schema=tool.output_schema,
            origin=tool.origin,
        )
        if declared is not None:
            definition = _as_declared(definition, declared)
        return Entry(
            definition,
            _validator(tool.parameters, name, "inputSchema"),
            None if tool.output_schema is None else _validator(tool.output_schema, name, "outputSchema"),
            granted,
            destination,
        )

    def _permission(self, tool: ForeignTool, name: str, declared: ToolDeclaration | None) -> str:
        """Decide by precedence: the manifest's entry, the server's ``_meta``, the default (N5.4)."""
        stated = None if declared is None else declared.permission
        if stated is not None and tool.permission is not None and stated != tool.permission:
            raise PluginContributionInvalid(
                f"the manifest gives {name} the permission {stated}, the server asks for {tool.permission}",
                where=name,
                hint="make both say the same",
            )
        permission = stated or tool.permission or DEFAULT_PERMISSION
        if permission not in self.vocabulary:
            raise ExtensionPermissionInvalid(
                f"{name} asks for {permission!r}, which no one has registered",
                where=name,
                hint=f"known are {', '.join(sorted(self.vocabulary))}",
            )
        if permission != DEFAULT_PERMISSION and permission not in self.manifest.permissions:
            raise PluginPermissionUndeclared(
                f"{name} asks for {permission}, which the manifest does not declare",
                where=str(self.manifest.path),
                hint=f"add {permission} to permissions, if the plugin may have it",
            )
        return permission


def requested(manifest: Manifest) -> frozenset[str]:
    """What the owner must grant before the plugin runs: ``tools.call`` is in every manifest (N5.4)."""
    return frozenset(manifest.permissions) | {DEFAULT_PERMISSION}


def _as_declared(tool: ToolDefinition, declared: ToolDeclaration) -> ToolDefinition:
    return replace(tool, groups=declared.groups, visibility=declared.visibility, confirm=declared.confirm)


def _written(tool: ForeignTool) -> JsonObject:
    """Everything that the server wrote of the tool, as far as the converter kept it."""
    if tool.origin is not None:
        return tool.origin.value
    shown = {"title": tool.title, "description": tool.description, "inputSchema": tool.parameters}
    return {**shown, "outputSchema": tool.output_schema}


def _validator(schema: Mapping[str, object], name: str, part: str) -> contracts.Validator:
    try:
        contracts.gate(schema)
        return contracts.compile(schema)
    except McpToolInvalid as error:
        where = f"{name} {part}{error.where or ''}"
        raise McpToolInvalid(error.message, where=where, hint=error.hint) from error


def _listing(names: Sequence[str]) -> str:
    shown = ", ".join(names[:_SHOWN])
    return f"{shown} and {len(names) - _SHOWN} more" if len(names) > _SHOWN else shown
