"""Who published a plugin: an SSH signature over the listing of its files, held against the owner's allowed signers.

``ssh-keygen`` does the work (``-Y verify``, namespace ``bascule-plugin``): no key or algorithm is handled here. The
signature stands in ``plugin.sig``, which alone is no part of the listing. See ssh-keygen(1), ALLOWED SIGNERS.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from .canonical import canonical

SIGNATURE_NAME = "plugin.sig"
NAMESPACE = "bascule-plugin"

_SECONDS = 20.0
_MOST_BYTES = 64 * 1024


class Signed(StrEnum):
    """What became of a signature; only ``valid`` says anything about the publisher."""

    NONE = "none"
    UNCHECKED = "not checked"
    UNKNOWN = "by no signer that you allow"
    INVALID = "INVALID"
    VALID = "valid"


@dataclass(frozen=True, slots=True)
class Signature:
    """``told`` is the signer's name, or why there is none."""

    state: Signed
    told: str = ""

    def __str__(self) -> str:
        return f"{self.state.value}: {self.told}" if self.told else self.state.value


def listing(entries: Mapping[str, str]) -> bytes:
    """What is signed: a line for every file, its path as JSON in ASCII and what it is (see ``tree``)."""
    lines = (
        f"{canonical(path)} {canonical(what)}\n" for path, what in sorted(entries.items()) if path != SIGNATURE_NAME
    )
    return b"".join(line.encode("ascii") for line in lines)


def verify(directory: Path, entries: Mapping[str, str], allowed: Path | None) -> Signature:
    """Check the plugin's signature, if it has one."""
    if SIGNATURE_NAME not in entries:
        return Signature(Signed.NONE)
    path = directory / SIGNATURE_NAME
    program = shutil.which("ssh-keygen")
    if allowed is None:
        return Signature(Signed.UNCHECKED, "the settings name no allowed_signers")
    if program is None:
        return Signature(Signed.UNCHECKED, "ssh-keygen is not on PATH")
    if not allowed.is_file():
        return Signature(Signed.UNCHECKED, f"there is no file {allowed}")
    if entries[SIGNATURE_NAME].startswith("->") or path.stat().st_size > _MOST_BYTES:
        return Signature(Signed.INVALID, "it is no signature")
    found = _ssh_keygen([program, "-Y", "find-principals", "-s", str(path), "-f", str(allowed)], b"")
    if found is None or not found.strip():
        return Signature(Signed.UNKNOWN)
    signer = found.decode("utf-8", "replace").splitlines()[0]
    check = [program, "-Y", "verify", "-f", str(allowed), "-I", signer, "-n", NAMESPACE, "-s", str(path)]
    if _ssh_keygen(check, listing(entries)) is None:
        return Signature(Signed.INVALID, f"{signer} did not sign these files")
    return Signature(Signed.VALID, signer)


def _ssh_keygen(argv: Sequence[str], data: bytes) -> bytes | None:
    """Its output, ``None`` where it says no."""
    try:
        run = subprocess.run(argv, input=data, capture_output=True, timeout=_SECONDS, check=False)  # noqa: S603
    except (OSError, subprocess.TimeoutExpired):
        return None
    return run.stdout if run.returncode == 0 else None
