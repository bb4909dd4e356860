"""The tools for a coding agent, in the form that an agent framework takes. None of them is needed to import this.

    from ringfence import CodingTools
    from ringfence.frameworks import langchain_tools

    with CodingTools("./project") as tools:
        agent = create_agent(model, langchain_tools(tools))
"""

from __future__ import annotations

import importlib
from typing import Any, Callable, List, Optional

from .coding_tools import CodingTools

__all__ = ["functions", "langchain_tools", "openai_agents_tools", "pydantic_ai_tools"]


def functions(tools: CodingTools) -> List[Callable[..., str]]:
    """Plain functions with types and descriptions, for every framework that takes such. Each returns text, also when it was refused."""

    def run_command(command: str, timeout: Optional[float] = None) -> str:
        """Run a shell command in the sandbox. Returns its exit code and what it printed.

        Args:
            command: The command line.
            timeout: How many seconds it may take.
        """
        return tools.run_command(command, timeout)

    def execute_python(code: str, timeout: Optional[float] = None) -> str:
        """Run a Python program in the sandbox. Returns its exit code and what it printed.

        Args:
            code: The program.
            timeout: How many seconds it may take.
        """
        return tools.execute_python(code, timeout)

    def run_tests(target: Optional[str] = None) -> str:
        """Run the tests of the workspace in the sandbox.

        Args:
            target: The file, folder or name of the tests to run; all of them without it.
        """
        return tools.run_tests(target)

    def read_file(path: str, offset: int = 1, limit: Optional[int] = None) -> str:
        """Read lines of a file in the workspace.

        Args:
            path: The file, relative to the workspace.
            offset: The first line.
            limit: How many lines.
        """
        return tools.read_file(path, offset, limit)

    def write_file(path: str, content: str) -> str:
        """Write a file in the workspace, with the folders that lead to it.

        Args:
            path: The file, relative to the workspace.
            content: What it is to hold.
        """
        return tools.write_file(path, content)

    def edit_file(path: str, old: str, new: str) -> str:
        """Replace a text that occurs exactly once in a file of the workspace.

        Args:
            path: The file, relative to the workspace.
            old: The text that is there.
            new: What is to stand in its place.
        """
        return tools.edit_file(path, old, new)

    def delete_file(path: str) -> str:
        """Delete a file of the workspace.

        Args:
            path: The file, relative to the workspace.
        """
        return tools.delete_file(path)

    def list_files(path: str = ".") -> str:
        """List what lies below a folder of the workspace.

        Args:
            path: The folder, relative to the workspace.
        """
        return tools.list_files(path)

    def search(pattern: str, path: str = ".", glob: str = "*") -> str:
        """Find lines that match an extended regular expression, as `file:line:text`.

        Args:
            pattern: The expression.
            path: Where to look, relative to the workspace.
            glob: Which names of files to look into.
        """
        return tools.search(pattern, path, glob)

    return [run_command, execute_python, run_tests, read_file, write_file, edit_file, delete_file, list_files, search]


def langchain_tools(tools: CodingTools) -> List[Any]:
    """For LangChain and LangGraph: `create_agent(model, langchain_tools(tools))`."""
    make = _needed("langchain_core.tools", "langchain-core").StructuredTool.from_function
    return [make(one, parse_docstring=True) for one in functions(tools)]


def openai_agents_tools(tools: CodingTools) -> List[Any]:
    """For the OpenAI Agents SDK: `Agent(name=..., tools=openai_agents_tools(tools))`."""
    make = _needed("agents", "openai-agents").function_tool
    return [make(one) for one in functions(tools)]


def pydantic_ai_tools(tools: CodingTools) -> List[Any]:
    """For PydanticAI: `Agent(model, tools=pydantic_ai_tools(tools))`."""
    make = _needed("pydantic_ai", "pydantic-ai").Tool
    return [make(one, takes_ctx=False) for one in functions(tools)]


def _needed(module: str, package: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ImportError(f"`{module}` is not installed; try: pip install {package}") from error
