"""Errors of what is asked over HTTP: the request, an agent's run, a trace."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from .base import BasculeError


class TraceNotFound(BasculeError):
    """No run or step of this id is kept: it never was, or it is older than the bound on traces."""

    code = "TRACE_NOT_FOUND"
    status = 404


class RequestError(BasculeError):
    """An HTTP request itself is at fault, whatever it asks for."""


class RequestRefused(RequestError):
    """Host, origin, framing, size, path or method: ``status`` says which, in HTTP's own words (RFC 9110)."""

    code = "REQUEST_REFUSED"
    status = 400

    def __init__(self, message: str, *, status: int = 400, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.status = status


class RequestInvalid(RequestError):
    """The body or a parameter does not fit.

    ``problems`` has ``{pointer, problem}`` for each fault; a pointer leads into the body, or names the parameter.
    """

    code = "REQUEST_INVALID"
    status = 422

    def __init__(self, message: str, *, hint: str | None = None, problems: Sequence[Mapping[str, str]] = ()) -> None:
        super().__init__(message, hint=hint)
        self.problems = tuple(problems)


class TokenRequired(RequestError):
    """There is no bearer token, or it is unknown or revoked."""

    code = "TOKEN_REQUIRED"
    status = 401


class ScopeRequired(RequestError):
    """The token has none of the scopes that this takes."""

    code = "SCOPE_REQUIRED"
    status = 403


class DirectoryForbidden(RequestError):
    """Over HTTP, plugins are installed from below ``plugin_roots`` alone."""

    code = "PLUGIN_DIRECTORY_FORBIDDEN"
    status = 403


class RunError(BasculeError):
    """An agent's run is the matter."""


class RunNotFound(RunError):
    """No run of this id was opened, or by someone else: the text is the same for both."""

    code = "RUN_NOT_FOUND"
    status = 404


class RunEnded(RunError):
    """The run has been finished, or had no call for so long that it counts as abandoned."""

    code = "RUN_ENDED"
    status = 409


class RunLimitReached(RunError):
    """This owner has as many runs open as the limits allow."""

    code = "RUN_LIMIT_REACHED"
    status = 429
