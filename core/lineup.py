"""Asks each hook plugin once what it offers, and freezes the answers (pluggy, here only).

A hook plugin counts as a whole: one that raises in a hook, misspells one, offers something that is not what the
hook asks for, or takes a name that is taken, is out with all its offers and reported; the others stand.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pluggy
from pydantic import BaseModel

from .. import hookspecs
from ..hookspecs import (
    CORE_PERMISSIONS,
    PROJECT,
    BasculeError,
    ClientTransport,
    Config,
    Exposure,
    ExposurePolicy,
    HookConflict,
    HookPluginBroken,
    HttpServer,
    Isolation,
    Launcher,
    Observer,
    Permission,
    PermissionCheck,
    ServerTransport,
    ToolConverter,
    converters,
    exposure,
    http_servers,
    launchers,
    observers,
    permissions,
    transports,
)
from .discovery import Disabled, Discovery, Failed, Found, Loaded
from .documents import near

log = logging.getLogger(__name__)

SPEC_MODULES = (transports, converters, permissions, exposure, launchers, http_servers, observers)


@dataclass(frozen=True, slots=True)
class Kind:
    """What a member of an offer must be; ``words`` say it to the hook plugin's author."""

    words: str
    fits: Callable[[Any], bool]


CALLABLE = Kind("something that can be called", callable)
TEXT = Kind("text", lambda value: isinstance(value, str))
SWITCH = Kind("True or False", lambda value: isinstance(value, bool))
MODEL = Kind("a pydantic model", lambda value: isinstance(value, type) and issubclass(value, BaseModel))
# the environment gate (N6.9) reads it: a plain "none" would pass as something that isolates
ISOLATION = Kind("an Isolation", lambda value: isinstance(value, Isolation))
EXPOSURE = Kind("an Exposure", lambda value: isinstance(value, Exposure))


@dataclass(frozen=True, slots=True)
class Family:
    """One hook: what its offers are called, what names them and what they must have."""

    hook: str
    noun: str
    key: str
    members: Mapping[str, Kind]
    guards: bool = False


def _callables(*names: str) -> dict[str, Kind]:
    return dict.fromkeys(names, CALLABLE)


FAMILIES = (
    Family("bascule_permissions", "permission", "name", {"description": TEXT}),
    Family(
        "bascule_client_transports",
        "client transport",
        "name",
        {"backend_model": MODEL, "starts_process": SWITCH, **_callables("preview", "connect")},
    ),
    Family("bascule_server_transports", "server transport", "name", {"exposure": EXPOSURE, "serve": CALLABLE}),
    Family(
        "bascule_tool_converters",
        "converter",
        "dialect",
        _callables("read_tool", "write_tool", "read_result", "write_result", "read_call"),
    ),
    Family("bascule_permission_checks", "permission check", "name", {"__call__": CALLABLE}, guards=True),
    Family("bascule_exposure_policies", "exposure policy", "name", {"__call__": CALLABLE}, guards=True),
    Family("bascule_launchers", "launcher", "name", {"isolation": ISOLATION, "launch": CALLABLE}),
    Family("bascule_http_servers", "HTTP server", "name", {"serve": CALLABLE}),
    Family("bascule_observers", "observer", "name", {"__call__": CALLABLE}),
)

HOOKS = frozenset(family.hook for family in FAMILIES)
GUARDING_HOOKS = frozenset(family.hook for family in FAMILIES if family.guards)

_TO_ITS_AUTHOR = "report it to its author"
_MAX_OFFERS = 1_000  # of one hook plugin to one hook: an endless generator must not hang the start


@dataclass(frozen=True, slots=True)
class HookPlugin:
    """What became of one hook plugin. ``offers`` maps a hook to the names that it offers there."""

    found: Found
    offers: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    error: BasculeError | None = None
    disabled: bool = False

    @property
    def name(self) -> str:
        return self.found.name

    @property
    def guards(self) -> frozenset[str]:
        """The hooks by which it guards calls: if it goes missing, nothing may be served (fail closed)."""
        return frozenset(hook for hook in GUARDING_HOOKS if self.offers.get(hook))


@dataclass(frozen=True, slots=True)
class Lineup:
    """Everything that was offered, by name; frozen for the life of the bridge."""

    hook_plugins: tuple[HookPlugin, ...]
    permissions: Mapping[str, Permission]
    client_transports: Mapping[str, ClientTransport]
    server_transports: Mapping[str, ServerTransport]
    converters: Mapping[str, ToolConverter]
    permission_checks: Mapping[str, PermissionCheck]
    exposure_policies: Mapping[str, ExposurePolicy]
    launchers: Mapping[str, Launcher]
    http_servers: Mapping[str, HttpServer]
    observers: Mapping[str, Observer]
    server_transport_owners: Mapping[str, str]

    @property
    def broken(self) -> tuple[HookPlugin, ...]:
        return tuple(plugin for plugin in self.hook_plugins if plugin.error is not None)


def assemble(discovered: Iterable[Discovery], config_for: Callable[[str], Config]) -> Lineup:
    """Ask every loaded hook plugin what it offers. ``config_for`` gives a hook plugin, by name, its config."""
    return _Assembly(config_for).run(discovered)


class _Assembly:
    """The one place where all answers meet."""

    def __init__(self, config_for: Callable[[str], Config]) -> None:
        self._config_for = config_for
        self._manager = pluggy.PluginManager(PROJECT)
        for module in SPEC_MODULES:
            self._manager.add_hookspecs(module)
        self._offers: dict[str, dict[str, Any]] = {family.hook: {} for family in FAMILIES}
        self._owners: dict[tuple[str, str], str] = {}
        for permission in CORE_PERMISSIONS:
            self._offers["bascule_permissions"][permission.name] = permission
            self._owners["bascule_permissions", permission.name] = "the core"

    def run(self, discovered: Iterable[Discovery]) -> Lineup:
        plugins = tuple(self._take(item) for item in discovered)
        for plugin in plugins:
            if plugin.error is not None:
                log.warning("hook plugin %s is out: %s", plugin.name, plugin.error)
        by_hook = self._offers
        return Lineup(
            hook_plugins=plugins,
            permissions=by_hook["bascule_permissions"],
            client_transports=by_hook["bascule_client_transports"],
            server_transports=by_hook["bascule_server_transports"],
            converters=by_hook["bascule_tool_converters"],
            permission_checks=by_hook["bascule_permission_checks"],
            exposure_policies=by_hook["bascule_exposure_policies"],
            launchers=by_hook["bascule_launchers"],
            http_servers=by_hook["bascule_http_servers"],
            observers=by_hook["bascule_observers"],
            server_transport_owners={
                name: owner for (hook, name), owner in self._owners.items() if hook == "bascule_server_transports"
            },
        )

    def _take(self, item: Discovery) -> HookPlugin:
        match item:
            case Disabled(found):
                return HookPlugin(found, disabled=True)
            case Failed(found, error):
                return HookPlugin(found, error=error)
            case Loaded(found, plugin):
                try:
                    self._register(found.name, plugin)
                    offers = self._ask(found.name)
                except BasculeError as error:
                    return HookPlugin(found, error=error)
                except Exception as error:  # noqa: BLE001 - whatever it is, it is this one's own affair
                    return HookPlugin(found, error=HookPluginBroken(f"it failed: {_words(error)}", hint=_TO_ITS_AUTHOR))
                return HookPlugin(found, offers=self._accept(found.name, offers))

    def _register(self, name: str, plugin: Any) -> None:
        """Let pluggy compare the implementations with the hooks; unknown and unmarked ones are errors as well."""
        try:
            self._manager.register(plugin, name)
            self._manager.check_pending()
        except (pluggy.PluginValidationError, ValueError) as error:
            if self._manager.has_plugin(name):
                self._manager.unregister(name=name)
            raise _unfit(str(error).strip().splitlines()[-1]) from error
        marked = {caller.name for caller in self._manager.get_hookcallers(plugin) or ()}
        unmarked = sorted(hook for hook in HOOKS - marked if callable(getattr(plugin, hook, None)))
        if unmarked:
            self._manager.unregister(name=name)
            raise HookPluginBroken(f"{', '.join(unmarked)} lacks @hookimpl", hint="put @hookimpl above it")

    def _ask(self, name: str) -> dict[str, dict[str, Any]]:
        """Call each hook for this one hook plugin alone, so that what it raises is its own affair."""
        config = self._config_for(name)
        others = [plugin for other, plugin in self._manager.list_name_plugin() if other != name]
        offers: dict[str, dict[str, Any]] = {}
        for family in FAMILIES:
            caller = self._manager.subset_hook_caller(family.hook, others)
            if not caller.get_hookimpls():
                continue
            try:
                answers = [offer for answer in caller(config=config) for offer in _bounded(answer, family)]
            except BasculeError:
                raise
            except (Exception, SystemExit) as error:
                raise HookPluginBroken(
                    f"{family.hook} raised {_words(error)}", hint="report it to its author"
                ) from error
            offers[family.hook] = self._named(family, answers)
        return offers

    def _named(self, family: Family, answers: list[Any]) -> dict[str, Any]:
        named: dict[str, Any] = {}
        for offer in answers:
            name = _checked(family, offer)
            owner = "itself" if name in named else self._owners.get((family.hook, name))
            if owner is not None:
                raise HookConflict(
                    f"it offers the {family.noun} {name!r}, which {owner} offers already",
                    hint=f"turn one of them off with --no-hook-plugin, or rename the {family.noun}",
                )
            named[name] = offer
        return named

    def _accept(self, plugin: str, offers: Mapping[str, dict[str, Any]]) -> dict[str, tuple[str, ...]]:
        for hook, named in offers.items():
            self._offers[hook].update(named)
            self._owners.update({(hook, name): plugin for name in named})
        return {hook: tuple(named) for hook, named in offers.items()}


def _words(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"[:500]


def _unfit(reason: str) -> HookPluginBroken:
    """What pluggy objects to, and the hook that was probably meant."""
    hint = "compare its functions with the hooks that bascule.hookspecs lists"
    quoted = reason.split("'")
    if reason.startswith("unknown hook") and len(quoted) > 1 and (meant := near(quoted[1], HOOKS)):
        hint = f"did you mean {meant}?"
    return HookPluginBroken(f"it does not fit the hooks: {reason}", hint=hint)


def _bounded(answer: Iterable[Any] | None, family: Family) -> Iterable[Any]:
    if answer is None:
        return
    if not hasattr(answer, "__iter__"):
        kind = type(answer).__name__
        if hasattr(answer, "close"):
            answer.close()  # a coroutine that no one awaits would warn
        raise HookPluginBroken(f"{family.hook} returned a {kind}", hint="a hook is synchronous and returns a list")
    for count, offer in enumerate(answer, 1):
        if count > _MAX_OFFERS:
            raise HookPluginBroken(f"{family.hook} offers more than {_MAX_OFFERS:,} values", hint=_TO_ITS_AUTHOR)
        yield offer


def _checked(family: Family, offer: Any) -> str:
    """Return the offer's name; raise where the offer is not what the hook asks for."""
    if isinstance(offer, type):
        raise HookPluginBroken(f"{family.hook} returned the class {offer.__name__}", hint="return an instance of it")
    hint = f"see the Protocol that {family.hook} names in {hookspecs.__name__}"
    name = getattr(offer, family.key, None)
    if not isinstance(name, str) or not name:
        reason = f"{family.hook} returned a {type(offer).__name__}, which has no text {family.key!r}"
        raise HookPluginBroken(reason, hint=hint)
    missing = [member for member in family.members if not hasattr(offer, member)]
    if missing:
        raise HookPluginBroken(f"the {family.noun} {name!r} lacks {', '.join(missing)}", hint=hint)
    for member, kind in family.members.items():
        if not kind.fits(getattr(offer, member)):
            raise HookPluginBroken(f"{member} of the {family.noun} {name!r} is not {kind.words}", hint=hint)
    return name


def gaps(lineup: Lineup) -> list[str]:
    """What no hook plugin offers at all, and what can't be done without it."""
    needed = (
        (lineup.client_transports, "no client transport is there: no plugin's server can be reached"),
        ("mcp" in lineup.converters, "no converter for mcp is there: no plugin can be enabled"),
        (lineup.permission_checks, "no permission check is there: every call is refused"),
        (lineup.exposure_policies, "no exposure policy is there: no tool is shown to anyone"),
        (lineup.launchers, "no launcher is there: no server can be started as a process"),
        (lineup.http_servers, "no HTTP server is there: no way in over HTTP opens"),
    )
    return [words for there, words in needed if not there]


def missing_guards(
    lineup: Lineup, remembered: Mapping[str, frozenset[str]], required: Iterable[str], disabled: Iterable[str]
) -> dict[str, str]:
    """Which hook plugins guarded calls once, or are required, and are not in force now; with the reason.

    While there is one, no server transport may start: its check or policy would silently be missing. The owner
    gives it up by disabling it by name.
    """
    guards = {name: hooks & GUARDING_HOOKS for name, hooks in remembered.items() if hooks & GUARDING_HOOKS}
    missing: dict[str, str] = {}
    for name in sorted((guards.keys() | set(required)) - set(disabled)):
        candidates = [plugin for plugin in lineup.hook_plugins if plugin.name == name]
        in_force = [plugin for plugin in candidates if plugin.error is None]
        if not candidates:
            missing[name] = "it is not installed any more" if name in guards else "it is not installed"
        elif not in_force:
            missing[name] = str(candidates[0].error)
        elif not guards.get(name, frozenset()) <= in_force[0].guards:
            missing[name] = "it no longer offers the check or the policy that it offered before"
    return missing
