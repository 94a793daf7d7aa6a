"""`fairlead.connect_async`: the client of a service for programs with an event loop. Every request waits in a thread."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from os import PathLike
from typing import TYPE_CHECKING, Any

from fairlead.library.live import JobClient, connect, deadline_s, pauses, still_waiting
from fairlead.model.public_job import ENDED_PHASES

if TYPE_CHECKING:
    from fairlead.model.explanation import Explanation


def connect_async(url: str | None = None, token: str | None = None) -> AsyncJobClient:
    """As `fairlead.connect`, with methods to be awaited."""
    return AsyncJobClient(connect(url, token))


@dataclass(frozen=True)
class AsyncJobClient:
    """The methods of `JobClient`, to be awaited; any number of them may wait at the same time."""

    client: JobClient

    async def submit(
        self, job: Mapping[str, Any] | str | PathLike[str], *, tenant: str | None = None, key: str | None = None
    ) -> dict[str, Any]:
        return await asyncio.to_thread(self.client.submit, job, tenant=tenant, key=key)

    async def job(self, job: str) -> dict[str, Any]:
        return await asyncio.to_thread(self.client.job, job)

    async def jobs(
        self, *, tenant: str | None = None, phase: str | None = None, limit: int = 100
    ) -> list[dict[str, Any]]:
        return await asyncio.to_thread(self.client.jobs, tenant=tenant, phase=phase, limit=limit)

    async def wait(self, job: str, timeout: str | float | None = None) -> dict[str, Any]:
        """Wait until the job has ended; no thread is held between two looks at it."""
        until_s = deadline_s(timeout)
        pause = pauses()
        while (document := await self.job(job))["phase"] not in ENDED_PHASES:
            if time.monotonic() >= until_s:
                raise still_waiting(document, timeout)
            await asyncio.sleep(next(pause))
        return document

    async def logs(self, job: str, *, follow: bool = False) -> AsyncIterator[str]:
        """The output of a job, line by line: `async for line in client.logs(job)`. It is read in a thread of its own."""
        lines: asyncio.Queue[str | BaseException | None] = asyncio.Queue()
        loop, left = asyncio.get_running_loop(), threading.Event()

        def tell(line: str | BaseException | None) -> None:
            with suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(lines.put_nowait, line)

        def read() -> None:
            try:
                for line in self.client.logs(job, follow=follow):
                    if left.is_set():
                        return
                    tell(line)
                tell(None)
            except BaseException as error:
                tell(error)

        threading.Thread(target=read, name="fairlead logs", daemon=True).start()
        try:
            while (line := await lines.get()) is not None:
                if isinstance(line, BaseException):
                    raise line
                yield line
        finally:
            left.set()

    async def explain(self, job: str, *, remedies: bool = True) -> Explanation:
        return await asyncio.to_thread(self.client.explain, job, remedies=remedies)

    async def cancel(self, job: str) -> None:
        await asyncio.to_thread(self.client.cancel, job)

    async def hold(self, job: str) -> None:
        await asyncio.to_thread(self.client.hold, job)

    async def release(self, job: str) -> None:
        await asyncio.to_thread(self.client.release, job)

    async def status(self) -> dict[str, Any]:
        return await asyncio.to_thread(self.client.status)
