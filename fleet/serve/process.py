"""A tick in a process of its own: ``fleet poll --json``, ended when nobody waits for it any more."""

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import anyio
import msgspec
from anyio.abc import Process

from fleet.serve.sidecar import TickFailedError
from fleet.serve.tick import Ticked

TICK_S_MAX = 900.0
ANSWER_BYTES_MAX = 4 * 1024 * 1024
TOLD_BYTES_MAX = 4 * 1024
END_S = 0.3


async def tick(root: Path, agent: str, local: bool) -> Ticked:
    """Run one tick and return what it says.

    Raises:
        TickFailedError: it could not start, said nothing that can be read, or took too long.
    """
    # -P: a folder of the project that is called fleet, or json, is not ours to run.
    words = [sys.executable, "-P", "-m", "fleet", "poll", "--json", "--agent", agent, "--dir", str(root)]
    try:
        child = await anyio.open_process(
            [*words, *(["--local"] if local else [])],
            cwd=root,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,  # a key pressed in our terminal is for us: we end it, in time
        )
    except OSError as why:
        raise TickFailedError(f"no process could be started ({why.strerror})") from why
    said, told = bytearray(), bytearray()
    try:
        with anyio.move_on_after(TICK_S_MAX) as limit:
            async with anyio.create_task_group() as group:
                group.start_soon(_read, child.stdout, said, ANSWER_BYTES_MAX)
                group.start_soon(_read, child.stderr, told, TOLD_BYTES_MAX)
            await child.wait()
    finally:
        await _end(child)
    if limit.cancelled_caught:
        raise TickFailedError(f"it took longer than {TICK_S_MAX:.0f} s and was ended")
    try:
        return msgspec.json.decode(bytes(said), type=Ticked)
    except (msgspec.DecodeError, msgspec.ValidationError) as why:
        words_told = told.decode("utf-8", "replace").strip()[:400]
        raise TickFailedError(f"exit code {child.returncode}: {words_told or 'it said nothing'}") from why


async def _read(stream: "anyio.abc.ByteReceiveStream | None", into: bytearray, bytes_max: int) -> None:
    if stream is None:
        return
    async for some in stream:
        into += some[: bytes_max - len(into)]


async def _end(child: Process) -> None:
    """End a process that still runs: first with a word, then without. What it started ends with it."""
    with anyio.CancelScope(shield=True):
        for how in (signal.SIGTERM, signal.SIGKILL):
            if child.returncode is None:
                with suppress(ProcessLookupError):
                    os.killpg(child.pid, how)
                with anyio.move_on_after(END_S):
                    await child.wait()
        await child.aclose()
