"""The exposure policy ``group_exposure``: groups and visibility, the second document's one decision (A2, A4)."""

from __future__ import annotations

from collections.abc import Iterable

from ..hookspecs import Caller, Exposure, ExposurePolicy, ToolDefinition, Visibility, hookimpl


class GroupExposure:
    """A tool is exposed if its visibility is and, where groups are asked for, if it is in one of them."""

    name = "group_exposure"

    def __call__(self, tool: ToolDefinition, caller: Caller, exposure: Exposure) -> bool:
        if tool.visibility is not Visibility.PUBLIC and not exposure.allow_restricted:
            return False
        return not exposure.tool_groups or not exposure.tool_groups.isdisjoint(tool.groups)


@hookimpl
def bascule_exposure_policies() -> Iterable[ExposurePolicy]:
    """Offer ``group_exposure``."""
    return [GroupExposure()]
