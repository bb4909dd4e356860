"""How the binary is called: quoting, caps, a missing binary, many at once, and answers that make no sense."""

import asyncio
import json
import os
import stat
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from unittest import mock

from ringfence import (
    BinaryNotFound,
    Call,
    CouldNotRun,
    ProtocolError,
    Refused,
    find_binary,
    get_async_sandbox,
    get_sandbox,
    run,
)

from .surroundings import InWorkspace

#: Words that a careless caller would turn into flags, quotes or shell.
ODD = ["--json", "--", "-x", "--backend=none", "", " ", "a b", "'", '"', "$HOME", "`id`", "\\", "*", "\n", "é☃", "a=b", ";ls"]


class Calls(InWorkspace):
    def test_odd_words_arrive_as_they_are(self) -> None:
        show = "import sys, json; print(json.dumps(sys.argv[1:]))"
        with get_sandbox(self.workspace) as sandbox:
            outcome = sandbox.run_command(["python3", "-c", show, *ODD])
        self.assertEqual(json.loads(outcome.stdout), ODD)

    def test_nothing_that_a_model_says_becomes_a_flag(self) -> None:
        with get_sandbox(self.workspace) as sandbox:
            for command in (["--backend=none", "id"], ["--help"], ["--version"]):
                self.assertEqual(sandbox.run_command(command).code, 127, command)
            for line in ("--backend=none", "--help", "-V"):
                outcome = sandbox.run_command(line)
                self.assertEqual((outcome.backend, outcome.ok), ("native", False), line)
            self.assertEqual(sandbox.execute_python("--help\n").backend, "native")
            # Nor one of the shell inside: what was judged is a command, and is run as one.
            for line in ("-s", "+s", "-c id"):
                self.assertEqual(sandbox.run_command(line, stdin=b"echo executed").code, 127, line)
            self.assertEqual(sandbox.run_command("cat", stdin=b"passed on").stdout, "passed on")
            self.assertEqual(sandbox.run_command("echo --help").stdout, "--help\n")
        self.assertEqual(run(["--backend=none"], workspace=self.workspace).backend, "native")

    def test_long_code_and_input_pass_and_a_word_that_is_too_long_is_told(self) -> None:
        with get_sandbox(self.workspace) as sandbox:
            self.assertEqual(sandbox.execute_python(f"print(len('{'x' * 300_000}'))").stdout, "300000\n")
            self.assertEqual(sandbox.run_command(["wc", "-c"], stdin=b"x" * 300_000).stdout.strip(), "300000")
            with self.assertRaises(CouldNotRun) as caught:
                sandbox.run_command(["echo", "x" * 300_000])
            self.assertIn("file", caught.exception.advice or "")
            with self.assertRaises(CouldNotRun):
                sandbox.run_command(["echo", "a\0b"])

    def test_output_is_capped_and_keeps_its_head_and_tail(self) -> None:
        with get_sandbox(self.workspace) as sandbox:
            outcome = sandbox.run_command("seq 200000", output="4KiB")
            self.assertTrue(outcome.output_truncated)
            self.assertLess(len(outcome.stdout), 6000)
            self.assertTrue(outcome.stdout.startswith("1\n") and outcome.stdout.endswith("200000\n"))
            self.assertFalse(sandbox.run_command("seq 20", output="4KiB").output_truncated)
            exact = sandbox.run_command(["printf", r"\377\000"])
        self.assertEqual(exact.stdout_bytes, b"\xff\0")

    def test_a_reply_that_is_far_too_long_is_an_error_and_not_memory(self) -> None:
        chatty = self._script("head -c 80000000 /dev/zero")
        with self.assertRaises(ProtocolError):
            run("true", workspace=self.workspace, binary=chatty)

    def test_a_binary_that_says_nonsense_is_never_a_success(self) -> None:
        for words in ("true", "echo hello", "echo '{}'", "echo '[]'", 'echo \'{"status":"exited","exitCode":0}\''):
            with self.subTest(words), self.assertRaises((ProtocolError, CouldNotRun)):
                run("true", workspace=self.workspace, binary=self._script(words))

    def test_a_missing_binary_says_what_to_do_and_nothing_is_run(self) -> None:
        with mock.patch.dict(os.environ):
            real = os.environ.pop("RINGFENCE_BIN")
            with mock.patch.dict(os.environ, {"PATH": self.workspace}):
                with self.assertRaises(BinaryNotFound) as caught:
                    get_sandbox(self.workspace)
                self.assertIn("RINGFENCE_BIN", str(caught.exception))
            with mock.patch.dict(os.environ, {"PATH": os.path.dirname(real)}):
                self.assertEqual(os.path.basename(find_binary()), "ringfence")
            # One that was named and is not there is not replaced by another.
            with mock.patch.dict(os.environ, {"RINGFENCE_BIN": "/nowhere/ringfence", "PATH": os.path.dirname(real)}):
                self.assertRaises(BinaryNotFound, find_binary)
                self.assertEqual(find_binary(real), os.path.abspath(real))
            with mock.patch.dict(os.environ, {"RINGFENCE_BIN": ""}):
                self.assertRaises(BinaryNotFound, find_binary)

    def test_many_runs_at_once_keep_their_answers_apart(self) -> None:
        with get_sandbox(self.workspace) as sandbox, ThreadPoolExecutor(8) as pool:
            outcomes = list(pool.map(lambda n: sandbox.run_command(["echo", str(n)]), range(24)))
            self.assertEqual([one.stdout for one in outcomes], [f"{n}\n" for n in range(24)])

        def alone(n: int) -> str:
            return run(f"echo {n} > mine; cat mine; ls | wc -l", workspace=self.workspace).stdout

        with ThreadPoolExecutor(4) as pool:
            self.assertEqual(list(pool.map(alone, range(8))), [f"{n}\n1\n" for n in range(8)])

    def test_a_call_that_is_ended_ends_its_program(self) -> None:
        with get_sandbox(self.workspace) as sandbox:
            call = Call()
            timer = threading.Timer(1.0, call.kill)
            timer.start()
            begun = time.monotonic()
            outcome = sandbox.run_command(["sleep", "77"], call=call, timeout=60)
            self.assertLess(time.monotonic() - begun, 30)
            self.assertEqual(outcome.status, "cancelled")
            self.assertNotIn("sleep 77", sandbox.run_command("ps ax").stdout.replace("sleep  ", "sleep "))

    def test_asyncio_runs_beside_each_other_and_a_cancelled_task_ends_its_run(self) -> None:
        async def both() -> None:
            async with get_async_sandbox(self.workspace) as sandbox:
                first, second = await asyncio.gather(
                    sandbox.execute_python("print(1)"), sandbox.run_command(["echo", "2"])
                )
                self.assertEqual((first.stdout, second.stdout), ("1\n", "2\n"))
                with self.assertRaises(asyncio.TimeoutError):
                    await asyncio.wait_for(sandbox.run_command(["sleep", "77"], timeout=60), 1)
                for _ in range(50):
                    left = (await sandbox.run_command("ps ax | grep -c 'slee[p] 77'")).stdout
                    if left == "0\n":
                        return
                    await asyncio.sleep(0.1)
                self.fail("the program of the cancelled task is still running")

        asyncio.run(both())

    def test_a_program_that_is_not_there_is_127_and_a_closed_sandbox_is_an_error(self) -> None:
        sandbox = get_sandbox(self.workspace)
        with self.assertRaises(CouldNotRun):
            sandbox.run_command("true")
        with sandbox:
            missing = sandbox.run_command(["no-such-program"])
            self.assertEqual((missing.code, missing.ok, missing.exit_code), (127, False, None))
            name = sandbox.name
        with self.assertRaises(CouldNotRun):
            sandbox.run_command("true")
        self.assertTrue(name)
        sandbox.close()

    def test_changes_wait_or_are_applied_and_what_the_host_would_execute_is_held_back(self) -> None:
        made = os.path.join(self.workspace, "made.txt")
        with get_sandbox(self.workspace) as sandbox:
            sandbox.run_command("echo waits > made.txt")
        self.assertFalse(os.path.exists(made))
        changes = sandbox.changes()
        assert changes is not None
        self.assertEqual([one["path"] for one in changes["changes"]], ["made.txt"])
        sandbox.apply()
        self.assertEqual(self.read(made), "waits\n")
        # In a file: read as a request it would be refused before it could try.
        self.write(os.path.join(self.workspace, "install.sh"), "mkdir -p .git/hooks && echo evil > .git/hooks/pre-commit\n")
        with get_sandbox(self.workspace, on_exit="apply") as sandbox:
            sandbox.run_command("echo more >> made.txt")
            self.assertTrue(sandbox.run_command(["sh", "install.sh"]).ok)
        self.assertEqual(self.read(made), "waits\nmore\n")
        self.assertFalse(os.path.exists(os.path.join(self.workspace, ".git", "hooks", "pre-commit")))
        with get_sandbox(self.workspace, on_exit="discard") as sandbox:
            sandbox.run_command("rm made.txt")
        self.assertTrue(os.path.exists(made))
        self.assertIsNone(sandbox.changes())

    def test_a_sandbox_that_nobody_closed_ends_with_the_program(self) -> None:
        code = "import sys; from ringfence import get_sandbox; print(get_sandbox(sys.argv[1]).start().name)"
        words = [sys.executable, "-c", code, self.workspace]
        source = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "src")
        made = subprocess.run(words, env={**os.environ, "PYTHONPATH": source}, check=True, capture_output=True, text=True)
        listed = subprocess.run([find_binary(), "session", "list", "--json"], check=True, capture_output=True, text=True)
        self.assertTrue(made.stdout.strip())
        self.assertNotIn(made.stdout.strip(), listed.stdout)
        with get_sandbox(self.workspace) as open_one:
            listed = subprocess.run([find_binary(), "session", "list", "--json"], check=True, capture_output=True, text=True)
            self.assertIn(str(open_one.name), listed.stdout)

    def test_a_refusal_carries_its_rule_and_advice(self) -> None:
        policy = {
            "commands": [
                {"deny": ["git", "push"], "why": "nobody pushes", "matches": ["git push"], "rejects": ["git status"]}
            ]
        }
        with get_sandbox(self.workspace, policy=policy) as sandbox:
            with self.assertRaises(Refused) as caught:
                sandbox.run_command(["git", "push"])
            self.assertIn("nobody pushes", caught.exception.refusal.reason + caught.exception.refusal.subject)
            self.assertTrue(caught.exception.advice)
            assert caught.exception.outcome is not None
            self.assertEqual(caught.exception.outcome.code, 126)
            self.assertTrue(sandbox.run_command(["git", "--version"]).ok)

    def test_times_and_sizes_that_make_no_sense_are_told_before_anything_runs(self) -> None:
        for nonsense in (0, -1, float("nan"), float("inf"), True):
            with self.subTest(nonsense), self.assertRaises(ValueError):
                run("true", workspace=self.workspace, timeout=nonsense)
        with self.assertRaises(CouldNotRun):
            run("true", workspace=self.workspace, timeout="soon")
        with self.assertRaises(ValueError):
            run("true", workspace=self.workspace, env={"A=B": "c"})
        with self.assertRaises(ValueError):
            get_sandbox(os.path.join(self.workspace, "not-there"))
        self.assertTrue(run("true", workspace=self.workspace, timeout=0.9, memory=256 << 20, env={"A": "b=c"}).ok)

    def _script(self, words: str) -> str:
        path = os.path.join(os.path.dirname(self.workspace), "said")
        self.write(path, f"#!/bin/sh\n{words}\n")
        os.chmod(path, os.stat(path).st_mode | stat.S_IXUSR)
        return path
