"""Setting up: a workspace made or joined, its files kept out of a project's git, and the hooks of agent hosts."""

import os
import tomllib
import unicodedata
from contextlib import closing
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from fleet.app import sharing
from fleet.learn import discoveries, restore
from fleet.model import names
from fleet.model.errors import UsageError
from fleet.share.git import check_branch, check_remote, without_login
from fleet.store import config, git, homes, replica
from fleet.store.config import Setting
from fleet.store.files import Files
from fleet.store.runs import Runs
from fleet.store.tree import FORMAT, FORMAT_TEXT
from fleet.store.workspace import Workspace

_AGENT_FILES = (
    *("corrections.md", "memory.md", "JOURNAL.md", "notes.jsonl", "reflections.jsonl", "inbox.jsonl"),
    discoveries.WAITING,
)
_CLAN_IGNORES = (
    *(f"/clan-learnings/{name}.{end}" for name in ("patterns", "discoveries") for end in ("jsonl", "d/*.jsonl")),
    *(f"/clan-learnings/{name}" for name in ("patterns.md", "members.toml", ".gitattributes", FORMAT)),
)

_GIT_S = 20.0


class Founded(NamedTuple):
    """A workspace that was made or joined, what was done for it, in words, and whether it was made now."""

    workspace: Workspace
    done: list[str]
    is_new: bool


def found(root: Path, agent: str, remote: str, branch: str, home: str = "", *, ephemeral: bool = False) -> Founded:
    """Make the workspace, or join the one that is there.

    Args:
        root: its folder.
        agent: who works in it.
        remote: of the clan.
        branch: there.
        home: the folder of the agents' own files; "" for the one that it has, or the usual one.
        ephemeral: for a short-lived job.

    Raises:
        UsageError: a name, remote or branch that cannot be one; nothing was made.
    """
    if agent and not names.is_agent(agent):
        raise UsageError(
            f"{agent[:40]!r} cannot be an agent's name: 1 to 32 of a-z, 0-9, '-' and '_', first a letter or digit, "
            "and not 'import'. Nothing was made"
        )
    if agent == names.GUEST:
        raise UsageError(f"{names.GUEST} is who logs where nobody is named: choose another name. Nothing was made")
    remote = check_remote(remote) if remote else ""
    if home:
        _check_home(root, home := _plain(home))
    done: list[str] = []
    path = root / config.FILE_NAME
    root.mkdir(parents=True, exist_ok=True)
    files = Files(root)
    is_new = not path.exists()
    if is_new:
        text = config.render(without_login(remote), check_branch(branch or "fleet"))
        files.replace(path, (config.with_value(text, "files", "home", home) if home else text).encode())
        done.append(f"made a workspace in {root}")
    else:
        done.append(f"{root} is a workspace already")
        if (remote or branch) and _name_remote(files, path, without_login(remote), branch):
            share = config.load(path).share
            done.append(f"{path.name} names {share.remote or 'no remote'}, branch {share.branch}")
    workspace = Workspace(root)
    if home not in ("", workspace.place):
        configure(workspace, "files.home", home)
        workspace.close()
        workspace = Workspace(root)
        done.append(f"each agent's own files lie in {home}/ now")
    if not (workspace.clan / FORMAT).exists():
        files.replace(workspace.clan / FORMAT, FORMAT_TEXT)
    if ephemeral:
        _lend(workspace, agent, done)
    else:
        _seat(workspace, workspace.agent(agent or workspace.replicas().default_agent or "agent"), done)
    if remote:
        sharing.agree(workspace, remote)
    return Founded(workspace, done, is_new)


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


def configure(workspace: Workspace, name: str, said: str) -> Setting:
    """Set one setting of ``fleet.toml``; every other line of it stays as it is.

    Raises:
        UsageError: there is no such setting, it cannot have that value, or the file has it in a form of its own.
    """
    section, key = config.find(name)
    value = config.parsed(section, key, said)
    path = workspace.config_file
    if (section, key) == ("share", "remote"):
        value = without_login(check_remote(value)) if value else ""
    if (section, key) == ("share", "branch"):
        check_branch(value)
    if (section, key) == ("files", "home"):
        _check_home(workspace.root, value)
    with workspace.locked(), Runs(workspace).noting(workspace.agent(or_guest=True), "config", [path]) as noted:
        text = workspace.files.read(path).decode("utf-8")
        try:
            after = config.with_value(text, section, key, value)
            wanted = tomllib.loads(text.removeprefix("\ufeff"))
            wanted.setdefault(section, {})[key] = value
            if tomllib.loads(after.removeprefix("\ufeff")) != wanted:
                raise ValueError(f"[{section}] {key} stands there in a form of its own")
        except (ValueError, AttributeError) as why:
            raise UsageError(f"{path} cannot be changed by a command ({why}): edit it. Nothing was changed") from why
        workspace.files.replace(path, after.encode())
        noted.told = f"set {section}.{key}"
    if (section, key) == ("files", "home"):
        with closing(Workspace(workspace.root)) as moved:
            restore.bring(moved)
            if not config.not_ignored(moved.root, own_ignores(workspace)):
                config.ignore(moved.files, own_ignores(moved))
    return Setting(f"{section}.{key}", value, is_set=True)


def _plain(home: str) -> str:
    """Return a folder as it is written down: normalised, without what stands around it."""
    return unicodedata.normalize("NFC", home).removeprefix("./").rstrip("/")


def _check_home(root: Path, home: str) -> None:
    """Check that the agents' files can lie in a folder.

    Raises:
        UsageError: they cannot; nothing was made or changed.
    """
    if home and (why := homes.trouble(home)):
        raise UsageError(f"{home[:100]!r} cannot be the folder of the agents' files: {why}. Nothing was changed")
    for place in (root / home, *(root / home).parents):
        if root in place.parents and os.path.lexists(place) and (place.is_symlink() or not place.is_dir()):
            raise UsageError(f"{place} is a link or a file, and no folder for the agents' files. Nothing was changed")


def proposed_home(root: Path) -> str:
    """Return another folder for the agents' files, where the usual one has files of the project's own; "" where not.

    They are those that git tracks and fleet did not write. What is settled by a ``fleet.toml`` stays as it is.
    """
    if os.path.lexists(root / config.FILE_NAME):
        return ""
    listed = [
        PurePosixPath(each).parts[1:]
        for each in git.said(root, "ls-files", "-z", "--", homes.DEFAULT, wait_s=_GIT_S).split("\0")
        if each
    ]
    theirs = [each for each in listed if len(each) < 2 or not homes.is_own(each[1:])]
    return homes.PROPOSED if theirs else ""


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
    with workspace.locked():
        if restore.take_over(workspace, agent):
            done.append(f"{agent} has taken over what was logged here before anybody was named")
    with workspace.writing(agent) as writer:
        register = workspace.replicas()
        if not register.default_agent:
            fresh = replica.Register(agent, register.replicas, register.ephemeral)
            workspace.files.replace(workspace.replica_file, fresh.render())
            done.append(f"{agent} is the default agent here")
        elif register.default_agent != agent:
            done.append(f"{agent} works here too; the default agent stays {register.default_agent}")
        done.append(f"{agent} writes as {writer.name}")
    discoveries.take_waiting(workspace, agent)


# --- the project's own git ------------------------------------------------------------------------------------------


def own_ignores(workspace: Workspace) -> tuple[str, ...]:
    """Return the single files that fleet writes. Never a folder: a project may have an ``agents/`` of its own."""
    return (*(f"/{workspace.place}/*/{name}" for name in (*_AGENT_FILES, "journals/*.md")), *_CLAN_IGNORES)


def tracked(workspace: Workspace) -> list[str]:
    """Return which files that fleet wrote the project's git tracks, ``clan-learnings/`` apart: that may be meant."""
    listed = git.said(workspace.root, "ls-files", "-z", "--", ".fleet", workspace.place, wait_s=_GIT_S).split("\0")
    ours = {workspace.own_path(agent, name) for agent in workspace.agents_here() for name in _AGENT_FILES}
    return [path for path in listed if path.startswith(".fleet/") or path in ours]
