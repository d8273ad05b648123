"""Sidecar of a workspace: a process that watches the files, does the work that changes call for, and syncs.

It holds no state that would have to be saved: after a crash the next sidecar computes what is due from the files and
from ``poll.json``. The work is done by ticks, each in a process of its own, so that its memory is freed afterwards, and
a fetch that hangs can be ended.

Metrics for Prometheus are counted here, and served as plain text on loopback. The ``Host`` must be a name of loopback,
else a web page could read them by making its own name point here (DNS rebinding).
"""

import asyncio
import logging
import os
import random
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing, closing, suppress
from dataclasses import dataclass, field
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import msgspec
from watchfiles import awatch

from fleet.hosts import local
from fleet.hosts.local import LocalFolder
from fleet.model import names
from fleet.model.errors import BusyError, FleetError, UsageError
from fleet.model.pattern import PRIVATE
from fleet.serve import units
from fleet.serve.schedule import CLAN, LOGS, Fingerprints, Marks, Memory, Now, TickResult, digest, fingerprints
from fleet.share.live import access
from fleet.store import config, consent, homes
from fleet.store.database import Local
from fleet.store.workspace import Workspace
from fleet.text import screening

if TYPE_CHECKING:
    from websockets.asyncio.server import ServerConnection
    from websockets.http11 import Request, Response

LOG = "sidecar.log"
DEBOUNCE_S = 0.2
SPREAD_S = 0.3
"""Longest random delay: of several sidecars in a workspace the first does the work, and the others find it done."""
LAST_WORK_S = 1.2
"""Time that a stop waits for work that has begun or is due: a stop takes less than two seconds in all."""

PAUSE_S = 1.0
PAUSE_S_MAX = 60.0
HEALTHY_S = 60.0
"""Time after which a run counts as healthy: the next pause is a short one again."""

GROUP_MS = 60
POLL_S = 1.0
SLICE_S = 30.0
"""The longest single wait: a machine that slept must notice soon after."""

TICK_S_MAX = 900.0
_TAKEN_S = 2.0
_LEFT_S = 2.0


async def _next(event: asyncio.Event) -> None:
    """Wait until an event is set, and reset it. Many tasks may set it; only one may wait for it."""
    await event.wait()
    event.clear()


_Log = Callable[[str], None]
Background = Callable[[asyncio.Event, Callable[[], None], anyio.Event], Awaitable[None]]
"""A further task. Arguments: an event of changed local lines, a function to call when others' lines came, the stop."""


@dataclass(eq=False)
class _Sidecar:
    """One agent's sidecar, with the functions that it works with.

    Attributes:
        configured: reads ``fleet.toml``.
        tick: does what is due; with True, only what concerns this machine alone.
        background: further tasks by name.
    """

    root: str
    agent: str
    fingerprints: Callable[[], Fingerprints]
    configured: Callable[[], config.Config]
    marks: Callable[[], Marks]
    now_ms: Callable[[], int]
    tick: Callable[[bool], Awaitable[TickResult]]
    log: Callable[[str, str], None]
    background: dict[str, Background] = field(default_factory=dict)
    rng: random.Random = field(default_factory=random.Random)

    def __post_init__(self) -> None:
        self.figures = defaultdict[str, float](int, start_timestamp_seconds=self.now_ms() / 1000)
        self.settings = self.configured().sidecar
        self._files: Fingerprints = {}
        self._digest = ""
        self._changed_ms = 0  # when the files were last seen to change
        self._news = asyncio.Event()  # a file may have changed
        self._lines = asyncio.Event()  # line files of the clan have changed
        self._todo = asyncio.Event()  # work may be due
        self._due = asyncio.Event()  # the time of the next sync may have changed
        self._stop = anyio.Event()
        self._is_working = False
        self._how = ""  # watching or polling
        self._why_not = ""  # why the last due sync was not made

    async def run(self) -> None:
        """Run until SIGTERM, SIGINT or SIGHUP, or until ``stop`` is called."""
        self._look()
        async with anyio.create_task_group() as group:
            group.start_soon(self._until_a_signal)
            tasks: dict[str, Callable[[], Awaitable[None]]] = {
                "watch": self._watch,
                "notice": self._notice,
                "work": partial(self._tick_when_due, Marks.work_in_s, self._todo, local=True),
                "sync": partial(self._tick_when_due, Marks.sync_in_s, self._due, local=False),
            }
            if self.settings.metrics_port:
                port = self.settings.metrics_port
                tasks["metrics"] = lambda: _serve_figures(self.figures, self.agent, port)
            if every_s := _alive_every_s():
                tasks["alive"] = partial(_show_life, every_s)
            for name, background in self.background.items():
                tasks[name] = partial(background, self._lines, self._news.set, self._stop)
            for name, task in tasks.items():
                group.start_soon(self._keep_up, name, task)
            self.log("started", "")
            _notify(_READY)
            await self._stop.wait()
            _notify(_STOPPING)
            await self._finish()
            group.cancel_scope.cancel()
        self.log("stopped", "")

    def stop(self) -> None:
        """Stop soon; work that has begun is finished if that takes no longer than ``LAST_WORK_S``."""
        self._stop.set()

    async def _until_a_signal(self) -> None:
        handled = [signal.SIGTERM, signal.SIGINT]
        if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # nohup has it ignored
            handled.append(signal.SIGHUP)
        with anyio.open_signal_receiver(*handled) as signals:
            async for _ in signals:
                self.stop()

    async def _keep_up(self, name: str, task: Callable[[], Awaitable[None]]) -> None:
        """Run a task until it returns or is cancelled; restart it after an error.

        The pause is random, so that tasks that died of the same cause do not restart in step.
        """
        deaths = 0
        while True:
            began = time.monotonic()
            try:
                return await task()
            except Exception as why:  # noqa: BLE001 - the other tasks go on, whatever the error
                deaths = 1 if time.monotonic() - began >= HEALTHY_S else deaths + 1
                wait_s = _pause_s(deaths, self.rng)
                self.figures["restarts_total"] += 1
                self.log("restarted", f"{name} died ({type(why).__name__}: {why}); it starts again in {wait_s:.1f} s")
            await anyio.sleep(wait_s)

    # --- watching files ---------------------------------------------------------------------------------------------

    async def _watch(self) -> None:
        while not self._stop.is_set():
            until = time.monotonic() + self.settings.rescan_s
            if not self.settings.polling:
                try:
                    await self._listen(until)
                    continue
                except (OSError, RuntimeError) as why:  # too many watchers, not allowed, not there
                    self.log("no watcher", f"{why}; files are looked at every {POLL_S:g} s instead, no change is lost")
            self._log_how("polling")
            while time.monotonic() < until and not self._stop.is_set():
                self._news.set()
                await anyio.sleep(POLL_S)

    def _log_how(self, how: str) -> None:
        if how != self._how:
            self._how = how
            self.log(how, "")

    async def _listen(self, until: float) -> None:
        watched = _folders(Path(self.root))
        changes = awatch(
            *watched,
            watch_filter=None,
            debounce=GROUP_MS,
            stop_event=self._stop,
            yield_on_timeout=True,
            force_polling=False,
            recursive=False,
            ignore_permission_denied=True,
        )
        begun = asyncio.get_running_loop().call_soon(self._begin)  # runs as soon as the watcher waits
        try:
            async with aclosing(changes):
                async for batch in changes:
                    if batch:
                        self._news.set()
                    if time.monotonic() >= until or _folders(Path(self.root)) != watched:
                        return
        finally:
            begun.cancel()

    def _begin(self) -> None:
        """Log that the watcher has begun, and have the files looked at once: it reports only later changes."""
        self._log_how("watching")
        self._news.set()

    # --- this machine -----------------------------------------------------------------------------------------------

    async def _notice(self) -> None:
        """Look at the files whenever something may have changed, and at an interval, while the workspace is there."""
        while True:
            with anyio.move_on_after(SLICE_S):
                await _next(self._news)
            if not Path(self.root).is_dir():
                self.log("gone", "the workspace is not there any more; there is nothing left to look after")
                self.stop()
                return
            self._look()

    def _look(self) -> None:
        """Take the fingerprints of all files, and set the events for what has changed."""
        files = self.fingerprints()
        changed = _changed(self._files, files)
        if changed and self._files:
            self._changed_ms = self.now_ms()
        self._files, self._digest = files, digest(files)
        if _has_lines(changed):
            self._lines.set()
        if config.FILE_NAME in changed:
            self._read_settings()
        self._todo.set()
        self._due.set()

    def _read_settings(self) -> None:
        read = self.configured()
        if read.problems:
            self.log("settings", f"{'; '.join(read.problems)}. The former settings hold until the file can be read")
        else:
            self.settings = read.sidecar

    def _in_s(self, due_in_s: Callable[..., float]) -> float:
        return due_in_s(self.marks(), Now(self.now_ms(), self._digest, self._changed_ms), self.settings)

    # --- ticks ------------------------------------------------------------------------------------------------------

    async def _tick_when_due(self, due_in_s: Callable[..., float], maybe_due: asyncio.Event, *, local: bool) -> None:
        """Do a tick whenever one is due. If another one is due directly afterwards, pause first, with back-off."""
        repeated = 0
        while True:
            if (wait_s := self._in_s(due_in_s)) > 0:
                repeated = 0
                with anyio.move_on_after(min(wait_s, SLICE_S)):
                    await _next(maybe_due)
                continue
            await anyio.sleep(DEBOUNCE_S + self.rng.uniform(0, SPREAD_S))
            if self._in_s(due_in_s) > 0:
                continue
            await self._tick(local=local)
            self._look()
            repeated += 1
            if repeated > 1:  # a second tick may be due because somebody wrote during the first
                await anyio.sleep(_pause_s(repeated - 1, self.rng))

    def _count(self, done: TickResult, *, is_failed: bool) -> None:
        if done.synced is not None:
            self.figures["syncs_total"] += 1
            self.figures["lines_out_total"] += done.synced.lines_out
            self.figures["records_in_total"] += done.synced.records_in
            self.figures["last_success_timestamp_seconds"] = self.now_ms() / 1000
            self.log("synced", f"{done.synced.lines_out} lines out, {done.synced.records_in} records in")
        if is_failed:
            self.figures["sync_failures_total"] += 1
            self.log("not synced", "; ".join(done.errors))

    async def _tick(self, *, local: bool) -> None:
        failures = self.marks().failures
        self._is_working |= local
        try:
            done = await self.tick(local)
        except FleetError as why:
            self.log("tick failed", str(why))
            return
        finally:
            self._is_working &= not local
        if not local:
            self._count(done, is_failed=self.marks().failures > failures)
        if done.worked is not None:
            self.figures["works_total"] += 1
        if done.errors and (local or done.synced is not None):
            self.log("told", "; ".join(done.errors))
        if done.why not in ("", self._why_not):
            self.log("not shared", done.why)
        if done.why or done.synced is not None:
            self._why_not = done.why

    # --- the end ----------------------------------------------------------------------------------------------------

    async def _finish(self) -> None:
        """Wait for work that has begun, and do what is due. Nothing acknowledged depends on it: all is on the disk."""
        with anyio.move_on_after(LAST_WORK_S) as limit:
            while self._is_working:
                await anyio.sleep(0.02)
            self._look()
            if self._in_s(Marks.work_in_s) <= 0:
                await self._tick(local=True)
        if limit.cancelled_caught:
            self.log("cut short", "what was not done is done by the next sidecar, or by `fleet sync`")


def _changed(before: Fingerprints, after: Fingerprints) -> set[str]:
    return {path for path in before.keys() | after.keys() if before.get(path, []) != after.get(path, [])}


def _has_lines(paths: Iterable[str]) -> bool:
    return any(path.startswith(f"{CLAN}/") and path.endswith(".jsonl") for path in paths)


async def _show_life(every_s: float) -> None:
    while True:
        _notify(_ALIVE)
        await anyio.sleep(every_s)


def _folders(root: Path) -> list[str]:
    """Return the existing folders to watch: the root for the settings, the homes, and the clan's folders.

    Any folder among the homes with an agent's name counts, whether or not the register names it yet.
    """
    home, clan = Path(homes.Homes(root).current()), Path(CLAN)
    wanted = [root / each for each in (*home.parents, home, clan, *(clan / f"{log}.d" for log in LOGS))]
    with suppress(OSError):
        wanted += [path for path in (root / home).iterdir() if names.is_agent(path.name)]
    return sorted(str(path) for path in wanted if path.is_dir() and not path.is_symlink())


def _pause_s(deaths: int, rng: random.Random) -> float:
    """Return the pause after a number of deaths in a row, seconds. It doubles each time, and half of it is random."""
    longest = min(PAUSE_S_MAX, PAUSE_S * 2 ** min(deaths - 1, 16))
    return rng.uniform(longest / 2, longest)


# --- a tick in a process of its own -----------------------------------------------------------------------------------


async def _ticked(root: Path, agent: str, local: bool) -> TickResult:
    """Run one tick in a process and return its result; raise a FleetError where it has none in time."""
    # -P: else a folder of the project that is called fleet, or json, would be imported in place of ours.
    words = [sys.executable, "-P", "-m", "fleet", "poll", "--json", "--agent", agent, "--dir", str(root)]
    words += ["--local"] if local else []
    null = subprocess.DEVNULL
    try:
        with anyio.fail_after(TICK_S_MAX):  # it is killed where the wait for it ends
            # In a session of its own, since Ctrl-C in our terminal must reach only us.
            child = await anyio.run_process(words, stdin=null, check=False, cwd=root, start_new_session=True)
    except TimeoutError as why:
        raise FleetError(f"it took longer than {TICK_S_MAX:.0f} s and was ended") from why
    except OSError as why:
        raise FleetError(f"no process could be started ({why.strerror})") from why
    with suppress(msgspec.DecodeError):
        done = msgspec.json.decode(child.stdout, type=TickResult)
        if done.exit == child.returncode:  # else the child printed an error's document
            return done
    message = child.stderr.decode("utf-8", "replace").strip()[:400]
    raise FleetError(f"exit code {child.returncode}: {message or 'it said nothing'}")


# --- the sidecar of a workspace ---------------------------------------------------------------------------------------


def run(workspace: Workspace, agent: str) -> bool:
    """Run an agent's sidecar until it is stopped; return False at once where there is one already."""
    now_ms, log = workspace.world.wall_ms, partial(_log, workspace.root, agent)
    live = partial(_live, workspace.root, agent, partial(log, "live"))
    sidecar = _Sidecar(
        root=str(workspace.root),
        agent=agent,
        fingerprints=partial(fingerprints, workspace),
        configured=lambda: config.load(workspace.root / config.FILE_NAME),
        marks=Memory(workspace).read,
        now_ms=now_ms,
        tick=partial(_ticked, workspace.root, agent),
        log=log,
        background={"live": live},
    )
    try:
        with units.Seat(workspace.files, workspace.local, agent).held(now_ms()):
            anyio.run(sidecar.run)
    except BusyError:
        # systemd takes a service that ends without a notification for broken, and restarts it for ever.
        _notify(f"{_READY}\nSTATUS=another one looks after {agent} already")
        return False
    return True


async def _live(
    root: Path, agent: str, log: _Log, changed: asyncio.Event, arrived: Callable[[], None], stop: anyio.Event
) -> None:
    """Keep one agent connected to the live room until stopped; return at once if nobody here agreed to a room.

    A lost connection never raises, and is made again with back-off. With ``serve`` in the settings, this process also
    is the server on loopback, unless another process on this machine is.
    """
    with closing(Workspace(root)) as workspace:
        try:
            settings = access.Access(workspace).agreed()
        except UsageError as unconfirmed:
            log(str(unconfirmed))
            return
    if settings is None:
        return
    from fleet.share.live.client import Live  # with the libraries of live sync

    where = access.Where.named(settings)
    live = Live(lambda: Workspace(root), agent, where, arrived, log, private_among=_private_among)
    parts = [stop.wait(), _left(root, log), live.run(partial(_next, changed))]
    if settings.serve:
        parts.append(_serve_live(settings, log))
    tasks = [asyncio.ensure_future(part) for part in parts]  # no task group: it would wrap the error of a task
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _private_among(workspace: Workspace, ids: Sequence[str]) -> set[str]:
    """Return which of some lessons an agent here keeps private: a checkout may have put their lines back."""
    notes = (note for agent in workspace.agents_with_notes() for note in workspace.notes(agent).some(ids))
    return {note.id for note in notes if note.scope == PRIVATE}


async def _left(root: Path, log: _Log) -> None:
    with closing(Local(root / local.FOLDER / "local.db")) as state:
        while state.agreed(consent.LIVE):
            await anyio.sleep(_LEFT_S)
        log("live: nobody agrees to the room any more; it was left")


async def _serve_live(settings: config.Live, log: _Log) -> None:
    """Serve the live room on loopback; while the port is taken, try again at an interval."""
    from fleet.serve.room import Rooms, Rules, serving

    token = consent.variable(settings.token_env)
    if len(token) < access.TOKEN_CHARS_MIN:
        token = secrets.token_hex(24)
    rooms = Rooms(Rules("127.0.0.1", token), os.urandom)
    while True:
        with suppress(OSError):
            async with serving(rooms, settings.port):
                with access.published(settings.port, token):
                    log(f"live: serving on {rooms.rules.host}:{settings.port}")
                    await anyio.sleep_forever()
        await anyio.sleep(_TAKEN_S)


def _log(root: Path, agent: str, event: str, what: str) -> None:
    text = screening.redact(screening.strip_controls(what))
    LocalFolder(str(root)).log(LOG, event, text, agent=agent, pid=str(os.getpid()))


# --- systemd, where it started this process (sd_notify(3)) ------------------------------------------------------------

_READY, _ALIVE, _STOPPING = "READY=1", "WATCHDOG=1", "STOPPING=1"


def _notify(state: str) -> None:
    """Notify systemd of a state, if it started this process: ``NOTIFY_SOCKET`` is a path, or an abstract ``@`` name."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address.startswith(("/", "@")):
        return
    with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.connect(f"\0{address[1:]}" if address.startswith("@") else address)
        manager.sendall(state.encode())


def _alive_every_s() -> float:
    """Return the interval of signs of life, seconds: half of ``WATCHDOG_USEC``; 0 for none."""
    if os.environ.get("WATCHDOG_PID", "") not in ("", str(os.getpid())):
        return 0.0
    wanted = os.environ.get("WATCHDOG_USEC", "")
    return int(wanted) / 2_000_000 if wanted.isdecimal() else 0.0


# --- figures for Prometheus -------------------------------------------------------------------------------------------

ADDRESS = "127.0.0.1"
REQUEST_S = 5.0
HOSTS = frozenset({"127.0.0.1", "localhost"})

_PREFIX = "fleet_sidecar_"
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
    for name, (kind, text) in _FIGURES.items():
        rows += [f"# HELP {_PREFIX}{name} {text}", f"# TYPE {_PREFIX}{name} {kind}"]
        value = figures.get(name, 0)
        rows.append(f'{_PREFIX}{name}{{agent="{agent}"}} {value if isinstance(value, int) else format(value, ".3f")}')
    return "\n".join(rows) + "\n"


async def _serve_figures(figures: Mapping[str, float], agent: str, port: int) -> None:
    from websockets.asyncio.server import serve  # it answers plain requests, too

    names = {f"{name}:{port}" for name in HOSTS}

    def answer(caller: "ServerConnection", request: "Request") -> "Response":
        called = [each.lower() for each in request.headers.get_all("Host")]
        if len(called) != 1 or called[0] not in names:
            return caller.respond(HTTPStatus.FORBIDDEN, "this answers to 127.0.0.1 and localhost only\n")
        if request.path.partition("?")[0] != "/metrics":
            return caller.respond(HTTPStatus.NOT_FOUND, "the figures are at /metrics\n")
        return caller.respond(HTTPStatus.OK, _exposition(figures, agent))

    logging.getLogger("websockets.server").setLevel(logging.CRITICAL)  # a bad request is no event of ours
    async with serve(
        lambda caller: caller.close(), ADDRESS, port, process_request=answer, open_timeout=REQUEST_S, server_header=None
    ) as server:
        await server.serve_forever()
