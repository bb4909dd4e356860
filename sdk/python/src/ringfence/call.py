"""One call of the binary: words in, capped output back. Never through a shell."""

from __future__ import annotations

import signal
import subprocess
import threading
from dataclasses import dataclass
from typing import IO, List, Optional, Sequence

from .errors import BinaryNotFound, CouldNotRun, ProtocolError

#: More than any outcome: both outputs at their usual cap, escaped, with room for the policy.
LARGEST_REPLY = 64 << 20
LARGEST_TALK = 1 << 20

#: The kernel takes no single word above 128 KiB.
LONGEST_WORD = 128 * 1024 - 1


@dataclass(frozen=True)
class Reply:
    code: int
    stdout: str
    stderr: str


class Call:
    """A call that can be ended from another thread; ending it ends the run."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: "Optional[subprocess.Popen[bytes]]" = None
        self._killed = False

    def kill(self) -> None:
        with self._lock:
            self._killed = True
            if self._process is not None and self._process.poll() is None:
                # Asked first: the binary then ends the program and leaves nothing behind.
                self._process.send_signal(signal.SIGTERM)

    def run(self, binary: str, words: Sequence[str], stdin: Optional[bytes] = None) -> Reply:
        check_words(words)
        with self._lock:
            if self._killed:
                raise CouldNotRun("the call was ended before it began", kind="cancelled")
            process = self._process = _start(binary, words, stdin)
        stdout, stderr = _Reader(process.stdout, LARGEST_REPLY), _Reader(process.stderr, LARGEST_TALK)
        threads = [threading.Thread(target=reader.read, daemon=True) for reader in (stdout, stderr)]
        if stdin is not None:
            threads.append(threading.Thread(target=_feed, args=(process.stdin, stdin), daemon=True))
        for thread in threads:
            thread.start()
        try:
            code = process.wait()
        except BaseException:
            self.kill()
            try:
                process.wait(timeout=10)
            except subprocess.TimeoutExpired:
                process.kill()
            raise
        for thread in threads:
            thread.join()
        if stdout.overflowed:
            raise ProtocolError(f"ringfence printed more than {LARGEST_REPLY} bytes")
        return Reply(code, stdout.text(), stderr.text())


def check_words(words: Sequence[str]) -> None:
    for word in words:
        if not isinstance(word, str):
            raise TypeError(f"an argument is text, not {type(word).__name__}")
        if "\0" in word:
            raise CouldNotRun("an argument has a NUL in it, which no program can be given", kind="badRequest")
        if len(word.encode("utf-8", "surrogateescape")) > LONGEST_WORD:
            raise CouldNotRun(
                f"an argument is longer than {LONGEST_WORD} bytes",
                kind="badRequest",
                advice="Write it into a file of the workspace, and name that.",
            )


def _start(binary: str, words: Sequence[str], stdin: Optional[bytes]) -> "subprocess.Popen[bytes]":
    try:
        return subprocess.Popen(
            [binary, *words],
            stdin=subprocess.DEVNULL if stdin is None else subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
    except FileNotFoundError as error:
        raise BinaryNotFound(f"{binary} is gone", hint="install it again") from error
    except OSError as error:
        raise CouldNotRun(f"could not start {binary}: {error}", kind="start") from error


def _feed(pipe: "Optional[IO[bytes]]", data: bytes) -> None:
    if pipe is None:
        return
    try:
        pipe.write(data)
        pipe.close()
    except OSError:
        # The program did not want all of it; its outcome says what it made of that.
        pass


class _Reader:
    """Reads to the end, keeps up to a cap: a pipe that nobody reads would hold the binary up."""

    def __init__(self, pipe: "Optional[IO[bytes]]", cap: int) -> None:
        self._pipe = pipe
        self._cap = cap
        self._kept: List[bytes] = []
        self._size = 0
        self.overflowed = False

    def read(self) -> None:
        if self._pipe is None:
            return
        with self._pipe as pipe:
            while True:
                piece = pipe.read(65536)
                if not piece:
                    return
                if self._size + len(piece) > self._cap:
                    self.overflowed = True
                else:
                    self._kept.append(piece)
                    self._size += len(piece)

    def text(self) -> str:
        return b"".join(self._kept).decode("utf-8", "replace")
