"""The same tools in the forms of frameworks, by the frameworks' own code where they are installed."""

import asyncio
import importlib.util
import json
import unittest
from typing import Any, Callable, List, TypeVar

from ringfence import CodingTools
from ringfence.frameworks import functions, langchain_tools, openai_agents_tools, pydantic_ai_tools

from .surroundings import InWorkspace

NAMES = [
    "run_command",
    "execute_python",
    "run_tests",
    "read_file",
    "write_file",
    "edit_file",
    "delete_file",
    "list_files",
    "search",
]


Test = TypeVar("Test", bound=Callable[..., None])


def needs(module: str) -> Callable[[Test], Test]:
    missing = importlib.util.find_spec(module) is None
    return unittest.skipIf(missing, f"SKIPPED LOUDLY: {module} is not installed")


class Frameworks(InWorkspace):
    def setUp(self) -> None:
        super().setUp()
        self.tools = CodingTools(self.workspace)
        self.addCleanup(self.tools.close)

    def one(self, tools: List[Any], name: str = "run_command") -> Any:
        self.assertEqual([tool.name for tool in tools], NAMES)
        found = next(tool for tool in tools if tool.name == name)
        self.assertIn("sandbox", found.description)
        return found

    def test_plain_functions_say_what_they_take_and_act_behind_the_wall(self) -> None:
        found = {one.__name__: one for one in functions(self.tools)}
        self.assertEqual(list(found), NAMES)
        for one in found.values():
            self.assertIn("Args:", one.__doc__ or "")
            self.assertIn("return", one.__annotations__)
        self.assertEqual(found["run_command"]("echo hello"), "exit code 0\nstdout:\nhello")
        self.assertEqual(found["write_file"]("a.txt", "one\n"), "wrote 4 bytes to a.txt")
        self.assertEqual(found["read_file"]("a.txt"), "one\n")
        self.assertTrue(found["read_file"](self.outside).startswith("refused: "))

    def test_a_framework_that_is_not_there_is_named_with_what_to_install(self) -> None:
        from ringfence.frameworks import _needed

        with self.assertRaisesRegex(ImportError, "pip install some-package"):
            _needed("no_such_module_of_anybody", "some-package")

    @needs("langchain_core")
    def test_langchain_calls_a_tool_by_its_schema(self) -> None:
        tool = self.one(langchain_tools(self.tools))
        self.assertEqual(set(tool.args), {"command", "timeout"})
        self.assertEqual(tool.args["command"]["description"], "The command line.")
        self.assertEqual(tool.invoke({"command": "echo hello"}), "exit code 0\nstdout:\nhello")
        with self.assertRaises(Exception):
            tool.invoke({"timeout": 1})

    @needs("agents")
    def test_openai_agents_calls_a_tool_by_its_schema(self) -> None:
        from agents.tool_context import ToolContext  # type: ignore[import-not-found,unused-ignore]

        tool = self.one(openai_agents_tools(self.tools))
        self.assertIn("command", tool.params_json_schema["required"])
        words = json.dumps({"command": "echo hello", "timeout": None})
        context = ToolContext(context=None, tool_name=tool.name, tool_call_id="1", tool_arguments=words)
        said = asyncio.run(tool.on_invoke_tool(context, words))
        self.assertEqual(said, "exit code 0\nstdout:\nhello")

    @needs("pydantic_ai")
    def test_pydantic_ai_calls_a_tool_in_a_run_of_an_agent(self) -> None:
        from pydantic_ai import Agent  # type: ignore[import-not-found,unused-ignore]
        from pydantic_ai.models.test import TestModel  # type: ignore[import-not-found,unused-ignore]

        tools = pydantic_ai_tools(self.tools)
        self.one(tools)
        agent = Agent(TestModel(call_tools=["list_files"]), tools=tools)
        self.tools.write_file("a.txt", "one\n")
        said = agent.run_sync("go").output
        self.assertIn("list_files", said)


if __name__ == "__main__":
    unittest.main()
