"""Which command runs a workspace's tests. Looked for inside the sandbox: what lies there may differ from the host."""

from __future__ import annotations

from typing import Callable, Dict, List, Optional, Protocol

from .errors import CouldNotRun
from .outcome import Outcome

#: A file that is changed twice within a second keeps its size and time, and Python would take the old byte code for it.
TEST_VARIABLES = {"PYTHONDONTWRITEBYTECODE": "1"}

_LOOK = """
if [ -f package.json ]; then echo npm
elif [ -f Cargo.toml ]; then echo cargo
elif [ -f go.mod ]; then echo go
elif python3 -c 'import pytest' 2>/dev/null; then echo pytest
else echo unittest
fi
"""


def _with_target(words: List[str], target: Optional[str], *before: str) -> List[str]:
    return words if target is None else [*words, *before, target]


_RUNNERS: Dict[str, Callable[[Optional[str]], List[str]]] = {
    "pytest": lambda target: _with_target(["python3", "-m", "pytest", "-q"], target, "--"),
    "unittest": lambda target: ["python3", "-m", "unittest", target or "discover"],
    "npm": lambda target: _with_target(["npm", "test"], target, "--"),
    "cargo": lambda target: _with_target(["cargo", "test"], target),
    "go": lambda target: ["go", "test", target or "./..."],
}


class RunsCommands(Protocol):
    """What is needed of a sandbox here."""

    def run_command(self, command: List[str]) -> Outcome: ...


def choose_runner(sandbox: RunsCommands, runner: str, target: Optional[str]) -> List[str]:
    if target is not None and target.startswith("-"):
        raise CouldNotRun(
            f"{target!r} is no test: it would be read as an option",
            kind="badRequest",
            advice="Name a file, a folder or a test.",
        )
    if runner == "auto":
        runner = sandbox.run_command(["sh", "-c", _LOOK]).stdout.strip()
    if runner not in _RUNNERS:
        raise CouldNotRun(
            f"{runner!r} is no test runner: {', '.join(_RUNNERS)}",
            kind="badRequest",
            advice="Name one of these, or use run_command.",
        )
    return _RUNNERS[runner](target)
