"""Tools that return text: what they do, and that no path leads out."""

import os
import unittest
import warnings

from ringfence import BinaryNotFound, CodingTools, NotSandboxed

from .surroundings import InWorkspace


class Tools(InWorkspace):
    def setUp(self) -> None:
        super().setUp()
        self.write(os.path.join(self.workspace, "given.txt"), "one\ntwo\nthree\n")
        self.tools = CodingTools(self.workspace)
        self.addCleanup(self.tools.close)

    def test_files_are_written_read_edited_listed_searched_and_deleted(self) -> None:
        tools = self.tools
        self.assertEqual(tools.write_file("src/a.py", "x = 1\n"), "wrote 6 bytes to src/a.py")
        self.assertEqual(tools.read_file("src/a.py"), "x = 1\n")
        self.assertEqual(tools.edit_file("src/a.py", "x = 1", "x = 2"), "edited src/a.py")
        self.assertEqual(tools.run_command("cat src/a.py"), "exit code 0\nstdout:\nx = 2")
        self.assertEqual(tools.read_file("given.txt", 2, 1), "two\n")
        self.assertEqual(tools.read_file(os.path.join(self.workspace, "given.txt"), 3), "three\n")
        self.assertEqual(tools.list_files(), "given.txt\nsrc/\nsrc/a.py")
        self.assertEqual(tools.list_files("src"), "a.py")
        self.assertEqual(tools.search("x = [0-9]"), "src/a.py:1:x = 2")
        self.assertEqual(tools.search("t.o", glob="*.py"), "nothing matches")
        self.assertEqual(tools.search("--version"), "nothing matches")
        self.assertEqual(tools.delete_file("src/a.py"), "deleted src/a.py")
        self.assertEqual(tools.list_files("src"), "(empty)")
        # Nothing of it is on the host before somebody applies it.
        self.assertEqual(os.listdir(self.workspace), ["given.txt"])

    def test_an_edit_changes_one_place_or_nothing(self) -> None:
        for old, said in (("e", "occurs 3 times"), ("absent", "does not occur"), ("", "does not occur")):
            self.assertIn(said, self.tools.edit_file("given.txt", old, "x"))
        self.assertEqual(self.tools.read_file("given.txt"), "one\ntwo\nthree\n")
        self.tools.edit_file("given.txt", "two", "2")
        self.assertEqual(self.tools.read_file("given.txt"), "one\n2\nthree\n")

    def test_no_path_leads_out_of_the_workspace(self) -> None:
        os.symlink(os.path.dirname(self.workspace), os.path.join(self.workspace, "up"))
        os.symlink(self.outside, os.path.join(self.workspace, "link"))
        os.symlink("given.txt", os.path.join(self.workspace, "inner"))
        os.symlink("/etc", os.path.join(self.workspace, "made"))
        os.symlink("/tmp/not-yet", os.path.join(self.workspace, "dangling"))
        tools = self.tools
        out = ["../outside.txt", self.outside, "link", "up/outside.txt", "made/passwd", "dangling", "/etc/passwd", "src/../../x"]
        for path in [*out, "~/x", "", "up/workspace/../outside.txt"]:
            with self.subTest(path):
                for said in (tools.read_file(path), tools.write_file(path, "evil"), tools.edit_file(path, "of", "x")):
                    self.assertTrue(said.startswith("refused: "), said)
                if path != "":
                    self.assertNotIn("of the host", tools.list_files(path) + tools.search(".", path))
        for path in ["up/outside.txt", "made/passwd", "..", ".", "../workspace"]:
            self.assertTrue(tools.delete_file(path).startswith("refused: "), path)
        self.assertEqual(self.read(self.outside), "of the host\n")
        # The twin: a link that stays inside is followed, and a link itself may be removed.
        self.assertEqual(tools.read_file("inner"), "one\ntwo\nthree\n")
        self.assertEqual(tools.delete_file("link"), "deleted link")

    def test_odd_names_are_names_and_nothing_else(self) -> None:
        for name in ["-rf", "--help", "a b", "$(id)", "`id`", "'", '"', "new\nline", "*", "é", "end\n"]:
            with self.subTest(name):
                self.assertTrue(self.tools.write_file(name, name).startswith("wrote"), name)
                self.assertEqual(self.tools.read_file(name), name)
                self.assertIn(name, self.tools.list_files())
                self.assertTrue(self.tools.delete_file(name).startswith("deleted"))
        self.assertEqual(self.tools.list_files(), "given.txt")

    def test_what_is_missing_too_large_or_a_folder_is_told(self) -> None:
        self.tools.run_command("mkdir d; head -c 600000 /dev/zero > big")
        self.assertIn("no such file", self.tools.read_file("absent"))
        self.assertIn("larger", self.tools.read_file("big"))
        self.assertIn("folder", self.tools.read_file("d"))
        self.assertIn("folder", self.tools.write_file("d", "x"))
        self.assertIn("larger", self.tools.write_file("big2", "x" * 600_000))
        self.assertIn("Unmatched", self.tools.search("("))

    def test_commands_code_and_tests_return_text_also_when_they_fail(self) -> None:
        tools = self.tools
        self.assertEqual(tools.execute_python("print(6 * 7)"), "exit code 0\nstdout:\n42")
        self.assertIn("ZeroDivisionError", tools.execute_python("1 / 0"))
        self.assertIn("timed out", tools.run_command("sleep 20", timeout=0.5))
        self.assertIn("refused: `proc.timeout`", tools.run_command("true", timeout=99999))
        self.assertIn("could not run", tools.run_command(["no-such-program"]))
        self.assertIn("the command is empty", tools.run_command(""))
        test = "import unittest\nclass T(unittest.TestCase):\n    def test_it(self): self.assertEqual(1, {})\n"
        tools.write_file("test_it.py", test.format(1))
        self.assertIn("exit code 0", tools.run_tests(runner="unittest"))
        tools.write_file("test_it.py", test.format(2))
        self.assertIn("exit code 1", tools.run_tests())
        self.assertIn("would be read as an option", tools.run_tests("--collect-only"))
        self.assertIn("no test runner", tools.run_tests(runner="rm"))

    def test_nonsense_of_a_model_is_answered_with_text(self) -> None:
        tools = self.tools
        for said in (
            tools.run_command("true", timeout=-1),
            tools.run_command("true", timeout="soon"),
            tools.run_command([1, 2]),  # type: ignore[list-item]
            tools.run_command(None),  # type: ignore[arg-type]
            tools.run_command("a\0b"),
            tools.run_command("\ud800"),
            tools.read_file(None),  # type: ignore[arg-type]
            tools.read_file("a\0b"),
            tools.write_file("x", "\ud800"),
            tools.search("a\0b"),
        ):
            self.assertTrue(said.startswith("error: "), said)
        self.assertEqual(tools.run_command("echo fine"), "exit code 0\nstdout:\nfine")

    def test_long_output_keeps_its_head_and_tail(self) -> None:
        short = CodingTools(self.workspace, max_output=100)
        self.addCleanup(short.close)
        said = short.run_command("seq 1000")
        self.assertLess(len(said), 250)
        self.assertTrue("stdout:\n1\n2\n" in said and said.endswith("1000"), said)

    def test_without_a_sandbox_it_is_loud_and_the_hosts_files_are_really_touched(self) -> None:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            with self.assertLogs("ringfence", "WARNING"), CodingTools(self.workspace, use_sandbox=False) as bare:
                said = bare.write_file("direct.txt", "x")
                self.assertTrue(bare.read_file("../outside.txt").startswith("[NOT SANDBOXED]\nrefused: "))
        self.assertEqual([one.category for one in caught], [NotSandboxed])
        self.assertTrue(said.startswith("[NOT SANDBOXED]"))
        self.assertEqual(self.read(os.path.join(self.workspace, "direct.txt")), "x")
        # The twin: with the sandbox nothing is said, and the host is as it was.
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            with CodingTools(self.workspace) as tools:
                self.assertEqual(tools.write_file("walled.txt", "x"), "wrote 1 bytes to walled.txt")
        self.assertFalse(os.path.exists(os.path.join(self.workspace, "walled.txt")))

    def test_without_the_binary_there_are_no_tools_walled_or_not(self) -> None:
        self.assertRaises(BinaryNotFound, CodingTools, self.workspace, binary="/nowhere/ringfence")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with self.assertRaises(BinaryNotFound):
                CodingTools(self.workspace, use_sandbox=False, binary="/nowhere/ringfence")


if __name__ == "__main__":
    unittest.main()
