"""Sidecar of a workspace: it looks on while agents work, brings what they wrote to its place, and syncs.

It holds nothing in memory that would have to be saved. What it has not done when it is killed is found out anew, from
the files and from ``poll.json``, by the next one. The work is done by ticks, each in a process of its own: the memory
that a large clan takes is free again afterwards, and a fetch that hangs can be ended at any moment.

Figures for Prometheus are counted here, and shown as plain text to whoever asks on loopback. The ``Host`` must be this
machine by a name of its own: else a page in somebody's browser could read them, once its name points here (DNS
rebinding). It is one module, since it is one process, whose tasks begin, die and end together.
"""

import asyncio
import logging
import os
import random
import secrets
import signal
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import aclosing, closing, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path, PurePath

import anyio
import msgspec
from anyio.abc import Process
from watchfiles import awatch

from fleet.hosts import local
from fleet.hosts.local import LocalFolder
from fleet.model import names
from fleet.model.errors import BusyError, FleetError, UsageError
from fleet.serve import units
from fleet.serve.schedule import CLAN, LOGS, Looks, Marks, Memory, Now, Ticked, digest, looks
from fleet.store import config, consent, homes
from fleet.store.database import Local
from fleet.store.workspace import Workspace
from fleet.text import screening

LOG = "sidecar.log"
DEBOUNCE_S = 0.2
SPREAD_S = 0.3
"""Of several sidecars in one workspace, one does the work: whoever comes a little later finds it done."""
LAST_WORK_S = 1.2
"""Time that the end may wait for work that has begun or is due: all in all it takes less than two seconds."""

PAUSE_S = 1.0
PAUSE_S_MAX = 60.0
WELL_S = 60.0
"""Time after which a run counts as healthy: the next pause is a short one again."""

STEP_MS = 20
"""Between two looks at the queue: a change is heard after one to two of them. Shorter costs an idle machine more."""
GROUP_MS = 60
FIRST_MS = 300
"""A watcher that has heard nothing for so long is known to have begun."""
POLL_S = 1.0
SLICE_S = 30.0
"""Nothing waits longer than this at once: a machine that slept must notice soon after."""

TICK_S_MAX = 900.0
ANSWER_BYTES_MAX = 4 * 1024 * 1024
TOLD_BYTES_MAX = 4 * 1024
TICK_END_S = 0.3
_TAKEN_S = 2.0
_LEFT_S = 2.0


class _Bell:
    """Signal that many set and one waits for. What was rung while nobody waited is heard at the next wait, once."""

    def __init__(self) -> None:
        self._event = anyio.Event()

    def set(self) -> None:
        """Ring."""
        self._event.set()

    async def wait(self) -> None:
        """Return once it was rung since the last wait."""
        await self._event.wait()
        self._event = anyio.Event()


Task = Callable[[], Awaitable[None]]
Died = Callable[[str, BaseException, float], None]
Background = Callable[[_Bell, Callable[[], None], anyio.Event], Awaitable[None]]
"""A task beside the others: told when local lines changed; tells when others arrived; ends when it is time."""


@dataclass(eq=False)
class _Sidecar:
    """One agent's sidecar, and what it is given to work with.

    Attributes:
        configured: reads ``fleet.toml``.
        tick: does what is due; with True, only what concerns this machine alone.
        background: by name, what else runs.
    """

    root: str
    agent: str
    looks: Callable[[], Looks]
    configured: Callable[[], config.Config]
    marks: Callable[[], Marks]
    now_ms: Callable[[], int]
    tick: Callable[[bool], Awaitable[Ticked]]
    log: Callable[[str, str], None]
    background: dict[str, Background] = field(default_factory=dict)
    rng: random.Random = field(default_factory=random.Random)

    def __post_init__(self) -> None:
        self.figures = defaultdict[str, float](int, start_timestamp_seconds=self.now_ms() / 1000)
        self.settings = self.configured().sidecar
        self._seen: Looks = {}
        self._digest = ""
        self._changed_ms = 0  # when the files were last seen to be others
        self._news = _Bell()  # something may have changed
        self._lines = _Bell()  # lines of the clan's did
        self._todo = _Bell()  # it is worth asking whether there is work
        self._due = _Bell()  # it is worth asking when the next sync is
        self._stop = anyio.Event()
        self._is_working = False
        self._how = ""  # how changes are heard of
        self._why_not = ""  # why the last sync that was due was none

    async def run(self) -> None:
        """Run until SIGTERM, SIGINT or SIGHUP, or until ``stop`` is called."""
        self._look()
        async with anyio.create_task_group() as group:
            group.start_soon(self._until_a_signal)
            tasks: dict[str, Callable[[], Awaitable[None]]] = {
                "watch": self._watch,
                "notice": self._notice,
                "work": self._work,
                "sync": self._sync,
            }
            if self.settings.metrics_port:
                port = self.settings.metrics_port
                tasks["metrics"] = lambda: _serve_figures(self.figures, self.agent, port)
            if every_s := units.Manager().alive_every_s():
                tasks["alive"] = partial(_show_life, every_s)
            for name, background in self.background.items():
                tasks[name] = partial(background, self._lines, self._news.set, self._stop)
            for name, task in tasks.items():
                group.start_soon(_keep_up, name, task, self._died, self.rng)
            self.log("started", "")
            units.Manager().notify(units.READY)
            await self._stop.wait()
            units.Manager().notify(units.STOPPING)
            await self._finish()
            group.cancel_scope.cancel()
        self.log("stopped", "")

    def stop(self) -> None:
        """End it: what has begun is finished if that takes no longer than a moment."""
        self._stop.set()

    async def _until_a_signal(self) -> None:
        heard = [signal.SIGTERM, signal.SIGINT]
        if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # who started it with nohup wants it to stay
            heard.append(signal.SIGHUP)
        with anyio.open_signal_receiver(*heard) as signals:
            async for _ in signals:
                self.stop()

    def _died(self, name: str, why: BaseException, wait_s: float) -> None:
        self.figures["restarts_total"] += 1
        self.log("restarted", f"{name} died ({type(why).__name__}: {why}); it starts again in {wait_s:.1f} s")

    # --- hearing of changes -----------------------------------------------------------------------------------------

    async def _watch(self) -> None:
        while not self._stop.is_set():
            until = time.monotonic() + self.settings.rescan_s
            if not self.settings.polling:
                try:
                    await self._listen(until)
                    continue
                except (OSError, RuntimeError) as why:  # too many watchers, not allowed, not there
                    told = f"{why}; files are looked at every {POLL_S:g} s instead, no change is lost"
                    self.log("no watcher", told)
            self._say_how("polling")
            while time.monotonic() < until and not self._stop.is_set():
                self._news.set()
                await anyio.sleep(POLL_S)

    def _say_how(self, how: str) -> None:
        if how != self._how:
            self._how = how
            self.log(how, "")

    async def _listen(self, until: float) -> None:
        watched, has_begun = _folders(Path(self.root)), False
        heard = awatch(
            *watched,
            watch_filter=None,
            debounce=GROUP_MS,
            step=STEP_MS,
            stop_event=self._stop,
            rust_timeout=FIRST_MS,
            yield_on_timeout=True,
            force_polling=False,
            recursive=False,
            ignore_permission_denied=True,
        )
        async with aclosing(heard):
            async for found in heard:
                self._say_how("watching")
                # The first time, whatever was heard: only what changed since the watcher began is heard of.
                is_first, has_begun = not has_begun, True
                if is_first or any(_concerns(self.root, path) for _, path in found):
                    self._news.set()
                if time.monotonic() >= until or ((is_first or found) and _folders(Path(self.root)) != watched):
                    return

    # --- this machine -----------------------------------------------------------------------------------------------

    async def _notice(self) -> None:
        """Look at everything whenever something is said to have changed, and every so often, while it is there."""
        while True:
            with anyio.move_on_after(SLICE_S):
                await self._news.wait()
            if not Path(self.root).is_dir():
                self.log("gone", "the workspace is not there any more; there is nothing left to look after")
                self.stop()
                return
            self._look()

    def _look(self) -> None:
        """Look at all files; who waits for lines is told at once."""
        found = self.looks()
        changed = _changed(self._seen, found)
        if changed and self._seen:
            self._changed_ms = self.now_ms()
        self._seen, self._digest = found, digest(found)
        if _has_lines(changed):
            self._lines.set()
        if config.FILE_NAME in changed:
            self._read_settings()
        self._todo.set()
        self._due.set()

    async def _work(self) -> None:
        """Do the work on this machine whenever the files differ from what they were when it was last done."""
        failures = 0
        while True:
            if (wait_s := self._work_in_s()) > 0:
                with anyio.move_on_after(min(wait_s, SLICE_S)):
                    await self._todo.wait()
                continue
            await anyio.sleep(DEBOUNCE_S + self.rng.uniform(0, SPREAD_S))
            if self._work_in_s() > 0:
                continue
            self._is_working = True
            try:
                done = await self._tick(local=True)
            finally:
                self._is_working = False
            self._look()
            failures = 0 if done is not None and self._work_in_s() > 0 else failures + 1
            if failures > 1:  # once is somebody who wrote meanwhile
                await anyio.sleep(_pause_s(failures - 1, self.rng))

    def _read_settings(self) -> None:
        found = self.configured()
        if found.problems:
            self.log("settings", f"{'; '.join(found.problems)}. The former ones hold until then")
        else:
            self.settings = found.sidecar

    def _now(self) -> Now:
        return Now(self.now_ms(), self._digest, self._changed_ms)

    def _work_in_s(self) -> float:
        return self.marks().work_in_s(self._now(), self.settings)

    # --- the clan ---------------------------------------------------------------------------------------------------

    async def _sync(self) -> None:
        """Ask the clan when that is due: after a quiet moment, at an interval, later after a failure."""
        idle = 0
        while True:
            if (wait_s := self.marks().sync_in_s(self._now(), self.settings)) > 0:
                idle = 0
                with anyio.move_on_after(min(wait_s + self.rng.uniform(0, SPREAD_S), SLICE_S)):
                    await self._due.wait()
                continue
            failures = self.marks().failures
            done = await self._tick(local=False)
            if done is not None:
                self._count(done, is_failed=self.marks().failures > failures)
            self._look()
            idle += 1
            if idle > 1:  # what was due is due still: nobody may ask again and again without a pause
                await anyio.sleep(_pause_s(idle - 1, self.rng))

    def _count(self, done: Ticked, *, is_failed: bool) -> None:
        if done.synced is not None:
            self.figures["syncs_total"] += 1
            self.figures["lines_out_total"] += done.synced.lines_out
            self.figures["records_in_total"] += done.synced.records_in
            self.figures["last_success_timestamp_seconds"] = self.now_ms() / 1000
            self.log("synced", f"{done.synced.lines_out} lines out, {done.synced.records_in} records in")
        if is_failed:
            self.figures["sync_failures_total"] += 1
            self.log("not synced", "; ".join(done.errors))

    async def _tick(self, *, local: bool) -> Ticked | None:
        """Do a tick; None when it could not be done at all."""
        try:
            done = await self.tick(local)
        except FleetError as why:
            self.log("tick failed", str(why))
            return None
        if done.worked is not None:
            self.figures["works_total"] += 1
        if done.errors and (local or done.synced is not None):
            self.log("told", "; ".join(done.errors))
        if done.why not in ("", self._why_not):
            self.log("not shared", done.why)
        if done.why or done.synced is not None:
            self._why_not = done.why
        return done

    # --- the end ----------------------------------------------------------------------------------------------------

    async def _finish(self) -> None:
        """Let work end that has begun, and do what is due. All that was acknowledged is on the disk either way."""
        until = time.monotonic() + LAST_WORK_S
        with anyio.move_on_after(LAST_WORK_S):
            while self._is_working:
                await anyio.sleep(0.02)
            self._look()
            if self._work_in_s() <= 0:
                await self._tick(local=True)
        if time.monotonic() >= until:
            self.log("cut short", "what was not done is done by the next sidecar, or by `fleet sync`")


def _changed(before: Looks, after: Looks) -> set[str]:
    """Return the paths that look different, or came, or went."""
    paths = before.keys() | after.keys()
    return {path for path in paths if before.get(path, []) != after.get(path, [])}


def _has_lines(paths: Iterable[str]) -> bool:
    """Return True where one of these paths holds lines of the clan's."""
    return any(path.startswith(f"{CLAN}/") and path.endswith(".jsonl") for path in paths)


async def _show_life(every_s: float) -> None:
    while True:
        units.Manager().notify(units.ALIVE)
        await anyio.sleep(every_s)


def _folders(root: Path) -> list[str]:
    """Return the folders to watch, those that are there: the root for the settings, the homes, the clan's.

    A home is whatever folder is among the homes: that one came is heard there, whoever is entered in the register when.
    """
    home, clan = Path(homes.Homes(root).current()), Path(CLAN)
    wanted = [root / each for each in (*home.parents, home, clan, *(clan / f"{log}.d" for log in LOGS))]
    with suppress(OSError):
        wanted += [path for path in (root / home).iterdir() if names.is_agent(path.name)]
    return sorted(str(path) for path in wanted if path.is_dir() and not path.is_symlink())


def _concerns(root: str, path: str) -> bool:
    """Return True where a path that a watcher names may be one of ours; a file on its way to its name is not."""
    relative = os.path.relpath(path, root)
    name = Path(path).name
    if name.startswith(".") and name.endswith(".tmp"):
        return False
    place = Path(relative)
    above = PurePath(homes.Homes(root).current())
    return (
        relative == "fleet.toml" or place in above.parents or place.is_relative_to(above) or place.is_relative_to(CLAN)
    )


# --- a task that dies starts again ------------------------------------------------------------------------------------


def _pause_s(deaths: int, rng: random.Random) -> float:
    """Return how long to wait after so many deaths in a row, seconds: doubling, half of it left to chance."""
    longest = min(PAUSE_S_MAX, PAUSE_S * 2 ** min(deaths - 1, 16))
    return rng.uniform(longest / 2, longest)


async def _keep_up(name: str, task: Task, died: Died, rng: random.Random) -> None:
    """Run a task until it returns by itself or we are cancelled.

    ``died``: told each time it died: the name, of what, and how long the pause is.
    ``rng``: so that all who lost the same neighbour do not come back in step.
    """
    deaths = 0
    while True:
        began = time.monotonic()
        try:
            await task()
        except Exception as why:  # noqa: BLE001 - whatever it died of, the others live on
            deaths = 1 if time.monotonic() - began >= WELL_S else deaths + 1
            wait_s = _pause_s(deaths, rng)
            died(name, why, wait_s)
            await anyio.sleep(wait_s)
        else:
            return


# --- a tick in a process of its own -----------------------------------------------------------------------------------


async def _ticked(root: Path, agent: str, local: bool) -> Ticked:
    """Run one tick and return what it says.

    Raises:
        FleetError: it could not start, said nothing that can be read, or took too long.
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
        raise FleetError(f"no process could be started ({why.strerror})") from why
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
        raise FleetError(f"it took longer than {TICK_S_MAX:.0f} s and was ended")
    with suppress(msgspec.DecodeError):
        done = msgspec.json.decode(bytes(said), type=Ticked)
        if done.exit == child.returncode:  # else it tells of an error instead
            return done
    words_told = told.decode("utf-8", "replace").strip()[:400]
    raise FleetError(f"exit code {child.returncode}: {words_told or 'it said nothing'}")


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
                with anyio.move_on_after(TICK_END_S):
                    await child.wait()
        await child.aclose()


# --- the sidecar of a workspace ---------------------------------------------------------------------------------------


def run(workspace: Workspace, agent: str) -> bool:
    """Be an agent's sidecar until told to end; return False at once where there is one already."""
    now_ms, say = workspace.world.wall_ms, partial(_log, workspace.root, agent)
    sidecar = _Sidecar(
        root=str(workspace.root),
        agent=agent,
        looks=partial(looks, workspace),
        configured=lambda: config.load(workspace.root / config.FILE_NAME),
        marks=Memory(workspace.files, workspace.local).read,
        now_ms=now_ms,
        tick=partial(_ticked, workspace.root, agent),
        log=say,
        background=_background(workspace, agent, say),
    )
    try:
        with units.Seat(workspace.files, workspace.local, agent).held(now_ms()):
            anyio.run(sidecar.run)
    except BusyError:
        # systemd takes one that ends without a word for broken, and starts it again and again.
        units.Manager().notify(f"{units.READY}\nSTATUS=another one looks after {agent} already")
        return False
    return True


def _background(workspace: Workspace, agent: str, say: Callable[[str, str], None]) -> dict[str, Background]:
    """Return what else runs: live sync, in a room that somebody here agreed to."""
    from fleet.share.live import access

    try:
        if access.Access(workspace).agreed() is None:
            return {}
    except UsageError as unconfirmed:
        say("live", str(unconfirmed))
        return {}

    class Into(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            say("live", record.getMessage())

    live_log = logging.getLogger("fleet.live")
    live_log.addHandler(Into())
    live_log.setLevel(logging.INFO)
    live_log.propagate = False
    return {"live": partial(_live, workspace.root, agent)}


async def _live(root: Path, agent: str, changed: _Bell, arrived: Callable[[], None], stop: anyio.Event) -> None:
    """Keep one agent connected to the live room until told to stop; returns at once when ``[live]`` asks for nothing.

    Local lines go out as they are written, and what others wrote is on disk in a moment. A lost connection is made
    again, with back-off, and never raises. With ``serve``, this process is the server as well, on loopback, unless
    another one here is already.
    """
    from fleet.share.live import access
    from fleet.share.live.client import Live  # with the libraries of live sync

    workspace = Workspace(root)
    settings = access.Access(workspace).agreed()
    workspace.close()
    if settings is None:
        return
    live = Live(lambda: Workspace(root), agent, access.Where.named(settings), arrived)
    parts = [stop.wait(), _left(root), live.run(changed.wait), *([_serve_live(settings)] if settings.serve else [])]
    tasks = [asyncio.ensure_future(part) for part in parts]  # no group: who reads the log is told the error itself
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _left(root: Path) -> None:
    """Wait until somebody takes the yes to the room back."""
    state = Local(root / local.FOLDER / "local.db")
    try:
        while state.agreed(consent.LIVE):
            await anyio.sleep(_LEFT_S)
        logging.getLogger("fleet.live").info("live: nobody agrees to the room any more; it was left")
    finally:
        state.close()


async def _serve_live(settings: config.Live) -> None:
    """Serve on loopback; where somebody else here does already, look now and then whether they still do."""
    from fleet.serve.room import Rooms, Rules, serving
    from fleet.share.live import access

    token = consent.variable(settings.token_env)
    if len(token) < access.TOKEN_CHARS_MIN:
        token = secrets.token_hex(24)
    rooms = Rooms(Rules("127.0.0.1", token), os.urandom)
    while True:
        with suppress(OSError):
            async with serving(rooms, settings.port):
                with access.published(settings.port, token):
                    logging.getLogger("fleet.live").info("live: serving on %s:%d", rooms.rules.host, settings.port)
                    await anyio.sleep_forever()
        await anyio.sleep(_TAKEN_S)


def _log(root: Path, agent: str, event: str, what: str) -> None:
    """Add an event to ``.fleet/sidecar.log``."""
    if not root.is_dir():  # whoever took the folder away does not want it back for a log
        return
    at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    told = screening.redact(screening.strip_controls(what))[:600]
    LocalFolder(str(root)).add_line(
        LOG, {"at": at, "event": event, "agent": agent, "pid": str(os.getpid()), "what": told}
    )


ADDRESS = "127.0.0.1"
REQUEST_BYTES_MAX = 8 * 1024
_HEAD_ENDS = b"\r\n\r\n"
REQUEST_S = 5.0
CLIENTS_MAX = 16
HOSTS = frozenset({"127.0.0.1", "localhost"})

_PREFIX = "fleet_sidecar_"  # each is shown under its name, with this before it
_FIGURES = {
    "syncs_total": ("counter", "Syncs that reached the clan."),
    "sync_failures_total": ("counter", "Syncs that failed; they are tried again."),
    "lines_out_total": ("counter", "Lines sent."),
    "records_in_total": ("counter", "Lessons and discoveries that came in, new or changed."),
    "works_total": ("counter", "Times that this machine's files were brought up to date."),
    "restarts_total": ("counter", "Tasks that died and were started again."),
    "last_success_timestamp_seconds": ("gauge", "When the clan was last reached, seconds since 1970; 0: never."),
    "start_timestamp_seconds": ("gauge", "When this sidecar started, seconds since 1970."),
}


def _exposition(figures: Mapping[str, float], agent: str) -> str:
    """Return the figures in Prometheus' text format, version 0.0.4. An agent's name needs no escaping."""
    rows = []
    for name, (kind, told) in _FIGURES.items():
        rows += [f"# HELP {_PREFIX}{name} {told}", f"# TYPE {_PREFIX}{name} {kind}"]
        value = figures.get(name, 0)
        rows.append(f'{_PREFIX}{name}{{agent="{agent}"}} {value if isinstance(value, int) else format(value, ".3f")}')
    return "\n".join(rows) + "\n"


def _answer(request: bytes, port: int, figures: Mapping[str, float], agent: str) -> bytes:
    """Return the whole HTTP answer to the head of a request."""
    try:
        first, *headers = request.decode("ascii").split("\r\n")
        method, path, version = first.split(" ")
    except (UnicodeDecodeError, ValueError):
        return _reply(400, "Bad Request", "this is no HTTP request\n")
    hosts = [value.strip().lower() for name, _, value in (each.partition(":") for each in headers)
             if name.lower() == "host"]  # fmt: skip
    if not version.startswith("HTTP/1."):
        return _reply(400, "Bad Request", "HTTP/1.1 is spoken here\n")
    if len(hosts) != 1 or hosts[0] not in {f"{name}:{port}" for name in HOSTS}:
        return _reply(403, "Forbidden", "this answers to 127.0.0.1 and localhost only\n")
    if path.partition("?")[0] != "/metrics":
        return _reply(404, "Not Found", "the figures are at /metrics\n")
    if method != "GET":
        return _reply(405, "Method Not Allowed", "GET, and nothing else\n")
    return _reply(200, "OK", _exposition(figures, agent))


def _reply(code: int, reason: str, body: str) -> bytes:
    head = (
        f"HTTP/1.1 {code} {reason}\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n"
        f"Content-Length: {len(body.encode())}\r\nX-Content-Type-Options: nosniff\r\nConnection: close\r\n\r\n"
    )
    return f"{head}{body}".encode()


async def _serve_figures(figures: Mapping[str, float], agent: str, port: int) -> None:
    """Answer on loopback until cancelled.

    Raises:
        OSError: the port is taken.
    """
    places = asyncio.Semaphore(CLIENTS_MAX)

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, EOFError, TimeoutError), closing(writer):
            if places.locked():
                return
            async with places, asyncio.timeout(REQUEST_S):
                try:
                    head = (await reader.readuntil(_HEAD_ENDS)).removesuffix(_HEAD_ENDS)
                except asyncio.LimitOverrunError:
                    head = b""
                writer.write(_answer(head, port, figures, agent))
                await writer.drain()

    async with await asyncio.start_server(handle, ADDRESS, port, limit=REQUEST_BYTES_MAX) as server:
        await server.serve_forever()
