"""Making a workspace or joining one, and keeping fleet's own files out of a project's git."""

import os
import time
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from fleet.app import sharing
from fleet.model import names
from fleet.model.errors import UsageError
from fleet.share.policy import FORMAT_TEXT
from fleet.share.remote import check_branch, check_remote
from fleet.store import config, gitprocess, replica
from fleet.store.files import Files
from fleet.store.tree import FORMAT
from fleet.store.workspace import Workspace

IGNORE_NOTE = "# fleet: local state and an agent's own files; what is shared travels on its own branch"
LOCAL_IGNORES = ("/.fleet/",)
OWN_IGNORES = (
    *(f"/agents/*/{name}" for name in ("corrections.md", "memory.md", "JOURNAL.md", "journals/*.md", "notes.jsonl")),
    *(f"/clan-learnings/{name}.{end}" for name in ("patterns", "discoveries") for end in ("jsonl", "d/*.jsonl")),
    *(f"/clan-learnings/{name}" for name in ("patterns.md", "members.toml", ".gitattributes", FORMAT)),
)
"""The single files that fleet writes. Never a folder: a project may have an ``agents/`` of its own."""

_GIT_S = 20.0
_AGENT_FILES = ("corrections.md", "memory.md", "JOURNAL.md", "notes.jsonl")


class Founded(NamedTuple):
    """A workspace that was made or joined, and what was done for it, in words."""

    workspace: Workspace
    done: list[str]


def found(root: Path, agent: str, remote: str, branch: str, *, ephemeral: bool = False) -> Founded:
    """Make the workspace, or join the one that is there.

    Raises:
        UsageError: a name, remote or branch that cannot be one; nothing was made.
    """
    if agent and not names.is_agent(agent):
        raise UsageError(
            f"{agent[:40]!r} cannot be an agent's name: 1 to 32 of a-z, 0-9, '-' and '_', first a letter or digit, "
            "and not 'import'. Nothing was made"
        )
    remote = check_remote(remote) if remote else ""
    done: list[str] = []
    path = root / config.FILE_NAME
    root.mkdir(parents=True, exist_ok=True)
    files = Files(root)
    if not path.exists():
        files.replace(path, config.render(remote, check_branch(branch or "fleet")).encode())
        done.append(f"made a workspace in {root}")
    elif (remote or branch) and _name_remote(files, path, remote, branch):
        done.append(f"{path.name} names another remote or branch now")
    workspace = Workspace(root)
    if not (workspace.clan / FORMAT).exists():
        files.replace(workspace.clan / FORMAT, FORMAT_TEXT)
    if ephemeral:
        _lend(workspace, agent, done)
    else:
        _seat(workspace, workspace.agent(agent or workspace.replicas().default_agent or "agent"), done)
    if remote:
        sharing.agree(workspace, remote)
    return Founded(workspace, done)


def _name_remote(files: Files, path: Path, remote: str, branch: str) -> bool:
    """Write another remote or branch into the configuration; tell whether it is another one.

    Raises:
        UsageError: the file cannot be read: what stands in it is not known.
    """
    try:
        text = path.read_text("utf-8-sig")
        tomllib.loads(text)
    except ValueError as why:
        raise UsageError(f"{path} cannot be read ({why}). Nothing was changed; mend the file and try again") from why
    share = config.load(path).share
    wanted = (remote or share.remote, check_branch(branch or share.branch))
    if wanted == (share.remote, share.branch):
        return False
    files.replace(path, config.with_remote(text, *wanted).encode())
    return True


def _lend(workspace: Workspace, agent: str, done: list[str]) -> None:
    """Make a folder that a short-lived job reads, and writes under a lease: no replica is minted in it."""
    register = workspace.replicas()
    if any(not each.is_lease for each in register.replicas):
        raise UsageError("somebody writes in this workspace already: it cannot become ephemeral. Nothing was changed")
    lease = workspace.lease()
    agent = workspace.agent(agent or register.default_agent or names.agent_of(lease) or "agent")
    fresh = replica.Register(agent, register.replicas, ephemeral=True)
    with workspace.locked():
        workspace.files.replace(workspace.replica_file, fresh.render())
    done.append(
        f"ephemeral: {f'{agent} writes as {lease}, which is lent' if lease else f'{agent} reads, and writes nothing'}"
    )


def _seat(workspace: Workspace, agent: str, done: list[str]) -> None:
    workspace.files.folder(workspace.clan)
    workspace.files.folder(workspace.home(agent))
    with workspace.writing(agent) as writer:
        register = workspace.replicas()
        if not register.default_agent:
            fresh = replica.Register(agent, register.replicas, register.ephemeral)
            workspace.files.replace(workspace.replica_file, fresh.render())
            done.append(f"{agent} is the default agent here")
        elif register.default_agent != agent:
            done.append(f"{agent} works here too; the default agent stays {register.default_agent}")
        done.append(f"{agent} writes as {writer.name}")


# --- the project's own git ------------------------------------------------------------------------------------------


def lacking(root: Path, patterns: Sequence[str]) -> list[str]:
    """Return which of these patterns the folder's ``.gitignore`` lacks. A whole folder in it covers its files."""
    known = {line.strip("/") for line in _ignored(root)}
    return [each for each in patterns if not {each.strip("/"), each.strip("/").split("/")[0]} & known]


def ignore(workspace: Workspace, patterns: Sequence[str]) -> list[str]:
    """Add what is missing to ``.gitignore``, behind what a person wrote; return what was added."""
    missing = lacking(workspace.root, patterns)
    if missing:
        head = [] if IGNORE_NOTE in _ignored(workspace.root) else [IGNORE_NOTE]
        lines = "".join(f"{line}\n" for line in [*head, *missing])
        workspace.files.append(workspace.root / ".gitignore", lines.encode())
    return missing


def _ignored(root: Path) -> set[str]:
    path = root / ".gitignore"
    if not path.is_file():
        return set()
    return {line.strip() for line in path.read_text("utf-8", "replace").splitlines()}


def hidden_folders(root: Path) -> list[str]:
    """Return the whole folders that an earlier fleet put into ``.gitignore``: a project's own files may lie there."""
    known = _ignored(root)
    return [line for line in ("/agents/", "/clan-learnings/") if line in known] if IGNORE_NOTE in known else []


def tracked(workspace: Workspace) -> list[str]:
    """Return which files that fleet wrote the project's git tracks, ``clan-learnings/`` apart: that may be meant."""
    listed = git_says(workspace.root, "ls-files", "-z", "--", ".fleet", "agents").split("\0")
    ours = {f"agents/{agent}/{name}" for agent in workspace.agents_here() for name in _AGENT_FILES}
    return [path for path in listed if path.startswith(".fleet/") or path in ours]


def git_says(root: Path, *arguments: str) -> str:
    """Return what git says in a folder, "" when it fails."""
    env = gitprocess.environment(os.environ, _GIT_S)
    try:
        until = time.monotonic() + _GIT_S
        done = gitprocess.run((*gitprocess.GIT, *arguments), folder=root, env=env, until=until)
    except (OSError, gitprocess.GitTimeout, gitprocess.GitTooMuch):
        return ""
    return done.out.decode("utf-8", "surrogateescape").strip("\n") if done.code == 0 else ""
