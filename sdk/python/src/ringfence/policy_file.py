"""A policy that was made by a program, as a file for the binary."""

from __future__ import annotations

import json
import os
import tempfile
from typing import Any, Mapping, Optional, Union

#: A file, or what would stand in one.
Policy = Union[str, "os.PathLike[str]", Mapping[str, Any]]


class PolicyFile:
    """Holds the file for as long as it is needed. JSON is YAML, so nothing has to be translated."""

    def __init__(self, policy: Optional[Policy]) -> None:
        self._folder: "Optional[tempfile.TemporaryDirectory[str]]" = None
        self.path: Optional[str] = None
        if policy is None:
            return
        if isinstance(policy, Mapping):
            # A folder that only its owner can enter: the policy must not be changed by others meanwhile.
            self._folder = tempfile.TemporaryDirectory(prefix="ringfence-policy-")
            self.path = os.path.join(self._folder.name, "sandbox.policy.yaml")
            with open(self.path, "x", encoding="utf-8") as file:
                json.dump({"version": 1, **policy}, file)
        else:
            self.path = os.path.abspath(os.fspath(policy))

    def remove(self) -> None:
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None
