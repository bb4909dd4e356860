"""What the binary prints with `--json`, as types."""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass, field
from typing import Any, Dict, List, Mapping, Optional, Tuple

from .errors import CouldNotRun, ProtocolError, Refused

#: How a run can end. An ending that is not listed is an error, never a success.
STATUSES = (
    "exited",
    "signalled",
    "timedOut",
    "outOfMemory",
    "tooManyProcesses",
    "cancelled",
    "refused",
    "couldNotRun",
)


@dataclass(frozen=True)
class Violation:
    """A limit or a rule that the program ran into."""

    rule: str
    message: str


@dataclass(frozen=True)
class Enforced:
    """A guarantee that held, with its evidence."""

    guarantee: str
    strength: str
    evidence: str


@dataclass(frozen=True)
class Contact:
    """A host that the program wanted to reach, and what was decided."""

    host: str
    port: int
    allowed: bool
    rule: str
    count: int


@dataclass(frozen=True)
class Place:
    file: str
    line: int
    column: int


@dataclass(frozen=True)
class Refusal:
    """Why the policy said no: the rule, its place, and what to do instead."""

    subject: str
    rule: str
    reason: str
    place: Optional[Place]
    hint: Optional[str]
    advice: Optional[str]
    retryable: bool


@dataclass(frozen=True)
class Failure:
    """Why nothing could be run."""

    kind: str
    chain: Tuple[str, ...]
    hint: Optional[str]


@dataclass(frozen=True)
class Changes:
    """How much of the workspace differs; it waits for review."""

    added: int
    changed: int
    removed: int


@dataclass(frozen=True)
class ResourceUsage:
    wall_time_ms: int
    cpu_time_ms: int
    memory_peak_bytes: int
    bytes_read: int
    bytes_written: int


@dataclass(frozen=True)
class Outcome:
    """How one run ended, what it used, what it violated, and what was really enforced."""

    run_id: str
    status: str
    exit_code: Optional[int]
    signal: Optional[int]
    stdout: str
    stderr: str
    timed_out: bool
    oom_killed: bool
    output_truncated: bool
    workspace_changed: bool
    changes: Optional[Changes]
    resource_usage: ResourceUsage
    effective_policy: Mapping[str, Any]
    enforced: Tuple[Enforced, ...]
    not_enforced: Tuple[str, ...]
    violations: Tuple[Violation, ...]
    network: Tuple[Contact, ...]
    #: Hosts that the request names, where its program failed and there is no network.
    unreachable: Tuple[str, ...]
    refusal: Optional[Refusal]
    error: Optional[Failure]
    advice: Optional[str]
    retryable: bool
    backend: Optional[str]
    started_at: str
    env_withheld: Tuple[str, ...]
    #: All of it, as it was printed; newer binaries may say more than these fields.
    raw: Mapping[str, Any] = field(repr=False, compare=False)

    @property
    def ok(self) -> bool:
        """The program ended by itself, with 0."""
        return self.status == "exited" and self.exit_code == 0

    @property
    def code(self) -> int:
        """The exit code that the command line would have: 124 time limit, 125 we failed, 126 refused, 127 not found,
        128+n signal."""
        if self.error is not None and self.error.kind == "ledger":
            # It ran, and nothing shows how it ended: nobody may take that for success.
            return 125
        if self.status == "exited":
            return 125 if self.exit_code is None else self.exit_code
        if self.status == "couldNotRun":
            kind = self.error.kind if self.error is not None else ""
            return {"notFound": 127, "badRequest": 2}.get(kind, 125)
        ended = {"timedOut": 124, "refused": 126}.get(self.status)
        return ended if ended is not None else 128 + (9 if self.signal is None else self.signal)

    @property
    def stdout_bytes(self) -> bytes:
        """Standard output exactly, also where it is no text."""
        exact = self.raw.get("stdoutBase64")
        return self.stdout.encode() if exact is None else base64.b64decode(exact)

    def raise_for_status(self) -> "Outcome":
        """Raises when we refused or could not; a program that failed, or was not found, is an outcome like any other."""
        if self.status == "refused":
            if self.refusal is None:
                raise ProtocolError("ringfence refused and did not say why")
            raise Refused(self.refusal, self)
        if self.error is not None and self.error.kind != "notFound":
            raise CouldNotRun(
                ": ".join(self.error.chain) or "could not run",
                kind=self.error.kind,
                chain=self.error.chain,
                hint=self.error.hint,
                advice=self.advice,
                outcome=self,
            )
        return self

    def describe(self, limit: int = 30_000) -> str:
        """A text for a model: what happened first, then head and tail of the output, then what to do."""
        lines: List[str] = [self._headline()]
        for name, text in (("stdout", self.stdout), ("stderr", self.stderr)):
            if text.strip():
                lines.append(f"{name}:\n{shorten(text, limit).rstrip()}")
        if not self.stdout.strip() and not self.stderr.strip():
            lines.append("It printed nothing.")
        lines.extend(f"violation: {found.rule}: {found.message}" for found in self.violations)
        if self.advice and not self.ok:
            lines.append(f"advice: {self.advice}")
        return "\n".join(lines)

    def _headline(self) -> str:
        if self.timed_out:
            return "timed out"
        if self.oom_killed:
            return "killed: it used more memory than it may"
        if self.error is not None:
            return "could not run: " + ": ".join(self.error.chain)
        if self.exit_code is not None:
            return f"exit code {self.exit_code}"
        return f"ended by signal {self.signal}" if self.signal is not None else self.status


def shorten(text: str, limit: int) -> str:
    """Keeps head and tail: errors stand at the end, what was asked for at the beginning."""
    if len(text) <= limit:
        return text
    half = max(limit // 2, 1)
    return f"{text[:half]}\n[{len(text) - 2 * half} characters left out here]\n{text[-half:]}"


def parse_outcome(text: str) -> Outcome:
    """Reads an outcome. Absent, unknown or of another type: an error, never a default that looks like success."""
    try:
        said = json.loads(text)
    except ValueError as error:
        raise ProtocolError(f"ringfence printed no JSON: {error}") from error
    if not isinstance(said, dict):
        raise ProtocolError("ringfence printed JSON that is no outcome")
    try:
        return _outcome(said)
    except (KeyError, TypeError) as error:
        raise ProtocolError(
            f"ringfence printed an outcome without a field that is needed: {error}",
            hint="use a package and a binary of the same version",
        ) from error


def _outcome(said: Dict[str, Any]) -> Outcome:
    status = _of(said, "status", str)
    if status not in STATUSES:
        raise ProtocolError(f"`{status}` is no ending that this package knows", hint="update the package")
    changes, usage = said["changes"], said["resourceUsage"]
    return Outcome(
        run_id=_of(said, "runId", str),
        status=status,
        exit_code=_maybe(said, "exitCode", int),
        signal=_maybe(said, "signal", int),
        stdout=_of(said, "stdout", str),
        stderr=_of(said, "stderr", str),
        timed_out=_of(said, "timedOut", bool),
        oom_killed=_of(said, "oomKilled", bool),
        output_truncated=_of(said, "outputTruncated", bool),
        workspace_changed=_of(said, "workspaceChanged", bool),
        changes=None if changes is None else Changes(changes["added"], changes["changed"], changes["removed"]),
        resource_usage=ResourceUsage(
            usage["wallTimeMs"],
            usage["cpuTimeMs"],
            usage["memoryPeakBytes"],
            usage["bytesRead"],
            usage["bytesWritten"],
        ),
        effective_policy=said["effectivePolicy"],
        enforced=tuple(Enforced(one["guarantee"], one["strength"], one["evidence"]) for one in said["enforced"]),
        not_enforced=tuple(said["notEnforced"]),
        violations=tuple(Violation(one["rule"], one["message"]) for one in said["violations"]),
        network=tuple(
            Contact(one["host"], one["port"], one["allowed"], one.get("rule") or "", one["count"])
            for one in said.get("network", ())
        ),
        unreachable=tuple(said.get("unreachable", ())),
        refusal=_refusal(said["refusal"]),
        error=_failure(said["error"]),
        advice=_maybe(said, "advice", str),
        retryable=_of(said, "retryable", bool),
        backend=_maybe(said, "backend", str),
        started_at=_of(said, "startedAt", str),
        env_withheld=tuple(said["envWithheld"]),
        raw=said,
    )


def _of(said: Mapping[str, Any], name: str, kind: type) -> Any:
    value = said[name]
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise TypeError(f"`{name}` is no {kind.__name__}")
    return value


def _maybe(said: Mapping[str, Any], name: str, kind: type) -> Any:
    return None if said[name] is None else _of(said, name, kind)


def _refusal(said: Optional[Dict[str, Any]]) -> Optional[Refusal]:
    if said is None:
        return None
    place = said.get("place")
    return Refusal(
        subject=said["subject"],
        rule=said["rule"],
        reason=said["reason"],
        place=None if place is None else Place(place["file"], place["line"], place["column"]),
        hint=said.get("hint"),
        advice=said.get("advice"),
        retryable=said["retryable"],
    )


def _failure(said: Optional[Dict[str, Any]]) -> Optional[Failure]:
    return None if said is None else Failure(said["kind"], tuple(said["chain"]), said.get("hint"))
