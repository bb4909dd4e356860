"""Files of a workspace, reached through the sandbox and never from here.

Each operation is a small script behind the wall, so what a link or a race could reach is what any program in the sandbox
could reach, and nothing of the host. The scripts also say no to what leads out of the workspace, so that a model is told
so instead of being shown the sandbox's own system. Paths are arguments: no script has one in its text.
"""

from __future__ import annotations

import base64
from typing import List, Optional, Protocol, Tuple

from .errors import CouldNotRun, OutsideWorkspace
from .outcome import Outcome

#: The largest file that is read or written whole.
LARGEST_FILE = 512 * 1024

# Where `$1` really lies, with every link followed; a line end in a name survives by the `x`.
_FIND = """
root=$(pwd -P) || exit 90
p=$(realpath -m -- "$1" && printf x) || exit 90
p=${p%??}
case "$p" in "$root"|"$root"/*) ;; *) exit 91 ;; esac
"""
_READ = f"""{_FIND}
[ -e "$p" ] || exit 92
[ -f "$p" ] || exit 93
size=$(stat -c %s -- "$p") && [ "$size" -le {LARGEST_FILE} ] || exit 94
base64 -w 0 -- "$p"
"""
_WRITE = f"""{_FIND}
[ -d "$p" ] && exit 93
mkdir -p -- "$(dirname -- "$p")" && cat > "$p"
"""
# Only the folder is looked up: of a link the link itself is removed, wherever it leads.
_DELETE = f"""
case "$1" in */*) d=${{1%/*}} b=${{1##*/}} ;; *) d=. b=$1 ;; esac
case "$b" in ''|.|..) exit 91 ;; esac
set -- "${{d:-/}}"
{_FIND}
p=$p/$b
[ -L "$p" ] || [ -e "$p" ] || exit 92
if [ -d "$p" ] && [ ! -L "$p" ]; then exit 93; fi
rm -f -- "$p"
"""
_LIST = f"""{_FIND}
[ -e "$p" ] || exit 92
cd -- "$p" 2>/dev/null || exit 95
find . -mindepth 1 \\( -name .git -o -name node_modules -o -name __pycache__ -o -name target \\) -prune \\
  -printf '%y%P\\0' -o -printf '%y%P\\0' | head -c 262144
"""
_SEARCH = f"""{_FIND}
[ -e "$p" ] || exit 92
cd -- "$root" || exit 90
r=${{p#"$root"}}
grep -rnIE --exclude-dir=.git --exclude-dir=node_modules --include="$3" -e "$2" -- ".$r"
"""
_WHY = {
    92: "there is no such file",
    93: "it is a folder, or no ordinary file",
    94: f"it is larger than {LARGEST_FILE} bytes; read a part of it with a command",
    95: "it is no folder",
}


class RunsCommands(Protocol):
    def run_command(self, command: List[str], *, stdin: Optional[bytes] = None) -> Outcome: ...


def read(sandbox: RunsCommands, path: str) -> bytes:
    outcome = _script(sandbox, _READ, path)
    if outcome.output_truncated:
        raise CouldNotRun(f"{path!r} is larger than the policy's limit of output", kind="badRequest")
    try:
        return base64.b64decode(outcome.stdout, validate=True)
    except ValueError as error:
        raise CouldNotRun(f"could not read {path!r}", kind="failed") from error


def write(sandbox: RunsCommands, path: str, content: bytes) -> None:
    if len(content) > LARGEST_FILE:
        raise CouldNotRun(f"the content is larger than {LARGEST_FILE} bytes", kind="badRequest")
    _script(sandbox, _WRITE, path, stdin=content)


def delete(sandbox: RunsCommands, path: str) -> None:
    _script(sandbox, _DELETE, path)


def walk(sandbox: RunsCommands, path: str) -> Tuple[List[str], bool]:
    """What lies below a folder, folders with a slash at the end, links with an @; and whether that is all."""
    outcome = _script(sandbox, _LIST, path)
    entries = outcome.stdout.split("\0")
    whole = entries.pop() == "" and not outcome.output_truncated and len(outcome.stdout) < 262144
    mark = {"d": "/", "l": "@"}
    return sorted(entry[1:] + mark.get(entry[0], "") for entry in entries if entry), whole


def search(sandbox: RunsCommands, pattern: str, path: str, glob: str) -> List[str]:
    return _script(sandbox, _SEARCH, path, pattern, glob).stdout.splitlines()


def _script(sandbox: RunsCommands, script: str, path: str, *more: str, stdin: Optional[bytes] = None) -> Outcome:
    if not path or path.startswith("~"):
        raise OutsideWorkspace(f"{path!r} is no path in the workspace", advice="Write a path relative to the workspace.")
    outcome = sandbox.run_command(["sh", "-c", script, "files", path, *more], stdin=stdin)
    if outcome.ok:
        return outcome
    if outcome.exit_code == 91:
        raise OutsideWorkspace(f"{path!r} leads out of the workspace", advice="Stay below the workspace.")
    why = _WHY.get(outcome.exit_code or 0) or outcome.stderr.strip() or f"it ended with {outcome.code}"
    raise CouldNotRun(f"{path!r}: {why}", kind="badRequest", outcome=outcome)
