"""What a manifest, and the owner's settings, may say of a plugin's isolation (``isolation``)."""

from __future__ import annotations

import os
from collections.abc import Collection
from pathlib import Path, PurePosixPath
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, Field, ValidationInfo

from ..hookspecs.launchers import Isolation, IsolationRequest, Network
from .documents import fault, quoted

DATA = "data"
"""The word for the plugin's private data directory."""

RANK = {Isolation.NONE: 0, Isolation.REDUCED: 1, Isolation.FULL: 2}

_PLAIN = IsolationRequest()


def _inside(text: str) -> str:
    """Judge a directory that a manifest wants to write in: ``data``, or one inside the plugin's own."""
    path = PurePosixPath(text)
    if not text.strip() or path.is_absolute() or ".." in path.parts or "\\" in text or "\0" in text:
        hint = "name a directory inside the plugin's own; the owner's settings may add others"
        raise fault(f"{quoted(text)} does not lie in the plugin's directory", hint)
    if path == PurePosixPath("."):
        raise fault("the plugin's directory itself stays read-only", f"name one in it, or {DATA}")
    return str(path)


def anchored(value: object, info: ValidationInfo) -> object:
    """Make a path of the settings absolute: relative ones stand beside the file, ``~`` is the owner's home."""
    if not isinstance(value, str):
        return value
    path = os.path.expanduser(value)
    if not value.strip() or path.startswith("~"):
        raise fault(f"{quoted(value)} is no path that exists", "write an absolute path, or one relative to this file")
    return os.path.realpath((info.context or Path.cwd()) / path)


def _place(value: object, info: ValidationInfo) -> object:
    return value if value == DATA else anchored(value, info)


def _bound(least: int, most: int) -> object:
    return Field(strict=True, ge=least, le=most)


_Required = Literal["full", "reduced"]
_Network = Literal["none", "any"]
_Memory = Annotated[int, _bound(16, 1_048_576)]
_Processes = Annotated[int, _bound(1, 32_768)]
_Files = Annotated[int, _bound(16, 1_048_576)]
_FileSize = Annotated[int, _bound(1, 1_048_576)]


class Demands(BaseModel, extra="forbid", frozen=True):
    """``isolation`` in a manifest; sizes are in MiB. What is left out has Bascule's default."""

    require: _Required | None = None
    network: _Network = "none"
    writable: Annotated[tuple[Annotated[str, AfterValidator(_inside)], ...], Field(max_length=32)] = (DATA,)
    memory_mb: _Memory = _PLAIN.memory_mb
    processes: _Processes = _PLAIN.processes
    files: _Files = _PLAIN.files
    file_mb: _FileSize = _PLAIN.file_mb


class OwnersDemands(BaseModel, extra="forbid", frozen=True):
    """The same in the owner's settings, for one plugin: what stands here holds, whatever the manifest says."""

    require: _Required | None = None
    network: _Network | None = None
    readable: Annotated[tuple[Annotated[Path, BeforeValidator(anchored)], ...], Field(max_length=256)] = ()
    writable: Annotated[tuple[Annotated[Path, BeforeValidator(_place)], ...], Field(max_length=256)] | None = None
    memory_mb: _Memory | None = None
    processes: _Processes | None = None
    files: _Files | None = None
    file_mb: _FileSize | None = None


def request(asked: Demands, owners: OwnersDemands, directory: Path, data: Path, hidden: Path) -> IsolationRequest:
    """Lay the owner's words over the manifest's; the stricter ``require`` of the two holds.

    ``directory`` is the plugin's, ``data`` its private one, ``hidden`` the bridge's state. Paths come out absolute.
    """
    places = (Path(place) for place in asked.writable) if owners.writable is None else owners.writable
    writable = tuple(dict.fromkeys(data if place == Path(DATA) else directory / place for place in places))
    demanded = [Isolation(word) for word in (asked.require, owners.require) if word is not None]
    return IsolationRequest(
        require=max(demanded, key=RANK.__getitem__, default=Isolation.NONE),
        network=Network(owners.network or asked.network),
        data=data if data in writable else None,
        readable=owners.readable,
        writable=writable,
        hidden=(hidden,),
        memory_mb=owners.memory_mb or asked.memory_mb,
        processes=owners.processes or asked.processes,
        files=owners.files or asked.files,
        file_mb=owners.file_mb or asked.file_mb,
    )


def widened(asked: Demands, owners: OwnersDemands, directory: Path, data: Path) -> Collection[str]:
    """Name the keys by which the owner's settings let the plugin do more than its manifest asks for."""
    theirs = request(asked, OwnersDemands(), directory, data, data)
    ours = request(asked, owners, directory, data, data)
    wider = [key for key in ("memory_mb", "processes", "files", "file_mb") if getattr(ours, key) > getattr(theirs, key)]
    if ours.network is Network.ANY and theirs.network is Network.NONE:
        wider.append("network")
    wider += [key for key in ("readable", "writable") if set(getattr(ours, key)) - set(getattr(theirs, key))]
    return sorted(wider)
