"""Use cases of setup: make or join a workspace, change a setting, and keep fleet's files out of a project's git."""

import os
import unicodedata
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, suppress
from pathlib import Path, PurePosixPath
from typing import Any
from zoneinfo import ZoneInfo

from fleet.app import sharing
from fleet.hosts.local import LocalFolder
from fleet.learn import restore
from fleet.learn.counting import reconcile_all
from fleet.learn.discoveries import Findings
from fleet.model import names
from fleet.model.errors import DiskError, FleetError, NoError, UsageError
from fleet.reflect.evidence import Witnesses
from fleet.share.git import Address, Repository, check_branch
from fleet.store import config, consent, git, homes, replica
from fleet.store.files import Files
from fleet.store.runs import Runs
from fleet.store.tree import FORMAT, FORMAT_TEXT
from fleet.store.workspace import Workspace

_CLAN_IGNORES = (
    *(f"/clan-learnings/{name}.{end}" for name in ("patterns", "discoveries") for end in ("jsonl", "d/*.jsonl")),
    *(f"/clan-learnings/{name}" for name in ("patterns.md", "members.toml", ".gitattributes", FORMAT, "**/.*.tmp")),
)

_GIT_S = 20.0


def join(
    root: Path, agent: str, remote: str, branch: str, home: str = "", *, ephemeral: bool = False
) -> tuple[Workspace, list[str], bool]:
    """Join the workspace in a folder, or make one there; return it, messages on what was done, and whether it is new.

    ``home``: the folder of the agents' own files.

    Raises:
        UsageError: a name, remote or branch that cannot be one, or ``ephemeral`` where one writes; nothing was made.
    """
    _check_who(root, agent, ephemeral=ephemeral)
    folder = unicodedata.normalize("NFC", home).removeprefix("./").rstrip("/")
    given = {"share.remote": remote, "share.branch": branch, "files.home": folder}
    settings = {name: text for name, text in given.items() if text}
    values = _checked(root, settings)
    messages: list[str] = []
    path = root / config.FILE_NAME
    root.mkdir(parents=True, exist_ok=True)
    if is_new := not path.exists():
        if not os.access(root, os.W_OK):
            raise DiskError(f"this user may not write in {root}: no workspace was made there")
        Files(root).replace(path, _with_values(config.render("", "fleet"), values).encode())
        messages.append(f"made a workspace in {root}")
        if str(root) == os.environ.get("HOME"):
            messages.append(
                "this is your home folder: each project below it without a workspace of its own uses this one"
            )
    else:
        messages.append(f"{root} is a workspace already")
    folders = git.output(root, "rev-parse", "--git-dir", "--git-common-dir").splitlines()
    if len({(root / each).resolve() for each in folders}) > 1:
        messages.append(
            "this is a git worktree: when git removes it, what fleet keeps here goes with it, but for what was synced. "
            "A workspace in the main checkout, or one that FLEET_DIR names, serves all worktrees"
        )
    if Repository(root).has_unpulled(path.name):
        messages.append(f"the project has a {path.name} that is not pulled yet: `fleet doctor` says what to do")
    workspace = Workspace(root)
    before = {each.name: each.value for each in config.settings(path)}
    agent = agent if ephemeral else _agent_to_add(workspace, agent)
    if changes := {name: text for name, text in settings.items() if values[name] != before[name]}:
        configure(workspace, changes)
        workspace.close()
        workspace = Workspace(root)
        messages += [
            f"{path.name} has {name} = {config.as_toml(values[name])} now, and had {config.as_toml(before[name])}; "
            "`fleet undo` takes that back"
            for name in changes
        ]
        if before["share.remote"] and "share.remote" in changes:
            messages.append(_on_another_remote(before["share.remote"], values["share.remote"]))
    if not (workspace.clan / FORMAT).exists():
        workspace.files.replace(workspace.clan / FORMAT, FORMAT_TEXT)
    if ephemeral:
        _make_ephemeral(workspace, agent, messages)
    else:
        _add_agent(workspace, agent, messages)
    if remote:
        sharing.Membership(workspace).agree(Address.typed(remote))
    return workspace, messages, is_new


def _check_who(root: Path, agent: str, *, ephemeral: bool) -> None:
    if agent == names.GUEST or (agent and not names.is_agent(agent)):
        raise UsageError(
            f"{agent[:40]!r} cannot be an agent's name: 1 to 32 of a-z, 0-9, '-' and '_', first a letter or digit, "
            f"and not 'import' or {names.GUEST!r}. Nothing was made"
        )
    workspace = Workspace(root)
    workspace.lease()  # one that is no replica's name is refused before anything is made
    if ephemeral and any(not each.is_lease for each in workspace.replicas().replicas):
        raise UsageError("somebody writes in this workspace already: it cannot become ephemeral. Nothing was changed")


def _on_another_remote(before: str, after: str) -> str:
    """Return a note on what becomes of the lines here if they are shared through another remote."""
    old, new = Address(before).redacted, Address(after).redacted
    return (
        f"the next `fleet sync` sends {new} all that is here, what came from {old} too; and what comes from {new} "
        "stays here, also after an undo. Begin in a new folder if it should not"
    )


def likely_typos(root: Path, remote: str, branch: str) -> dict[str, str]:
    """Return the questions to a person about a ``remote`` and a ``branch`` that may be typing errors.

    Raises:
        UsageError: the remote cannot be one.
    """
    share = config.load(root / config.FILE_NAME).share
    named = Address.typed(remote).bare if remote else share.remote
    questions = {}
    has_one = (root / config.FILE_NAME).exists()
    if not has_one and Repository(root).has_unpulled(config.FILE_NAME):
        questions["pull"] = f"`git pull` brings a {config.FILE_NAME} of this project's. Make another one all the same?"
    if share.remote and named != share.remote:
        current, new = Address(share.remote).redacted, Address(named).redacted
        questions["remote"] = f"{config.FILE_NAME} names {current}. Put {new} in its place?"
    if branch not in ("", share.branch) and named in ("", Repository(root).origin()):
        refs = (f"refs/heads/{branch}", f"refs/remotes/origin/{branch}")
        listing = next(filter(None, (git.output(root, "ls-tree", "--name-only", ref) for ref in refs)), "")
        if listing and FORMAT not in listing.splitlines():
            questions["branch"] = f"the branch {branch} holds files of the project's own. Write lessons beside them?"
    return questions


def configure(workspace: Workspace, texts: Mapping[str, str]) -> dict[str, Any]:
    """Set settings of ``fleet.toml`` by name, as typed, and return their values. Every other line stays as it is.

    Raises:
        UsageError: there is no such setting, it cannot have that value, or the file has it in a form of its own.
    """
    values, path = _checked(workspace.root, texts), workspace.config_file
    with workspace.locked(), Runs(workspace).recording("", "config") as draft:
        try:
            before = workspace.files.read(path)
            text = before.decode("utf-8")
            after = _with_values(text, values)
            expected = Files.toml(text)
            for name, value in values.items():
                section, _, key = name.partition(".")
                expected.setdefault(section, {})[key] = value
            if Files.toml(after) != expected:
                raise ValueError(f"{' or '.join(values)} stands there in a form of its own")
        except (ValueError, AttributeError) as why:
            raise UsageError(f"{path} cannot be changed by a command ({why}): edit it. Nothing was changed") from why
        if not Runs(workspace).swap(path, before, after.encode()):
            raise NoError(f"{path} was changed just now; nothing was changed, run it again")
        draft.summary = f"set {', '.join(values)}"
    if "promotion.others" in values:
        with closing(Workspace(workspace.root)) as changed:
            Witnesses(changed).agree()
    if "share.fields" in values:
        with closing(Workspace(workspace.root)) as changed:
            changed.agree_to_fields()
    if remote := texts.get("share.remote"):
        sharing.Membership(workspace).keep_login(Address.typed(config.parsed("share.remote", remote)))
    if "files.home" in values:
        with closing(Workspace(workspace.root)) as moved:
            restore.bring(moved)
            if hides_homes(workspace):
                config.ignore(moved.files, own_ignores(moved), shared=True)
            emptied = (*map(workspace.home, workspace.agents_here()), workspace.root / workspace.place)
            for folder in emptied if moved.place != workspace.place else ():
                with suppress(OSError):  # one that is not empty stays
                    folder.rmdir()
    return values


def _checked(root: Path, texts: Mapping[str, str]) -> dict[str, Any]:
    values = {name: config.parsed(name, text) for name, text in texts.items()}
    _check_home(root, values.get("files.home", ""))
    if wrong := next(wrong_values(values), ""):
        raise UsageError(f"{wrong}. Nothing was changed")
    if remote := values.get("share.remote"):
        values["share.remote"] = Address.typed(remote).bare
    return values


def wrong_values(values: Mapping[str, Any]) -> Iterator[str]:
    """Yield what is wrong with the values of settings, by name, beyond their type and size."""
    for name, check in _CHECKS.items():
        if (value := values.get(name)) or (name == "share.branch" and value is not None):
            try:
                check(value)
            except UsageError as why:
                yield f"{name} cannot be that: {str(why).removesuffix('. Nothing was sent')}"


def _check_zone(name: str) -> None:
    try:
        ZoneInfo(name)
    except (KeyError, ValueError, OSError) as why:
        raise UsageError(f"no time zone is called {name[:60]!r}; one is called Europe/Berlin, for example") from why


_CHECKS: dict[str, Callable[[str], object]] = {
    "share.remote": Address.typed,
    "share.branch": check_branch,
    "sleep.zone": _check_zone,
    "live.url": lambda url: consent.Endpoint(url, "ws").check(),
    **dict.fromkeys(
        ("semantic.url", "reflect.url", "reflect.honcho_url", "notify.webhook"),
        lambda url: consent.Endpoint(url).check(),
    ),
}
"""Further checks of settings. An empty text, which means the default, passes each of them but that of the branch."""


def _with_values(text: str, values: Mapping[str, Any]) -> str:
    for name, value in values.items():
        text = config.with_value(text, name, value)
    return text


def _check_home(root: Path, home: str) -> None:
    for place in (root / home, *(root / home).parents):
        if root in place.parents and os.path.lexists(place) and (place.is_symlink() or not place.is_dir()):
            raise UsageError(f"{place} is a link or a file, and no folder for the agents' files. Nothing was changed")


def proposed_home(root: Path) -> str:
    """Return another folder for the agents' files, where files of the project are in the usual one; else "".

    A folder that a ``fleet.toml`` names stays as it is, and so does one that agents' logs are in, unless git tracks
    other files there.
    """
    usual = root / homes.DEFAULT
    if os.path.lexists(root / config.FILE_NAME):
        return ""
    tracked = git.output(root, "ls-files", "-z", "--", homes.DEFAULT, wait_s=_GIT_S).split("\0")
    listed = [PurePosixPath(each).parts[1:] for each in tracked if each]
    if git.refusal(root) or next(usual.glob("*/corrections.md"), None) is None:
        listed += [each.relative_to(usual).parts for each in usual.rglob("*") if each.is_file()]
    theirs = [each for each in listed if len(each) < 2 or not homes.is_own(each[1:])]
    return homes.PROPOSED if theirs else ""


def _make_ephemeral(workspace: Workspace, agent: str, messages: list[str]) -> None:
    """Make the workspace one for a short-lived job. It reads, and writes under a lease; it mints no replica."""
    lease = workspace.lease()
    agent = workspace.agent(agent or workspace.default_agent() or names.agent_of(lease) or "agent")
    new = replica.Register(agent, workspace.replicas().replicas, ephemeral=True)
    with workspace.locked():
        workspace.files.replace(workspace.replica_file, new.render())
        LocalFolder(os.fspath(workspace.root)).name(agent)
    messages.append(
        f"ephemeral: {f'{agent} writes as {lease}, which is lent' if lease else 'this folder is read, not written to'}"
    )


def _agent_to_add(workspace: Workspace, named: str) -> str:
    """Return the agent that joins; raise ``UsageError`` if none is named, and the register's was named elsewhere."""
    is_another = bool(workspace.replicas().default_agent)
    return workspace.agent(named or workspace.default_agent() or ("" if is_another else "agent"))


def _add_agent(workspace: Workspace, agent: str, messages: list[str]) -> None:
    workspace.files.folder(workspace.clan)
    workspace.files.folder(workspace.home(agent))
    with workspace.locked():
        register, default = workspace.replicas(), workspace.default_agent()
        LocalFolder(os.fspath(workspace.root)).name(agent)
        if not default:  # before the guest's log is taken over: a hook that is called now must not begin another one
            new = replica.Register(agent, register.replicas, register.ephemeral)
            workspace.files.replace(workspace.replica_file, new.render())
            messages.append(f"{agent} is the default agent here")
        elif default != agent:
            how = f"{agent} works here too, with `--agent {agent}` or FLEET_AGENT={agent}"
            messages.append(f"{how}; the default agent stays {default}")
        if restore.take_over(workspace, agent):
            messages.append(f"{agent} has taken over what was logged here before anybody was named")
    with workspace.writing(agent) as writer:
        messages.append(f"{agent} writes as {writer.name}")
    Findings(workspace, agent).take_waiting()
    with suppress(FleetError):  # what a guest logged: if this fails, the next command counts it
        reconcile_all(workspace)


# --- the project's own git ------------------------------------------------------------------------------------------


def own_ignores(workspace: Workspace) -> tuple[str, ...]:
    """Return the single files that fleet writes. Never a folder: a project may have an ``agents/`` of its own."""
    return (*homes.ignores(workspace.place), *_CLAN_IGNORES)


def hides_homes(workspace: Workspace) -> bool:
    """Return whether the project ignores some of the agents' own files, as somebody wanted at ``fleet init``."""
    own = homes.ignores(workspace.place)
    return len(config.ignore(workspace.files, own, dry_run=True, shared=True)) < len(own)
