"""The scenarios of the sandbox, through this package. Each refusal has its twin that succeeds."""

import os
import time
from unittest import mock

from ringfence import Refused, get_sandbox, run

from .surroundings import InWorkspace, Server


class Scenarios(InWorkspace):
    def test_hello_world_runs_under_the_default_policy_and_every_guarantee_holds(self) -> None:
        outcome = run(["echo", "hello world"], workspace=self.workspace)
        self.assertEqual((outcome.stdout, outcome.code, outcome.ok), ("hello world\n", 0, True))
        self.assertEqual(outcome.not_enforced, ())
        self.assertIn("net.none", [one.guarantee for one in outcome.enforced])

    def test_the_workspace_is_read_and_written_and_the_hosts_files_are_not_seen(self) -> None:
        self.write(os.path.join(self.workspace, "given.txt"), "given")
        with get_sandbox(self.workspace) as sandbox:
            wrote = sandbox.execute_python("open('made.txt', 'w').write(open('given.txt').read() + ' and made')")
            self.assertTrue(wrote.ok, wrote.describe())
            self.assertEqual(sandbox.run_command(["cat", "/workspace/made.txt"]).stdout, "given and made")
            hidden = sandbox.run_command(["cat", self.outside])
            self.assertFalse(hidden.ok)
            self.assertNotIn("of the host", hidden.stdout)
            users = sandbox.run_command(["cat", "/etc/passwd"]).stdout
        self.assertNotEqual(users, self.read("/etc/passwd"))
        # The twin: without a wall the same probe sees both.
        bare = run(["cat", self.outside, "/etc/passwd"], workspace=self.workspace, backend="none")
        self.assertEqual(bare.stdout, self.read(self.outside) + self.read("/etc/passwd"))

    def test_the_network_is_off_and_the_same_probe_arrives_without_a_wall(self) -> None:
        server = Server()
        self.addCleanup(server.close)
        with get_sandbox(self.workspace) as sandbox:
            self.assertFalse(sandbox.execute_python(server.probe("/walled")).ok)
        run(["python3", "-c", server.probe("/bare")], workspace=self.workspace, backend="none")
        self.assertEqual(server.visits, ["/bare"])

    def test_a_policy_allows_one_host_and_another_is_refused_and_recorded(self) -> None:
        server, other = Server(), Server()
        self.addCleanup(server.close)
        self.addCleanup(other.close)
        policy = {"net": {"mode": "allowlist", "allow": [f"127.0.0.1:{server.port}"]}}
        with get_sandbox(self.workspace, policy=policy) as sandbox:
            self.assertTrue(sandbox.execute_python(server.probe("/listed")).ok)
            denied = sandbox.execute_python(other.probe("/not-listed"))
        self.assertFalse(denied.ok)
        self.assertIn("403", denied.stderr)
        self.assertEqual([(one.port, one.allowed) for one in denied.network], [(other.port, False)])
        self.assertEqual((server.visits, other.visits), (["/listed"], []))

    def test_an_override_narrows_and_cannot_widen(self) -> None:
        server = Server()
        self.addCleanup(server.close)
        policy = {"net": {"mode": "allowlist", "allow": [f"127.0.0.1:{server.port}"]}, "proc": {"max_timeout": "60s"}}
        with get_sandbox(self.workspace, policy=policy, network="none") as sandbox:
            narrowed = sandbox.execute_python(server.probe("/narrowed"))
        self.assertEqual((narrowed.effective_policy["net"]["mode"], server.visits), ("none", []))
        for wider in ({"network": "open"}, {"allow_hosts": ["example.org"]}, {"memory": "64GiB"}):
            with self.subTest(wider), self.assertRaises(Refused) as caught:
                get_sandbox(self.workspace, policy=policy, **wider).start()
            self.assertEqual(caught.exception.refusal.rule, "overrides.narrow-only")
            self.assertIn("grant", caught.exception.hint or "")
        with self.assertRaises(Refused) as caught:
            run("true", workspace=self.workspace, policy=policy, timeout=61)
        self.assertIn("60s", caught.exception.refusal.reason)
        self.assertTrue(caught.exception.advice)
        self.assertTrue(run("true", workspace=self.workspace, policy=policy, timeout=59).ok)

    def test_an_endless_loop_ends_by_the_time_limit_with_status_and_reason(self) -> None:
        begun = time.monotonic()
        with get_sandbox(self.workspace) as sandbox:
            outcome = sandbox.execute_python("print('begun', flush=True)\nwhile True: pass", timeout=1)
            self.assertTrue(sandbox.execute_python("print(1)", timeout=20).ok)
        self.assertLess(time.monotonic() - begun, 30)
        self.assertEqual((outcome.status, outcome.timed_out, outcome.code), ("timedOut", True, 124))
        self.assertEqual(outcome.stdout, "begun\n")
        self.assertEqual([one.rule for one in outcome.violations], ["time.limit"])
        self.assertIn("time limit", outcome.describe())

    def test_a_secret_of_the_hosts_environment_is_undefined_inside(self) -> None:
        code = "import os; print(os.environ.get('MY_API_TOKEN'), os.environ.get('MEANT'))"
        with mock.patch.dict(os.environ, {"MY_API_TOKEN": "s3cret"}):
            with get_sandbox(self.workspace) as sandbox:
                outcome = sandbox.execute_python(code, env={"MEANT": "yes"})
            bare = run(["python3", "-c", code], workspace=self.workspace, backend="none")
        self.assertEqual(outcome.stdout, "None yes\n")
        self.assertIn("MY_API_TOKEN", outcome.env_withheld)
        self.assertIn("s3cret", bare.stdout)

    def test_an_upload_to_a_file_api_of_a_model_vendor_is_blocked(self) -> None:
        server = Server()
        self.addCleanup(server.close)
        upload = (
            "import urllib.request\n"
            "def upload(url):\n"
            "    return urllib.request.urlopen(urllib.request.Request(url, data=b'of the workspace'), timeout=5).read()\n"
        )
        # Naming the vendor is not enough: whoever has a key can read what is sent there.
        policy = {"net": {"mode": "allowlist", "allow": [f"127.0.0.1:{server.port}", "api.anthropic.com"]}}
        with get_sandbox(self.workspace, policy=policy) as sandbox:
            self.assertTrue(sandbox.execute_python(f"{upload}upload('http://127.0.0.1:{server.port}/v1/files')").ok)
            self.assertEqual(server.visits, ["/v1/files"])
            outcome = sandbox.execute_python(f"{upload}upload('http://api.anthropic.com/v1/files')")
        self.assertEqual([(one.host, one.allowed) for one in outcome.network], [("api.anthropic.com", False)])
        self.assertIn("net.stranger", outcome.violations[0].message)
        self.assertIn("403", outcome.stderr)
