"""Tools for a coding agent. Every method returns text for a model, also when it was refused or something failed."""

from __future__ import annotations

import functools
import logging
import os
import threading
import warnings
from types import TracebackType
from typing import Any, Callable, Optional, Type, TypeVar, Union, cast

from . import files
from .binary import PathLike, find_binary
from .call import Call
from .errors import BinaryNotFound, CouldNotRun, NotSandboxed, OutsideWorkspace, Refused, RingfenceError
from .outcome import Outcome, shorten
from .policy_file import Policy, PolicyFile
from .sandbox import Sandbox, get_sandbox, outcome_of
from .testing import TEST_VARIABLES, choose_runner
from .words import Command, Time, code_words, command_words, folder, option, time_word, variables

_log = logging.getLogger("ringfence")

#: Stands before everything that a tool says when there is no wall.
NO_WALL = "[NOT SANDBOXED]\n"

_Method = TypeVar("_Method", bound=Callable[..., str])


def _says(method: _Method) -> _Method:
    """Whatever a model says becomes text for it, nonsense too. Only a missing binary is raised: that is for a person."""

    @functools.wraps(method)
    def said(self: "CodingTools", *args: Any, **kwargs: Any) -> str:
        try:
            text = method(self, *args, **kwargs)
        except Refused as error:
            text = _lines(f"refused: {error.refusal.reason} (rule {error.refusal.rule})", error)
        except OutsideWorkspace as error:
            text = _lines(f"refused: {error.message}", error)
        except BinaryNotFound:
            raise
        except RingfenceError as error:
            text = _lines(f"error: {error.message}", error)
        except (TypeError, ValueError) as error:
            text = f"error: {error}"
        return text if self.use_sandbox else NO_WALL + text

    return cast(_Method, said)


def _lines(head: str, error: RingfenceError) -> str:
    return head if not error.advice else f"{head}\nadvice: {error.advice}"


class CodingTools:
    """What a coding agent needs, for one workspace. Commands and file operations alike happen behind one wall.

    The sandbox starts with the first call. What is written is seen by all later calls, and waits for review when the tools
    are closed (`on_exit="apply"` applies what is not flagged).
    """

    def __init__(
        self,
        workspace_root: PathLike,
        use_sandbox: bool = True,
        *,
        policy: Optional[Policy] = None,
        backend: Optional[str] = None,
        on_exit: str = "keep",
        max_output: int = 30_000,
        binary: Optional[PathLike] = None,
    ) -> None:
        self.workspace_root = folder(workspace_root)
        self.use_sandbox = use_sandbox
        self.max_output = max_output
        self._lock = threading.Lock()
        self._opened: "Union[Sandbox, _Unwalled, None]" = None
        self._closed = False
        if use_sandbox:
            self._open: "Callable[[], Union[Sandbox, _Unwalled]]" = lambda: get_sandbox(
                self.workspace_root, policy=policy, backend=backend, on_exit=on_exit, binary=binary
            ).start()
            find_binary(binary)
        else:
            message = (
                f"use_sandbox=False: what the model writes runs on this machine as you, with your files, secrets and network, "
                f"in {self.workspace_root}; no wall is raised"
            )
            warnings.warn(message, NotSandboxed, stacklevel=2)
            _log.warning(message)
            found = find_binary(binary)
            self._open = lambda: _Unwalled(found, self.workspace_root, PolicyFile(policy))

    def __enter__(self) -> "CodingTools":
        return self

    def __exit__(
        self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        self.close()

    def close(self) -> None:
        with self._lock:
            self._closed = True
            if self._opened is not None:
                self._opened.close()

    @property
    def sandbox(self) -> "Union[Sandbox, _Unwalled]":
        """The sandbox behind the tools, started if it was not."""
        with self._lock:
            if self._closed:
                raise CouldNotRun("the tools are closed", hint="make new ones")
            if self._opened is None:
                self._opened = self._open()
            return self._opened

    @_says
    def run_command(self, command: Command, timeout: Optional[Time] = None) -> str:
        """Runs a shell line, or a list of words that no shell reads."""
        return self._told(self.sandbox.run_command(command, timeout=timeout))

    @_says
    def execute_python(self, code: str, timeout: Optional[Time] = None) -> str:
        return self._told(self.sandbox.execute_python(code, timeout=timeout))

    @_says
    def run_tests(self, target: Optional[str] = None, runner: str = "auto", timeout: Optional[Time] = None) -> str:
        return self._told(self.sandbox.run_tests(target, runner=runner, timeout=timeout))

    @_says
    def read_file(self, path: str, offset: int = 1, limit: Optional[int] = None) -> str:
        """The lines of a file, from line `offset` on."""
        lines = files.read(self.sandbox, self._inside(path)).decode("utf-8", "replace").splitlines(keepends=True)
        first = max(offset, 1) - 1
        text = "".join(lines[first : None if limit is None else first + max(limit, 0)])
        return shorten(text, self.max_output) if text else "(empty)"

    @_says
    def write_file(self, path: str, content: str) -> str:
        data = content.encode("utf-8", "surrogateescape")
        files.write(self.sandbox, self._inside(path), data)
        return f"wrote {len(data)} bytes to {path}"

    @_says
    def edit_file(self, path: str, old: str, new: str) -> str:
        """Replaces a text that occurs exactly once."""
        place = self._inside(path)
        before, wanted = files.read(self.sandbox, place), old.encode("utf-8", "surrogateescape")
        count = before.count(wanted) if wanted else 0
        if count != 1:
            found = "does not occur" if count == 0 else f"occurs {count} times"
            raise CouldNotRun(
                f"{path!r}: the text to replace {found}; nothing was changed",
                kind="badRequest",
                advice="Read the file, and give a text that occurs exactly once.",
            )
        files.write(self.sandbox, place, before.replace(wanted, new.encode("utf-8", "surrogateescape")))
        return f"edited {path}"

    @_says
    def delete_file(self, path: str) -> str:
        files.delete(self.sandbox, self._inside(path))
        return f"deleted {path}"

    @_says
    def list_files(self, path: str = ".", limit: int = 1000) -> str:
        """What lies below a folder: folders end with `/`, links with `@`. What is usually large is not entered."""
        entries, whole = files.walk(self.sandbox, self._inside(path))
        if len(entries) > limit or not whole:
            return "\n".join([*entries[:limit], f"[{max(len(entries) - limit, 0)} or more entries left out]"])
        return "\n".join(entries) if entries else "(empty)"

    @_says
    def search(self, pattern: str, path: str = ".", glob: str = "*", limit: int = 200) -> str:
        """Lines that match an extended regular expression, as `file:line:text`."""
        try:
            found = files.search(self.sandbox, pattern, self._inside(path), glob)
        except CouldNotRun as error:
            if error.outcome is None or error.outcome.exit_code != 1:
                raise
            found = []
        text = "\n".join(line[2:] if line.startswith("./") else line for line in found[:limit])
        rest = f"\n[{len(found) - limit} more]" if len(found) > limit else ""
        return shorten(text, self.max_output) + rest if text else "nothing matches"

    def _told(self, outcome: Outcome) -> str:
        return outcome.describe(self.max_output)

    def _inside(self, path: str) -> str:
        """A path of the host below the workspace is one relative to it; whether it stays inside is found out there."""
        if os.path.isabs(path):
            below = os.path.relpath(os.path.normpath(path), self.workspace_root)
            if below != ".." and not below.startswith("../"):
                return below
        return path


class _Unwalled:
    """Without a wall: still the binary, its limits, its command rules and its ledger. Only by `use_sandbox=False`."""

    def __init__(self, binary: str, workspace: str, policy: PolicyFile) -> None:
        self._binary = binary
        self.workspace = workspace
        self._policy = policy
        self._words = ["run", "--json", "--backend=none", f"--workspace={workspace}", *option("policy", policy.path)]

    def run_command(
        self, command: Command, *, timeout: Optional[Time] = None, stdin: Optional[bytes] = None
    ) -> Outcome:
        words = ["--stdin"] if stdin is not None else []
        return self._run(words + command_words(command), timeout, stdin)

    def execute_python(self, code: str, *, timeout: Optional[Time] = None) -> Outcome:
        return self._run(code_words("python"), timeout, code.encode("utf-8", "surrogateescape"))

    def run_tests(
        self, target: Optional[str] = None, *, runner: str = "auto", timeout: Optional[Time] = None
    ) -> Outcome:
        words = variables(TEST_VARIABLES) + command_words(choose_runner(self, runner, target))
        return self._run(words, timeout, None)

    def close(self) -> None:
        self._policy.remove()

    def _run(self, words: "list[str]", timeout: Optional[Time], stdin: Optional[bytes]) -> Outcome:
        _log.warning("running without a wall, in %s", self.workspace)
        words = [*self._words, *option("timeout", None if timeout is None else time_word(timeout)), *words]
        return outcome_of(Call().run(self._binary, words, stdin)).raise_for_status()
