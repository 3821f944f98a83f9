"""The root of all errors, and those of the bridge itself: its settings, its state, its hook plugins."""

from __future__ import annotations

from typing import Any, ClassVar


class BasculeError(Exception):
    """The root: whoever catches this catches all that Bascule raises on purpose.

    ``where`` names the place (a file and line, a JSON pointer, a plugin), ``hint`` the cure.
    """

    code: ClassVar[str] = "BASCULE_ERROR"
    status: int = 500

    def __init__(
        self,
        message: str,
        *,
        where: str | None = None,
        hint: str | None = None,
        diagnosis: str | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.where = where
        self.hint = hint
        self.diagnosis = diagnosis

    def __str__(self) -> str:
        text = f"{self.where}: {self.message}" if self.where else self.message
        return f"{text} ({self.hint})" if self.hint else text

    def as_dict(self) -> dict[str, Any]:
        """What may be shown to anyone: no diagnosis."""
        shown = {"code": self.code, "message": self.message, "where": self.where, "hint": self.hint}
        return {key: value for key, value in shown.items() if value is not None}


class SettingsInvalid(BasculeError):
    """A setting is missing, unknown or out of its bounds."""

    code = "SETTINGS_INVALID"
    status = 422


class StateLocked(BasculeError):
    """Another bridge works on this state directory."""

    code = "STATE_LOCKED"
    status = 409


class StateUnavailable(BasculeError):
    """The state directory can't be read or written, or was written by a newer Bascule."""

    code = "STATE_UNAVAILABLE"
    status = 503


class BridgeUnreachable(BasculeError):
    """No bridge runs where one was looked for, or it does not answer as one."""

    code = "BRIDGE_UNREACHABLE"
    status = 503


class HookPluginError(BasculeError):
    """A hook plugin (code that the owner installed) is the matter."""


class HookPluginBroken(HookPluginError):
    """It did not import, misspelt a hook, or offered something that breaks the hook's contract."""

    code = "HOOK_PLUGIN_BROKEN"


class HookConflict(HookPluginError):
    """Two hook plugins offer the same name, or two distributions register one entry point."""

    code = "HOOK_CONFLICT"
    status = 409


class HookPluginRequired(HookPluginError):
    """A hook plugin that guards calls is missing; server transports stay closed."""

    code = "HOOK_PLUGIN_REQUIRED"
    status = 503
