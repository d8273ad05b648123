"""Making a workspace, or joining one: ``fleet init``."""

import os
from pathlib import Path

from fleet.cli import desk
from fleet.keep import config, consent, names, replica
from fleet.keep.disk import Disk
from fleet.keep.errors import NoError, UsageError
from fleet.keep.workspace import Workspace, find_root

IGNORE_NOTE = "# fleet: local state and an agent's own files; what is shared travels on its own branch"
LOCAL_IGNORES = ("/.fleet/",)
OWN_IGNORES = ("/agents/", "/clan-learnings/")


def make(root: Path, agent: str, remote: str, branch: str, *, ephemeral: bool = False) -> tuple[Workspace, list[str]]:
    """Make the workspace, or join the one that is there; return it and what was done.

    Raises:
        UsageError: a name, remote or branch that cannot be one.
    """
    from fleet.share.git import check_branch, check_remote

    remote = check_remote(remote) if remote else ""
    done = []
    path = root / config.FILE_NAME
    root.mkdir(parents=True, exist_ok=True)
    disk = Disk(root)
    if not path.exists():
        disk.replace(path, config.render(remote, check_branch(branch or "fleet")).encode())
        done.append(f"made a workspace in {root}")
    elif remote or branch:
        found = config.load(path)
        wanted = (remote or found.share.remote, check_branch(branch or found.share.branch))
        if wanted != (found.share.remote, found.share.branch):
            disk.replace(path, config.with_remote(path.read_text("utf-8-sig"), *wanted).encode())
            done.append(f"{path.name} names another remote or branch now")
    workspace = Workspace(root)
    if ephemeral:
        _lend(workspace, agent, done)
    else:
        _seat(workspace, workspace.agent(agent or workspace.replicas().default_agent or "agent"), done)
    if remote:
        consent.give(workspace, remote)
    return workspace, done


def _lend(workspace: Workspace, agent: str, done: list[str]) -> None:
    """Make a folder that a short-lived job reads, and writes under a lease: no replica is minted in it."""
    register = workspace.replicas()
    if any(not r.is_lease for r in register.replicas):
        raise UsageError("somebody writes in this workspace already: it cannot become ephemeral. Nothing was changed")
    lease = workspace.lease()
    agent = workspace.agent(agent or register.default_agent or names.agent_of(lease) or "agent")
    workspace.clan.mkdir(exist_ok=True)
    fresh = replica.Register(agent, register.replicas, ephemeral=True)
    with workspace.locked():
        workspace.disk.replace(workspace.replica_file, fresh.render())
    done.append(
        f"ephemeral: {f'{agent} writes as {lease}, which is lent' if lease else f'{agent} reads, and writes nothing'}"
    )


def _seat(workspace: Workspace, agent: str, done: list[str]) -> None:
    workspace.disk.folder(workspace.clan)
    workspace.disk.folder(workspace.home(agent))
    with workspace.writing(agent) as writer:
        register = workspace.replicas()
        if not register.default_agent:
            fresh = replica.Register(agent, register.replicas, register.ephemeral)
            workspace.disk.replace(workspace.replica_file, fresh.render())
            done.append(f"{agent} is the default agent here")
        elif register.default_agent != agent:
            done.append(f"{agent} works here too; the default agent stays {register.default_agent}")
        desk.chosen.agent = desk.chosen.agent or agent
        done.append(f"{agent} writes as {writer.name}")


def ignored(root: Path) -> set[str]:
    """Return the lines of the folder's ``.gitignore``."""
    path = root / ".gitignore"
    if not path.is_file():
        return set()
    return {line.strip() for line in path.read_text("utf-8", "replace").splitlines()}


def ignore(disk: Disk, root: Path, patterns: tuple[str, ...]) -> list[str]:
    """Add what is missing to ``.gitignore``, behind what a person wrote; return what was added."""
    known = {line.strip("/") for line in ignored(root)}
    missing = [pattern for pattern in patterns if pattern.strip("/") not in known]
    if missing:
        path = root / ".gitignore"
        head = [] if IGNORE_NOTE in ignored(root) else [IGNORE_NOTE]
        disk.append(path, "".join(f"{line}\n" for line in [*head, *missing]).encode())
    return missing


def check_agent(name: str) -> None:
    """Check a name before anything is made.

    Raises:
        UsageError: it cannot be an agent's.
    """
    from fleet.keep import names

    if name and not names.is_agent(name):
        raise UsageError(
            f"{name[:40]!r} cannot be an agent's name: 1 to 32 of a-z, 0-9, '-' and '_', first a letter or digit, "
            "and not 'import'. Nothing was made"
        )


def root_for(directory: str) -> Path:
    """Return the folder that a command means which can make a workspace: a named one, the one around, or this one."""
    chosen = directory or desk.chosen.directory or os.environ.get("FLEET_DIR", "")
    try:
        return Path(chosen).expanduser().absolute() if chosen else find_root("", {}, Path.cwd())
    except NoError:
        return Path.cwd()
