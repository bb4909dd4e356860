"""A sandbox that is kept: a session of the binary, from `get_sandbox` to the end of the `with` block."""

from __future__ import annotations

import atexit
import json
import re
from types import TracebackType
from typing import Any, Dict, List, Mapping, Optional, Sequence, Type

from .binary import PathLike, find_binary
from .call import Call, Reply
from .errors import CouldNotRun, ProtocolError, from_talk
from .outcome import Outcome, parse_outcome
from .policy_file import Policy, PolicyFile
from .testing import TEST_VARIABLES, choose_runner
from .words import Command, Size, Time, code_words, command_words, folder, limits, option, time_word, variables

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}\Z")

#: What becomes of changes when a sandbox is closed: kept for review (`ringfence diff`), applied unless flagged, or dropped.
ON_EXIT = ("keep", "apply", "discard")


def run(
    command: Command,
    *,
    workspace: PathLike,
    timeout: Optional[Time] = None,
    policy: Optional[Policy] = None,
    backend: Optional[str] = None,
    memory: Optional[Size] = None,
    cpus: Optional[float] = None,
    processes: Optional[int] = None,
    mode: Optional[str] = None,
    network: Optional[str] = None,
    allow_hosts: Sequence[str] = (),
    env: Optional[Mapping[str, str]] = None,
    cwd: Optional[str] = None,
    stdin: Optional[bytes] = None,
    output: Optional[Size] = None,
    binary: Optional[PathLike] = None,
) -> Outcome:
    """Runs one command in a sandbox of its own. Raises when it is refused or cannot be run."""
    file = PolicyFile(policy)
    try:
        words = ["run", "--json", f"--workspace={folder(workspace)}", *option("policy", file.path)]
        words += option("backend", backend)
        words += limits(
            memory=memory, cpus=cpus, processes=processes, mode=mode, network=network, allow_hosts=allow_hosts
        )
        words += _of_a_run(timeout, output, env, cwd)
        if stdin is not None:
            words.append("--stdin")
        reply = Call().run(find_binary(binary), words + command_words(command), stdin)
        return outcome_of(reply).raise_for_status()
    finally:
        file.remove()


class Sandbox:
    """A live sandbox. Made by `get_sandbox`; several threads may run in it at once.

    What is written stays in the sandbox until it is applied. Use it in a `with` block, or call `start` and `close`.
    """

    def __init__(self, binary: str, workspace: str, start: List[str], policy: PolicyFile, on_exit: str) -> None:
        self.workspace = workspace
        #: The session's name, once it was started.
        self.name: Optional[str] = None
        #: The id by which `ringfence diff` and `ringfence apply` know what was changed.
        self.id: Optional[str] = None
        self._binary = binary
        self._start = start
        self._policy = policy
        self._on_exit = on_exit
        self._closed = False

    def __enter__(self) -> "Sandbox":
        return self.start()

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        try:
            self.close()
        except Exception:
            # What went wrong in the block matters more than what went wrong while closing.
            if error is None:
                raise

    def start(self) -> "Sandbox":
        if self._closed or self.name is not None:
            raise CouldNotRun("this sandbox was started before", hint="get a new one with get_sandbox()")
        try:
            reply = Call().run(self._binary, self._start)
            if reply.code != 0:
                outcome_of(reply).raise_for_status()
                raise from_talk(reply.code, reply.stderr)
            said = _json(reply.stdout)
            name, run_id = said.get("name"), said.get("id")
            if not isinstance(name, str) or not _NAME.match(name) or not isinstance(run_id, str):
                raise ProtocolError("ringfence started a session and did not say which")
        except BaseException:
            self._closed = True
            self._policy.remove()
            raise
        self.name, self.id = name, run_id
        # For who forgets to close it: otherwise it would live until it was idle for long enough.
        atexit.register(self.close)
        return self

    def run_command(
        self,
        command: Command,
        *,
        timeout: Optional[Time] = None,
        env: Optional[Mapping[str, str]] = None,
        cwd: Optional[str] = None,
        stdin: Optional[bytes] = None,
        output: Optional[Size] = None,
        call: Optional[Call] = None,
    ) -> Outcome:
        """Runs a shell line (a text) or a program and its arguments (a list, which no shell reads)."""
        words = _of_a_run(timeout, output, env, cwd)
        if stdin is not None:
            words.append("--stdin")
        return self._exec(words + command_words(command), stdin, call)

    def execute_code(
        self,
        language: str,
        code: str,
        *,
        timeout: Optional[Time] = None,
        env: Optional[Mapping[str, str]] = None,
        call: Optional[Call] = None,
    ) -> Outcome:
        """Runs code in `bash`, `python`, `javascript` or `typescript`."""
        words = _of_a_run(timeout, None, env, None) + code_words(language)
        return self._exec(words, code.encode("utf-8", "surrogateescape"), call)

    def execute_python(
        self,
        code: str,
        *,
        timeout: Optional[Time] = None,
        env: Optional[Mapping[str, str]] = None,
        call: Optional[Call] = None,
    ) -> Outcome:
        return self.execute_code("python", code, timeout=timeout, env=env, call=call)

    def run_tests(
        self,
        target: Optional[str] = None,
        *,
        runner: str = "auto",
        timeout: Optional[Time] = None,
        call: Optional[Call] = None,
    ) -> Outcome:
        """Runs the workspace's tests: `pytest`, `unittest`, `npm`, `cargo` or `go`, or by what lies in the workspace."""
        words = choose_runner(self, runner, target)
        return self.run_command(words, timeout=timeout, env=TEST_VARIABLES, call=call)

    def close(self) -> None:
        """Ends the session and everything in it. Closing twice is harmless."""
        if self._closed or self.name is None:
            self._closed = True
            self._policy.remove()
            return
        self._closed = True
        atexit.unregister(self.close)
        try:
            reply = Call().run(self._binary, ["session", "stop", "--", self.name])
        finally:
            self._policy.remove()
        if reply.code != 0:
            raise from_talk(reply.code, reply.stderr)
        if self._on_exit == "apply" and self.changes() is not None:
            self.apply()
        elif self._on_exit == "discard" and self.changes() is not None:
            self._after("discard")

    def changes(self) -> Optional[Dict[str, Any]]:
        """What was changed and waits for review, as `ringfence diff --json` says it; `None` when nothing was."""
        reply = Call().run(self._binary, ["changes", "--json"])
        if reply.code != 0:
            raise from_talk(reply.code, reply.stderr)
        try:
            kept = json.loads(reply.stdout)
        except ValueError as error:
            raise ProtocolError("ringfence printed no JSON") from error
        if not any(one.get("run") == self._ended() for one in kept):
            return None
        return _json(self._after("diff", "--json").stdout)

    def apply(self) -> Dict[str, Any]:
        """Brings to the workspace what was changed and is not flagged. `left` in the answer says what was held back, and why.

        What the host would execute later (hooks of git, settings of editors and agents) is never applied from here: a
        person looks at it and uses `ringfence apply --include-flagged`.
        """
        reply = Call().run(self._binary, ["apply", "--json", "--", self._ended()])
        if reply.code not in (0, 1):
            raise from_talk(reply.code, reply.stderr)
        return _json(reply.stdout)

    def _ended(self) -> str:
        if self.id is None or not self._closed:
            raise CouldNotRun("what a sandbox changed is known when it is closed", hint="leave the `with` block first")
        return self.id

    def _after(self, verb: str, *flags: str) -> Reply:
        reply = Call().run(self._binary, [verb, *flags, "--", self._ended()])
        if reply.code != 0:
            raise from_talk(reply.code, reply.stderr)
        return reply

    def _exec(self, words: List[str], stdin: Optional[bytes], call: Optional[Call]) -> Outcome:
        if self._closed or self.name is None:
            raise CouldNotRun("the sandbox is closed", hint="use it inside its `with` block")
        words = ["session", "exec", "--json", self.name, *words]
        return outcome_of((call or Call()).run(self._binary, words, stdin)).raise_for_status()


def get_sandbox(
    workspace_path: PathLike,
    *,
    policy: Optional[Policy] = None,
    backend: Optional[str] = None,
    memory: Optional[Size] = None,
    cpus: Optional[float] = None,
    processes: Optional[int] = None,
    mode: Optional[str] = None,
    network: Optional[str] = None,
    allow_hosts: Sequence[str] = (),
    idle: Optional[Time] = None,
    life: Optional[Time] = None,
    on_exit: str = "keep",
    binary: Optional[PathLike] = None,
) -> Sandbox:
    """A sandbox for a folder of the host, to be used in a `with` block.

    `policy` is the operator's word (a file, or a mapping with what would stand in one); everything else only narrows it,
    and what would widen it raises `Refused`.
    """
    if on_exit not in ON_EXIT:
        raise ValueError(f"{on_exit!r} is nothing to do on exit: {', '.join(ON_EXIT)}")
    workspace = folder(workspace_path)
    found = find_binary(binary)
    narrowed = limits(
        memory=memory, cpus=cpus, processes=processes, mode=mode, network=network, allow_hosts=allow_hosts
    )
    times = option("idle", None if idle is None else time_word(idle))
    times += option("life", None if life is None else time_word(life))
    file = PolicyFile(policy)
    words = ["session", "start", "--json", f"--workspace={workspace}", *option("policy", file.path)]
    words += option("backend", backend) + narrowed + times
    return Sandbox(found, workspace, words, file, on_exit)


def _of_a_run(
    timeout: Optional[Time], output: Optional[Size], env: Optional[Mapping[str, str]], cwd: Optional[str]
) -> List[str]:
    words = option("timeout", None if timeout is None else time_word(timeout)) + option("output", output)
    return words + option("cwd", cwd) + variables(env)


def outcome_of(reply: Reply) -> Outcome:
    """The JSON decides; without any, the binary itself has failed before there was a run."""
    if not reply.stdout.strip():
        raise from_talk(reply.code, reply.stderr)
    return parse_outcome(reply.stdout)


def _json(text: str) -> Dict[str, Any]:
    try:
        said = json.loads(text)
    except ValueError as error:
        raise ProtocolError(f"ringfence printed no JSON: {error}") from error
    if not isinstance(said, dict):
        raise ProtocolError("ringfence printed JSON of another kind")
    return said
