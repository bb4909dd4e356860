"""Runs the commands and code that AI agents write inside walls, under a policy.

    from ringfence import get_sandbox

    with get_sandbox("./project") as sandbox:
        print(sandbox.execute_python("print(6 * 7)").stdout)
"""

from .asynchronous import AsyncSandbox, get_async_sandbox
from .binary import find_binary
from .call import Call
from .coding_tools import CodingTools
from .errors import (
    BinaryNotFound,
    CouldNotRun,
    NotSandboxed,
    OutsideWorkspace,
    ProtocolError,
    Refused,
    RingfenceError,
)
from .outcome import Changes, Contact, Enforced, Failure, Outcome, Place, Refusal, ResourceUsage, Violation
from .sandbox import Sandbox, get_sandbox, run

__all__ = [
    "AsyncSandbox",
    "BinaryNotFound",
    "Call",
    "Changes",
    "CodingTools",
    "Contact",
    "CouldNotRun",
    "Enforced",
    "Failure",
    "NotSandboxed",
    "Outcome",
    "OutsideWorkspace",
    "Place",
    "ProtocolError",
    "Refusal",
    "Refused",
    "ResourceUsage",
    "RingfenceError",
    "Sandbox",
    "Violation",
    "find_binary",
    "get_async_sandbox",
    "get_sandbox",
    "run",
]
