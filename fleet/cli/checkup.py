"""What ``fleet doctor`` looks at beyond the files: git, the fetched tree, the log, and what is kept back."""

import hashlib
import os
import platform
import re
import shutil
import time
from collections.abc import Iterator

from fleet.cli import desk, hosts, setup
from fleet.keep import checkup
from fleet.keep.checkup import Finding
from fleet.keep.errors import FleetError
from fleet.keep.reading import KINDS
from fleet.keep.workspace import Workspace

GIT_WANTED = (2, 36)
"""From here on git knows ``core.fsync``: after a power cut its objects are whole."""
_GIT_S = 20.0


def examine(workspace: Workspace, *, fix: bool, online: bool) -> list[Finding]:
    """Return everything that was found. A check that cannot be made is a finding, too."""
    found = [*_python(), *_git(workspace)]
    for each in checkup.checks(workspace, fix=fix):
        found += _made(each)
    if any(f.check == "state" and f.level == "error" and not f.fixed for f in found):
        return found  # all else needs the database
    for each in (
        _base(workspace, fix=fix),
        _ignores(workspace, fix=fix),
        _log(workspace),
        _kept_back(workspace),
        hosts.findings(workspace),
    ):
        found += _made(each)
    if online:
        found += _online(workspace)
    return found


def _made(check: Iterator[Finding]) -> list[Finding]:
    """Make one check. What it found before it failed stays."""
    found = []
    try:
        for each in check:
            found.append(each)  # noqa: PERF402
    except (FleetError, OSError) as why:
        found.append(
            Finding(
                "checkup",
                "error",
                f"one check could not be made: {why}",
                "what it would have found is not known",
                "mend the findings above first, then run `fleet doctor` again",
            )
        )
    return found


def _python() -> Iterator[Finding]:
    yield Finding("python", "ok", f"Python {platform.python_version()}")


def _git(workspace: Workspace) -> Iterator[Finding]:
    if shutil.which("git") is None:
        needed = bool(workspace.config.share.remote)
        yield Finding(
            "git",
            "error" if needed else "note",
            "git is not installed, or not on the PATH",
            "logging and reading work; nothing can be shared",
            "install git",
        )
        return
    said = asked(workspace, "--version")
    version = tuple(map(int, re.findall(r"\d+", said)[:2]))
    if version < GIT_WANTED:
        yield Finding(
            "git",
            "note",
            f"{said} is older than {'.'.join(map(str, GIT_WANTED))}",
            "after a power cut the local copy of the remote may have to be fetched anew; fleet does that by itself",
            "a newer git makes it rarer",
        )
    else:
        yield Finding("git", "ok", said)


def asked(workspace: Workspace, *arguments: str) -> str:
    """Return what a git says that is asked in the workspace, "" when it fails."""
    from fleet.share import gitprocess

    env = gitprocess.environment(os.environ, _GIT_S)
    try:
        until = time.monotonic() + _GIT_S
        done = gitprocess.run((*gitprocess.GIT, *arguments), folder=workspace.root, env=env, until=until)
    except (OSError, gitprocess.GitTimeout, gitprocess.GitTooMuch):
        return ""
    return done.out.decode("utf-8", "surrogateescape").strip("\n") if done.code == 0 else ""


def _base(workspace: Workspace, *, fix: bool) -> Iterator[Finding]:
    """Compare what we believe the remote holds with the commit that we believe it is at."""
    mark = workspace.state.get("mark")
    if not mark:
        yield Finding("base", "ok", "the next sync fetches the whole tree")
        return
    wanted = {}
    for entry in filter(None, asked(workspace, "--git-dir", ".fleet/git", "ls-tree", "-r", "-z", mark).split("\0")):
        about, _, path = entry.partition("\t")
        wanted[path] = about.split()[2]
    if not wanted:
        yield Finding("base", "ok", "nothing to compare it with; a sync that finds it wrong fetches it anew")
        return
    held = [path for kind in KINDS for path in workspace.store.paths(kind, workspace.store.base)]
    wrong = [path for path in held if _blob(workspace.store.read_base(path)) != wanted.get(path)]
    wrong += [path for path in wanted if _is_lines(path) and path not in held]
    if not wrong:
        yield Finding("base", "ok", f"{desk.counted(len(held), 'file')} as fetched")
        return
    if fix:
        with workspace.disk.lock(workspace.local / "locks" / "sync.lock"), workspace.locked():
            workspace.state.put(mark="")
    yield Finding(
        "base",
        "error",
        f"what was noted of the remote is not what was fetched: {', '.join(sorted(wrong)[:5])}",
        "a line might wrongly count as sent; none is lost",
        "`fleet doctor --fix`, then `fleet sync`: the whole tree is fetched anew",
        fix,
    )


def _blob(data: bytes) -> str:
    return hashlib.sha1(b"blob %d\0%b" % (len(data), data), usedforsecurity=False).hexdigest()


def _is_lines(path: str) -> bool:
    from fleet.share.tree import kind_of

    return kind_of(path) is not None


def _ignores(workspace: Workspace, *, fix: bool) -> Iterator[Finding]:
    if not asked(workspace, "rev-parse", "--show-toplevel"):
        return
    tracked = [path for path in asked(workspace, "ls-files", "-z", "--", ".fleet", "agents").split("\0") if path]
    local = [path for path in tracked if path.startswith(".fleet/")]
    known = {line.strip("/") for line in setup.ignored(workspace.root)}
    if local:
        yield Finding(
            "ignore",
            "warning",
            f"git tracks {', '.join(local[:3])}",
            "this machine's own state would travel with the project",
            "`git rm -r --cached .fleet` takes it out of the next commit and leaves the files where they are",
        )
    if missing := [line for line in setup.LOCAL_IGNORES if line.strip("/") not in known]:
        if fix:
            setup.ignore(workspace.disk, workspace.root, tuple(missing))
        yield Finding(
            "ignore",
            "warning",
            f".gitignore lacks {', '.join(missing)}",
            "`git add .` would take this machine's own state along",
            "`fleet doctor --fix` adds it",
            fix,
        )
    if any(path.startswith("agents/") for path in tracked):
        yield Finding(
            "ignore",
            "note",
            "git tracks agents/, the agents' own files",
            "whoever can read the project can read what went wrong here",
            "nothing, if that is meant; otherwise `git rm -r --cached agents`, which leaves the files where they are",
        )


def _log(workspace: Workspace) -> Iterator[Finding]:
    from fleet.learn import corrections

    for agent in corrections.agents_here(workspace):
        if number := corrections.unfilled(workspace, agent):
            yield Finding(
                "unfilled",
                "note",
                f"{desk.counted(number, 'correction')} of {agent} without a pattern",
                "they count for nothing until the lesson is stated",
                f"state it in agents/{agent}/{corrections.FILE_NAME}",
            )


def _kept_back(workspace: Workspace) -> Iterator[Finding]:
    from fleet.share import gate, tree

    out = tree.outgoing(workspace, tree.load_base(workspace), may_drop=False)
    meant = [held for held in out.withheld if held.reason == gate.PRIVATE]
    others = [held for held in out.withheld if held.reason != gate.PRIVATE]
    if meant:
        yield Finding("withheld", "note", f"{desk.counted(len(meant), 'line')} stay here: scope is private")
    if others:
        yield Finding(
            "withheld",
            "warning",
            f"{desk.counted(len(others), 'line')} may not leave; first {others[0].path}: {others[0].reason}",
            "the clan does not get them",
            "`fleet edit ID --set field=value` says it without the secret; `fleet sync --dry-run` tells of each",
        )


def _online(workspace: Workspace) -> Iterator[Finding]:
    from fleet.cli import syncing

    try:
        remote = syncing.clan_remote(workspace, yes=False)
        if remote is None:
            yield Finding("remote", "note", "no remote is named", "fleet works offline", "`fleet init --remote URL`")
            return
        remote.pull(workspace.state.get("mark"))
    except FleetError as why:
        yield Finding("remote", "error", str(why), "what waits here goes out with a later sync", "see above")
        return
    yield Finding("remote", "ok", f"{remote.name} answers")
