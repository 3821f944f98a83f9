"""A value that shows itself to nobody by accident."""

from __future__ import annotations

from pydantic import SecretStr


class Secret(SecretStr):
    """A token, a password, a key: ``repr``, ``str``, ``format`` and JSON give stars; :meth:`reveal` gives the value.

    For fields of a hook plugin's :class:`~bascule.hookspecs.Section` and for whatever else carries one: an error, a
    log line or a trace that holds the object then holds no secret.

    Example::

        class SearchSettings(Section):
            api_key: Secret
    """

    def reveal(self) -> str:
        """The value itself: only where it is used."""
        return self.get_secret_value()

    def __format__(self, spec: str) -> str:
        return format(str(self), spec)
