"""What is raised. A program that fails raises nothing: its outcome says so.

Three kinds of bad end are never mixed: the program failed (an `Outcome`), we refused (`Refused`), we could not
(`CouldNotRun` and the others).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Optional, Tuple

if TYPE_CHECKING:
    from .outcome import Outcome, Refusal


class RingfenceError(Exception):
    """The root of what this package raises. `hint` is for a person, `advice` for a model."""

    def __init__(self, message: str, *, hint: Optional[str] = None, advice: Optional[str] = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.advice = advice

    def __str__(self) -> str:
        return self.message if self.hint is None else f"{self.message}\n\nhint: {self.hint}"


class BinaryNotFound(RingfenceError):
    """There is no `ringfence` to start. Nothing is ever run without it."""


class Refused(RingfenceError):
    """The policy says no. Trying the same again leads to the same answer."""

    def __init__(self, refusal: "Refusal", outcome: "Optional[Outcome]" = None) -> None:
        super().__init__(
            f"refused: {refusal.subject}: {refusal.reason} (rule {refusal.rule})",
            hint=refusal.hint,
            advice=refusal.advice,
        )
        self.refusal = refusal
        self.outcome = outcome


class CouldNotRun(RingfenceError):
    """The binary was there and could not do it: no wall, no such session, an argument that it does not take."""

    def __init__(
        self,
        message: str,
        *,
        kind: str = "failed",
        chain: Tuple[str, ...] = (),
        hint: Optional[str] = None,
        advice: Optional[str] = None,
        outcome: "Optional[Outcome]" = None,
    ) -> None:
        super().__init__(message, hint=hint, advice=advice)
        self.kind = kind
        self.chain = chain
        self.outcome = outcome


class ProtocolError(RingfenceError):
    """The binary said something that this version of the package does not understand, or far too much."""


class OutsideWorkspace(RingfenceError):
    """A path leads out of the workspace, perhaps through a link."""


class NotSandboxed(UserWarning):
    """Warned with, when somebody chose to run without a wall."""


_HINT = re.compile(r"\n\s*hint: (?P<hint>.*)\Z", re.DOTALL)
_FIELD = re.compile(r"^  (?P<name>rule|policy|reason)\s+(?P<value>.*)$", re.MULTILINE)


def from_talk(code: int, talk: str) -> RingfenceError:
    """An error from what the binary says on standard error where it prints no JSON: its own words, no program's."""
    from .outcome import Refusal

    found = _HINT.search(talk)
    hint = " ".join(found.group("hint").split()) if found else None
    head = (talk[: found.start()] if found else talk).strip()
    for label in ("error: ", "refused: "):
        if head.startswith(label):
            head = head[len(label) :]
    if code == 126:
        fields = {match.group("name"): match.group("value").strip() for match in _FIELD.finditer(talk)}
        subject = head.splitlines()[0] if head else "the request"
        refusal = Refusal(
            subject=subject,
            rule=fields.get("rule", "unknown"),
            reason=fields.get("reason", subject),
            place=None,
            hint=hint,
            advice="Ask for no more than is allowed, or ask the person you work for.",
            retryable=False,
        )
        return Refused(refusal)
    return CouldNotRun(head or f"ringfence ended with {code} and said nothing", hint=hint)
