"""Status of a workspace, and its checks, which tell what is wrong, what follows, and what a person can do.

The texts are in ``data/findings.toml``. Nothing here deletes what anybody wrote: a database is derived from the line
files and can be rebuilt; all other advice is to look.
"""

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from functools import cache, partial
from pathlib import Path
from shutil import which
from sqlite3 import Error
from typing import Any, NamedTuple

from crdt import clock
from fleet.app import finding, reflecting, reviewing, session_end, setup, sharing, starting
from fleet.hosts.install import INSTALLABLE, Calls
from fleet.hosts.local import LocalFolder
from fleet.hosts.payloads import CONTEXT_CHARS_MAX
from fleet.learn.counting import CountedLog, reconcile_all
from fleet.learn.importer import LogPage
from fleet.model.errors import FleetError
from fleet.model.names import GUEST
from fleet.reflect import auto_reflect, records
from fleet.reflect.auto_reflect import Scratchpad
from fleet.reflect.inbox import Inbox
from fleet.reflect.promotion import AgentMemory
from fleet.reflect.records import Records
from fleet.share.exchange import stale_warning
from fleet.share.git import Address, Repository
from fleet.share.notices import Notices
from fleet.share.outgoing import Outbox
from fleet.store import config, git, homes
from fleet.store.database import TROUBLE, Database, is_damage
from fleet.store.files import is_no_folder, is_plain
from fleet.store.ingest import clan_sources
from fleet.store.lines import KINDS, Kind
from fleet.store.runs import Runs
from fleet.store.semantic import Embeddings
from fleet.store.tree import MISNAMED
from fleet.store.workspace import Workspace
from fleet.text import tables
from fleet.text.screening import counted, listed

_LEVELS = ("ok", "note", "warning", "error")
"""Note: nothing is harmed. Warning: something stays undone. Error: something fails."""

_WIDE_BYTES = 256 * 1024
"""Size from which a joined record slows down every sync: very many writers have worded the lesson anew."""
_FILES_MAX = 200_000
_FREE_BYTES_MIN = 256 * 1024
"""Free space that a sync's files need. A rebuild of the database needs as much as the database has, on top."""
_SHOWN_MAX = 5
_GIT_S = 20.0
_GIT_MIN = (2, 29)  # `init --object-format`, `fetch --no-auto-maintenance --no-write-fetch-head`
_CLIENT_S = 10.0
_COUNT_S = 1.0


# --- status ---------------------------------------------------------------------------------------------------------


def status(workspace: Workspace, agent: str) -> dict[str, Any]:
    """Return everything that ``fleet status --json`` shows. The logs are counted first, where they can be."""
    with suppress(FleetError):
        reconcile_all(workspace, _COUNT_S)
    out, compared = Outbox(workspace).waiting(), reflecting.current_clusters(workspace)
    log = CountedLog(workspace, agent)
    return {
        "workspace": str(workspace.root),
        "agent": agent,
        "replica": workspace.replica_name(agent),
        "remote": sharing.Membership(workspace).shown(),
        "branch": workspace.config.share.branch,
        "last_sync": workspace.state.get("last_sync"),
        "sync_failed": workspace.state.get("sync_failed"),
        "fetched": workspace.state.get("fetched"),
        "stale": stale_warning(workspace),
        "paused": workspace.state.paused(workspace.wall()),
        "clock": workspace.clock.wrong(),
        "patterns": finding.counted(workspace, compared),
        "discoveries": workspace.discoveries.count(),
        "waiting": {"lines": out.count, "paths": {path: len(lines) for path, lines in sorted(out.lines.items())}},
        "withheld": [each._asdict() for each in out.withheld],
        "unfilled": len(log.to_state()),
        "edited": [each.pattern for each in log.edited()],
        "not_taken": [
            {"path": each.path, "line": each.line, "reason": each.reason, "text": each.text}
            for each in LogPage(workspace, agent).left_out()
        ],
        "memory": AgentMemory(workspace, agent).standing().as_json(),
        "review": {"pairs": len(compared.likely), "contradictions": len(compared.opposed)},
        "inbox": Inbox(workspace).count()._asdict(),
        "trust": {
            "blocked": [each._asdict() for each in workspace.trust.blocked()],
            "waiting": [each.as_json() for each in reviewing.questions(workspace)],
        },
        "guards": [each._asdict() for each in starting.Guards(workspace).all()],
        "refused": len(workspace.db.refused()),
        "quarantined": [
            {"at": kept.at, "path": kept.path, "line": kept.number, "reason": kept.reason, "bytes": len(kept.raw)}
            for kept in workspace.quarantine.all()
        ],
        "held": len(workspace.db.future_ids()),
        "carried": len(workspace.db.carried()),
        "held_files": [
            {"path": path, "reason": why}
            for path, why in sorted((workspace.tree.ignored() | _misplaced(workspace)).items())
        ],
        "replicas": _replicas(workspace),
    }


def _replicas(workspace: Workspace) -> list[dict[str, str]]:
    """Return the replicas that wrote a lesson known here, or have a shard here, with the newest stamp of each."""
    here = {each.name for each in workspace.replicas().replicas}
    newest = workspace.db.newest_by()
    for source in clan_sources(workspace.clan):
        if source.path != source.kind.edition:
            newest.setdefault(source.file.stem, "")
    return [
        {"replica": name, "last": stamp, "where": "here" if name in here else "elsewhere"}
        for name, stamp in sorted(newest.items())
    ]


# --- checks ---------------------------------------------------------------------------------------------------------


class _Finding(NamedTuple):
    """Result of one check; ``do`` is what a person can do about it, never a step that could lose something."""

    check: str
    level: str
    what: str
    means: str = ""
    do: str = ""
    fixed: bool = False


def examine(workspace: Workspace, agent: str, *, fix: bool = False) -> tuple[str, list[_Finding]]:
    """Return the worst level of the findings that were not fixed, and all findings. A failed check is a finding, too.

    The text at a session's start is measured for ``agent``; if that is "", for the default agent. ``fix`` mends what
    can be mended without a loss.
    """
    found = [*_findings(_git(workspace)), *_findings(_databases(workspace, fix=fix))]
    if any(each.check == "state" and each.level == "error" and not each.fixed for each in found):
        return "error", found  # any query makes a damaged database anew, and a check without --fix changes nothing
    for check in (
        _access(workspace),
        _settings(workspace),
        _clock(workspace),
        _lines(workspace),
        _rows(workspace, fix=fix),
        _ignores(workspace, fix=fix),
        _plans(workspace),
        _embedding(workspace),
        _hosts(workspace, agent),
        _reflection(workspace, agent),
        _webhook(workspace),
    ):
        found += _findings(check)
    return max((each.level for each in found if not each.fixed), key=_LEVELS.index, default="ok"), found


_texts = cache(partial(tables, str(Path(__file__).with_name("data") / "findings.toml")))


def _trouble(kind: str, what: str, **fields: str | bool) -> _Finding:
    """Return a finding with the texts that the data file has for its kind; ``fields`` replace them."""
    return _Finding(**{"check": kind, "what": what, **_texts()[kind], **fields})


def _findings(check: Iterator[_Finding]) -> Iterator[_Finding]:
    """Yield the findings of one check; if it fails, those until then, and one about the failure."""
    try:
        yield from check
    except (FleetError, OSError, Error) as why:
        yield _trouble("checkup", f"one check could not be made: {why}")


def _named(workspace: Workspace, paths: list[Path]) -> str:
    return listed([os.path.relpath(path, workspace.root) for path in paths])


# --- the workspace's own files --------------------------------------------------------------------------------------


def _git(workspace: Workspace) -> Iterator[_Finding]:
    version = git.output(workspace.root, "--version", wait_s=_GIT_S)
    number = re.search(r"(\d+)\.(\d+)", version)
    if which("git") is None:
        what = "git is not installed, or not on the PATH"
    elif not version:  # as on macOS without its developer tools
        what = "git does not run: `git --version` shows why"
    elif number and (int(number[1]), int(number[2])) < _GIT_MIN:
        what = f"{version} lacks what a sync needs"
    else:
        yield _Finding("git", "ok", version)
        return
    yield _trouble("git", what, level="error" if workspace.config.share.remote else "note")


def _databases(workspace: Workspace, *, fix: bool) -> Iterator[_Finding]:
    """Yield findings about the database files. This check is the first, since any query rebuilds a damaged database."""
    path = workspace.db.database.path
    if path is None or not path.exists():
        yield _Finding("state", "ok", "no database yet; it is made when it is needed")
    elif trouble := workspace.db.database.integrity_error():
        if fix:
            with workspace.locked():
                workspace.db.database.delete()
        yield _trouble("state", f"{path.name} is damaged: {trouble}", fixed=fix)
    else:
        yield _Finding("state", "ok", f"{path.name} is whole")
    if trouble := Database(workspace.state.path).integrity_error():
        yield _trouble("local", f"local.db is damaged: {trouble}")


def _misplaced(workspace: Workspace) -> dict[str, str]:
    """Return paths that cannot be used, with the reason: a link or special file stands there, or a misnamed shard."""
    agents = workspace.agents_here()
    shards = [workspace.clan, *(workspace.clan / f"{kind.name}.d" for kind in KINDS)]
    folders = [*shards, workspace.root / workspace.place, *map(workspace.home, agents)]
    odd = [path for path in folders if is_no_folder(path)]
    files = [path for folder in shards if folder not in odd and folder.is_dir() for path in folder.glob("*.jsonl")]
    files += [log for each in agents if os.path.lexists(log := CountedLog(workspace, each).log_file())]
    odd += [path for path in files if not is_plain(path) and path.parent not in odd]
    why = "a link, or no plain file or folder: nothing is read or written there until one is in its place"
    misnamed = [path for path in files if path.parent in shards[1:] and not Kind.of(f"{path.parent.name}/{path.name}")]
    reasons = dict.fromkeys(misnamed, MISNAMED) | dict.fromkeys(odd, why)
    return {path.relative_to(workspace.root).as_posix(): reason for path, reason in reasons.items()}


def _files(workspace: Workspace) -> Iterator[Path]:
    """Yield the files and links of the workspace, without fleet's own repository, which git checks."""
    yield from [workspace.config_file] if os.path.lexists(workspace.config_file) else ()
    for top in (workspace.clan, workspace.root / workspace.place, workspace.local):
        for folder, folders, names in os.walk(top):
            if Path(folder) == workspace.local:
                folders[:] = [name for name in folders if name != "git"]
            yield from (Path(folder) / name for name in sorted(names))
            yield from (Path(folder) / name for name in folders if (Path(folder) / name).is_symlink())


def _access(workspace: Workspace) -> Iterator[_Finding]:
    files = list(_files(workspace))[:_FILES_MAX]
    links = [path for path in files if path.is_symlink()]
    plain = [path for path in files if not path.is_symlink()]
    folders = {path.parent for path in plain} | {workspace.root}
    unread = [path for path in plain if not os.access(path, os.R_OK) and path.exists()]  # a temporary file may be gone
    tops = (workspace.clan, workspace.root / workspace.place, workspace.local)
    unread += [top for top in tops if top.is_dir() and not os.access(top, os.R_OK | os.X_OK)]
    unwritten = [path for path in (*plain, *sorted(folders)) if not os.access(path, os.W_OK) and path.exists()]
    if links:
        yield _trouble("links", f"symbolic links: {_named(workspace, links)}")
    if unread:
        yield _trouble("unread", f"cannot be read: {_named(workspace, unread)}")
    if unwritten:
        yield _trouble("unwritten", f"cannot be written: {_named(workspace, unwritten)}")
    free = shutil.disk_usage(workspace.root).free
    size = sum(path.stat().st_size for path in workspace.local.glob("state-*.db") if path.exists())
    if free < _FREE_BYTES_MIN + size:
        yield _trouble("full", f"{free:,} bytes are free where {workspace.root} lies; the database takes {size:,}")
    if not unread and not unwritten:
        yield _Finding("rights", "ok", f"{len(plain):,} files can be read and written")


def _settings(workspace: Workspace) -> Iterator[_Finding]:
    for problem in workspace.config.problems:
        yield _trouble("config", problem)
    for wrong in setup.wrong_values({each.name: each.value for each in config.settings(workspace.config_file)}):
        yield _trouble("config", f"{workspace.config_file}: {wrong}")
    if unknown := Scratchpad(Runs(workspace).page(auto_reflect.FILE).text).directive()[1]:
        yield _trouble("directive", unknown)
    if Repository(workspace.root).has_unpulled(config.FILE_NAME) and workspace.config_file.exists():
        yield _trouble("unpulled", f"the project has another {config.FILE_NAME}, which is not pulled yet")
    for _, _, files in workspace.files_in_old_homes():
        shown = _named(workspace, files)
        yield _trouble("homes", f"{shown}: left where the agents' homes were before {workspace.place}/")


def _clock(workspace: Workspace) -> Iterator[_Finding]:
    if wrong := workspace.clock.wrong():
        yield _trouble("clock", wrong)
    elif workspace.clock.is_ahead():
        yield _trouble("ahead", "stamps that were issued here lie more than a day ahead of the clock")
    else:
        yield _Finding("clock", "ok", f"{workspace.wall()[:16].replace('T', ' ')}Z agrees with all that was read")


def _lines(workspace: Workspace) -> Iterator[_Finding]:
    if refused := len(workspace.db.refused()):
        yield _trouble("lines", f"{counted(refused, 'line')} cannot be read")
    elif kept := len(workspace.quarantine.all()):
        what = f"every line of the files here can be read; {counted(kept, 'line')} that could not lie in quarantine"
        yield _trouble("lines", what, level="note")
    else:
        yield _Finding("lines", "ok", "every line can be read")
    for each, size in workspace.patterns.larger_than(_WIDE_BYTES)[:_SHOWN_MAX]:
        yield _trouble("wide", f"the record of {each} takes {size:,} bytes: very many have worded it anew")
    if withheld := Outbox(workspace).waiting().withheld:
        many, first = counted(len(withheld), "line"), withheld[0]
        yield _trouble("withheld", f"{many} may not leave; first {first}")
    if failed := workspace.state.get("sync_failed"):
        yield _trouble("sync", f"the last one failed: {failed}")


def _rows(workspace: Workspace, *, fix: bool) -> Iterator[_Finding]:
    """Yield findings from a rebuilt second database. What differs is compared again while nobody else can write."""
    path = workspace.db.database.path
    if path is None or not os.access(path, os.R_OK | os.W_OK) or not os.access(path.parent, os.W_OK):
        return  # reported under "rights"
    if which("git") is None:
        return  # reported under "git": what the clan has cannot be read, and so not compared
    try:
        with workspace.lock("doctor"):  # one process at a time builds the second file
            if wrong := workspace.db.differences():
                with workspace.locked():
                    wrong = workspace.db.differences()
        if wrong and workspace.db.lacks_lines():
            yield _trouble("unsaid", f"no file says any more what {path.name} knows: {listed(wrong)}", fixed=fix)
            if not fix:
                return
            with workspace.lock("doctor"), workspace.writing(workspace.agent()) as writer:
                # First: a database that is made anew knows only what files say.
                workspace.db.put_back(workspace.db.shards(writer.name))
                wrong = workspace.db.differences()
    except TROUBLE as why:
        if not is_damage(why):
            raise
        wrong = [str(why) or type(why).__name__]
    if not wrong:
        yield _Finding("rows", "ok", "every row is what its lines say")
        return
    if fix:
        with workspace.locked():
            workspace.db.database.delete()
    yield _trouble("rows", f"rows of {path.name} are not what their lines say: {listed(wrong)}", fixed=fix)


def _ignores(workspace: Workspace, *, fix: bool) -> Iterator[_Finding]:
    if not git.output(workspace.root, "rev-parse", "--show-toplevel", wait_s=_GIT_S):
        return
    tracked = _tracked(workspace)
    state = [path for path in tracked if path.startswith(".fleet/")]
    if state:
        yield _trouble("tracked", f"git tracks {listed(state)}")
    has_scratchpad = any((workspace.root / name).exists() for name in (".agents.local.md", ".agents"))
    wanted = config.IGNORED_LOCAL if has_scratchpad else config.IGNORED_LOCAL[:1]
    if missing := config.ignore(workspace.files, wanted, dry_run=not fix):
        yield _trouble("ignore", f".gitignore lacks {', '.join(missing)}", fixed=fix)
    own = homes.ignores(workspace.place) if setup.hides_homes(workspace) else ()
    if missing := config.ignore(workspace.files, own, dry_run=not fix, shared=True):
        yield _trouble("unhidden", f".gitignore has files of agents' own, and lacks {listed(missing)}", fixed=fix)
    if published := [path for path in tracked if path not in state]:
        yield _trouble("published", f"git tracks {listed(published)}, written by fleet")


def _plans(workspace: Workspace) -> Iterator[_Finding]:
    if aside := sorted(workspace.local.glob("runs/*.plan-aside")):
        yield _trouble("aside", f"{_named(workspace, aside)} was made on another machine, and was not carried out")


def _tracked(workspace: Workspace) -> list[str]:
    """Return the files of fleet that the project's git tracks, except ``clan-learnings/``, where that may be wanted."""
    listed = git.output(workspace.root, "ls-files", "-z", "--", ".fleet", workspace.place, wait_s=_GIT_S).split("\0")
    own = tuple(f"{workspace.own_path(agent)}/" for agent in workspace.agents_here())

    def is_ours(path: str) -> bool:
        home = next(filter(path.startswith, own), "")
        return path.startswith(".fleet/") or bool(home and homes.is_own(path.removeprefix(home).split("/")))

    return [path for path in listed if is_ours(path)]


def _embedding(workspace: Workspace) -> Iterator[_Finding]:
    embeddings = Embeddings(workspace)
    state, what = embeddings.state, embeddings.hint
    if state == "unagreed":
        named = Address(what).redacted
        yield _trouble(
            "unagreed", f"fleet.toml names {named} for embeddings, and nobody on this machine agreed to that"
        )
    elif state == "missing":
        missing = "no embedding is here: lessons are found by their words, and not by what they mean"
        yield _trouble("semantic", missing, do=what)
    else:
        yield _Finding("semantic", "ok", f"search by meaning is {state}")


def _reflection(workspace: Workspace, agent: str) -> Iterator[_Finding]:
    """Yield findings about the reflector, the day's cost, and rejected answers."""
    choice = session_end.Choice(workspace)
    settings, unagreed = choice.settings, choice.unagreed()
    if settings.off:
        yield _trouble("reflection-off", "turned off")
        return
    if unagreed:
        yield _trouble("reflector", f"{unagreed[:200]} is named and nobody agreed")
        return
    if idle := settings.unread_idle(os.environ):
        yield _trouble("idle", idle)
    if choice.trouble and choice.named != session_end.RULES:
        yield _trouble("deferred", choice.trouble)
        return
    if choice.trouble:
        yield _trouble("limits", choice.trouble)
    spent = records.spent(workspace, workspace.wall()[:10])
    summary = f"by {choice.named}; today ${spent:.2f} of ${settings.daily_usd:g}"
    if agent := agent or workspace.default_agent():
        ledger = Records(workspace, agent)
        if banned := sum(each.line == records.RAN and "banned word" in each.why for each in ledger.read()):
            yield _trouble("banned", f"{summary}; {counted(banned, 'reflection')} had a banned word")
            return
        if number := len(ledger.deferred()):
            summary += f"; {number:,} deferred to a later day"
        if number := len(ledger.interrupted()):
            summary += f"; {number:,} not finished, see `fleet records`"
    yield _Finding("reflection", "ok", summary)


def _webhook(workspace: Workspace) -> Iterator[_Finding]:
    if host := Notices(workspace).unagreed():
        yield _trouble("webhook", f"messages to {host} are configured, and nobody on this machine agreed to that")


# --- agent hosts ------------------------------------------------------------------------------------------------------


def _hosts(workspace: Workspace, agent: str) -> Iterator[_Finding]:
    """Yield findings about the client, its hooks, their last call, and the size of a session's start."""
    yield _clients()
    yield _hooks(workspace)
    marks = LocalFolder(str(workspace.root)).fired()
    if marks:
        newest = max(marks, key=lambda name: marks[name])
        at = clock.nearest(marks[newest])[:16].replace("T", " ")
        yield _Finding("fired", "ok", f"last {newest}, {at}Z; what went wrong stands in .fleet/log")
    else:
        yield _trouble("fired", "no hook has fired here yet")
    if not (agent := agent or workspace.default_agent()):
        logs = ", ".join(
            sorted(path.parent.name for path in workspace.root.glob(f"{workspace.place}/*/corrections.md"))
        )
        fields = {"level": "warning", "means": f"{workspace.place}/ has logs of {logs}: .fleet is new, or was deleted"}
        yield _trouble("unnamed", "no agent is named here yet", **(fields if logs else {}))
        return
    if files := workspace.files_of(workspace.home(GUEST)):
        yield _trouble("guest", f"logged while nobody was named: {_named(workspace, files)}")
    size = len(starting.SessionStart(workspace, agent).make().text)
    what = f"{agent} starts a session with {size:,} characters"
    yield _trouble("context", what) if size > CONTEXT_CHARS_MAX else _Finding("context", "ok", what)


def _clients() -> _Finding:
    """Return a finding with the agent hosts on the PATH, and the version that each of them reports."""
    paths = {host.title: path for host in INSTALLABLE.values() if (path := which(host.client))}
    if not paths:
        return _trouble("client", f"none of {', '.join(host.title for host in INSTALLABLE.values())} is on the PATH")
    found = []
    for title, path in paths.items():
        command = [path, "--version"]
        try:
            done = subprocess.run(
                command, stdin=subprocess.DEVNULL, capture_output=True, timeout=_CLIENT_S, check=False
            )
        except (OSError, subprocess.TimeoutExpired) as why:
            return _trouble("client", f"{title} does not tell its version ({type(why).__name__})", means="")
        version = done.stdout.decode("utf-8", "replace").strip().split("\n")[0][:80]
        found.append(f"{title} {version or 'of no version'}")
    return _Finding("client", "ok", ", ".join(found))


def _hooks(workspace: Workspace) -> _Finding:
    found = {name: Calls.of(workspace.root, name) for name in INSTALLABLE}
    unreadable = next(filter(None, (calls.unreadable for calls in found.values())), "")
    calling = {name: calls for name, calls in found.items() if calls.where}
    if not calling and not unreadable:
        do = f"`fleet install claude-code` sets them up; also {', '.join([*INSTALLABLE][1:])}"
        return _trouble("hooks", "no settings call fleet", do=do)
    for name, (where, missing, off, _) in calling.items():
        if off:
            return _trouble("off", f"{off} turns every hook off")
        if missing:
            what = f"the settings call fleet, but not for {', '.join(sorted(missing))}"
            return _trouble("missing", what, do=f"`fleet install {name}`")
        if len(where) > 1:
            return _trouble("twice", f"called by {' and '.join(where)}")
    if calling and which("fleet") is None:
        what = "the settings call fleet, and it is not on the PATH"
        return _trouble("path", "; ".join(filter(None, [what, unreadable])))
    if unreadable:
        return _trouble("unreadable", unreadable)
    notes = [INSTALLABLE[name].note for name in calling if INSTALLABLE[name].note]
    return _Finding(
        "hooks", "ok", "; ".join([f"called by {' and '.join(calls.where[0] for calls in calling.values())}", *notes])
    )
