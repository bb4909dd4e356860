"""The same for asyncio. A task that is cancelled ends its run."""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Any, Callable, Optional, Type

from .call import Call
from .outcome import Outcome
from .sandbox import Sandbox, get_sandbox


class AsyncSandbox:
    """A `Sandbox` whose methods are awaited. Made by `get_async_sandbox`."""

    def __init__(self, sandbox: Sandbox) -> None:
        self.sandbox = sandbox

    async def __aenter__(self) -> "AsyncSandbox":
        await asyncio.to_thread(self.sandbox.start)
        return self

    async def __aexit__(
        self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        # Shielded: a sandbox is closed also when its task is being cancelled.
        await asyncio.shield(asyncio.to_thread(self.sandbox.__exit__, kind, error, trace))

    async def run_command(self, *args: Any, **kwargs: Any) -> Outcome:
        return await _run(self.sandbox.run_command, *args, **kwargs)

    async def execute_code(self, *args: Any, **kwargs: Any) -> Outcome:
        return await _run(self.sandbox.execute_code, *args, **kwargs)

    async def execute_python(self, *args: Any, **kwargs: Any) -> Outcome:
        return await _run(self.sandbox.execute_python, *args, **kwargs)

    async def run_tests(self, *args: Any, **kwargs: Any) -> Outcome:
        return await _run(self.sandbox.run_tests, *args, **kwargs)


def get_async_sandbox(*args: Any, **kwargs: Any) -> AsyncSandbox:
    """As `get_sandbox`, for `async with`."""
    return AsyncSandbox(get_sandbox(*args, **kwargs))


async def _run(method: "Callable[..., Outcome]", *args: Any, **kwargs: Any) -> Outcome:
    call = Call()
    try:
        return await asyncio.to_thread(method, *args, call=call, **kwargs)
    except asyncio.CancelledError:
        call.kill()
        raise
