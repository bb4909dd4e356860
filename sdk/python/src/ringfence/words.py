"""Words for the binary. Every value is in one word with its flag, and a program's words stand behind `--`: nothing that
a model says can become a flag."""

from __future__ import annotations

import math
import os
import re
from typing import List, Mapping, Optional, Sequence, Union

from .errors import CouldNotRun

#: Seconds, or a text such as `500ms` that the binary reads.
Time = Union[int, float, str]
#: Bytes, or a text such as `512MiB` that the binary reads.
Size = Union[int, str]
#: A shell line, or a program and its arguments, which no shell reads.
Command = Union[str, Sequence[str]]

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_LANGUAGES = ("bash", "python", "javascript", "typescript")


def time_word(time: Time) -> str:
    if isinstance(time, str):
        return time
    if isinstance(time, bool) or not math.isfinite(time) or time <= 0:
        raise ValueError(f"{time!r} is no time: write seconds, such as 30, or a text such as '500ms'")
    # Up to the next millisecond: 0.0004 is a short time and not none at all.
    return f"{math.ceil(time * 1000)}ms"


def size_word(size: Size) -> str:
    if isinstance(size, str):
        return size
    if isinstance(size, bool) or size <= 0:
        raise ValueError(f"{size!r} is no size: write bytes, or a text such as '512MiB'")
    return str(size)


def option(name: str, value: Optional[object]) -> List[str]:
    """`--name=value`, or nothing."""
    return [] if value is None else [f"--{name}={value}"]


def variables(env: Optional[Mapping[str, str]]) -> List[str]:
    words = []
    for name, value in (env or {}).items():
        if not _VARIABLE.match(name):
            raise ValueError(f"{name!r} is no name of a variable")
        words.append(f"--env={name}={value}")
    return words


def command_words(command: Command) -> List[str]:
    """The end of a call: a shell line, or `--` and a program's words."""
    if isinstance(command, str):
        if not command.strip():
            raise CouldNotRun("the command is empty", kind="badRequest", advice="Write a command.")
        # A shell takes a line that begins so for options of its own, and not for the line that was judged.
        return [f"--shell= {command}" if command[0] in "-+" else f"--shell={command}"]
    words = list(command)
    if not words or not words[0]:
        raise CouldNotRun("the command is empty", kind="badRequest", advice="Name a program.")
    return ["--", *words]


def code_words(language: str) -> List[str]:
    """The end of a call for code, which is then written to standard input: it may be long, and `ps` shows no one's code."""
    if language not in _LANGUAGES:
        raise ValueError(f"{language!r} is no language that can be run: {', '.join(_LANGUAGES)}")
    return [f"--lang={language}", "-"]


def limits(
    *,
    memory: Optional[Size],
    cpus: Optional[float],
    processes: Optional[int],
    mode: Optional[str],
    network: Optional[str],
    allow_hosts: Sequence[str],
) -> List[str]:
    """What narrows the policy. The binary refuses what would widen it."""
    words = option("memory", None if memory is None else size_word(memory))
    words += option("cpus", cpus) + option("processes", processes) + option("mode", mode) + option("net", network)
    if isinstance(allow_hosts, str):
        raise TypeError("allow_hosts is a list of hosts, not one text")
    return words + [f"--allow-host={host}" for host in allow_hosts]


def folder(path: "Union[str, os.PathLike[str]]") -> str:
    """A folder of the host, absolute: a relative one would be looked up elsewhere after a change of directory."""
    full = os.path.realpath(os.fspath(path))
    if not os.path.isdir(full):
        raise ValueError(f"{os.fspath(path)!r} is no folder")
    return full
