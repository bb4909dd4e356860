"""Finding the binary. It is found or nothing is run: there is no way around it."""

from __future__ import annotations

import os
import shutil
from typing import Optional, Union

from .errors import BinaryNotFound

PathLike = Union[str, "os.PathLike[str]"]

#: The variable that names the binary, after the argument and before `PATH`.
VARIABLE = "RINGFENCE_BIN"

_WHAT_TO_DO = (
    f"install ringfence so that `ringfence` is on PATH, or set {VARIABLE} to its path, or pass binary=...; "
    "`ringfence doctor` then says whether this host can raise walls"
)


def find_binary(binary: Optional[PathLike] = None) -> str:
    """The absolute path of the binary: the argument, then `RINGFENCE_BIN`, then `PATH`.

    A place that was named and is empty is an error: falling through to another binary would run one that nobody chose.
    """
    if binary is not None:
        return _named(os.fspath(binary), "the argument `binary`")
    named = os.environ.get(VARIABLE)
    if named is not None:
        return _named(named, VARIABLE)
    found = shutil.which("ringfence")
    if found is None:
        raise BinaryNotFound("there is no `ringfence` on PATH", hint=_WHAT_TO_DO)
    return os.path.abspath(found)


def _named(path: str, by: str) -> str:
    if not path:
        raise BinaryNotFound(f"{by} is empty", hint=_WHAT_TO_DO)
    full = os.path.abspath(path)
    if not os.path.isfile(full) or not os.access(full, os.X_OK):
        raise BinaryNotFound(f"{by} names {path!r}, which is no program", hint=_WHAT_TO_DO)
    return full
