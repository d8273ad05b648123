"""Commands that set fleet up: a workspace, agent hosts, shells and settings."""

import re
import sys
from collections.abc import Sequence
from contextlib import nullcontext, suppress
from pathlib import Path
from shutil import which
from typing import Annotated, Any

import typer
from typer.completion import get_completion_script  # type: ignore[attr-defined]

from fleet import hook
from fleet.app import finding, moving, reflecting, session_end, setup, sharing, starting
from fleet.app.sharing import ConsentNeededError
from fleet.cli import output
from fleet.cli.output import argument, echo, flag, note, option
from fleet.hosts import install
from fleet.hosts.install import INSTALLABLE, Calls, FileChange, SettingsFile
from fleet.hosts.payloads import CLAUDE_CODE
from fleet.model import names
from fleet.model.errors import FleetError, NoError, UsageError
from fleet.share.git import Address, Repository
from fleet.share.notices import Notices
from fleet.share.remote import RemoteUnavailable
from fleet.store import config, consent, git, homes
from fleet.store.runs import Edit
from fleet.store.semantic import Embeddings
from fleet.store.workspace import Workspace, check_version
from fleet.text.screening import counted, listed

SHELLS = ("bash", "zsh", "fish")

Host = Annotated[str, argument("HOST", f"The agent host: {', '.join(INSTALLABLE)}.", INSTALLABLE)]
Project = Annotated[bool, flag("--project", "The host's settings of this workspace; the default.")]
User = Annotated[bool, flag("--user", "Your own settings of the host: every project that is a workspace.")]

app = output.commands()

_NONE = ("", "n", "no", "none")
"""Answers that name no remote."""
_WRITERS_SHOWN = 2
_VALUE_CHARS_MAX = 100


@app.command("init")
def _init(
    remote: Annotated[
        str, option("--remote", "URL", "The clan's git remote, or what git calls it here: 'origin'.")
    ] = "",
    branch: Annotated[str, option("--branch", "TEXT", "The remote's branch; 'fleet' by default.")] = "",
    author: Annotated[str, option("--author", "WHO", "Who commits there: git, none, or 'Name <address>'.")] = "",
    take_in: Annotated[
        bool | None, flag("--take-in/--no-take-in", "Take in CLAUDE.md, lessons.md and their like here.")
    ] = None,
    host: Annotated[
        str,
        option(
            "--install",
            "HOST",
            f"Install an agent host too: {', '.join(INSTALLABLE)}, or none.",
            (*INSTALLABLE, "none"),
        ),
    ] = "",
    yes: Annotated[
        bool, flag("--yes", "-y", "Answer yes to all but --remote, --author, --take-in and --install.")
    ] = False,
    home: Annotated[str, option("--home", "FOLDER", "Folder of the agents' own files; 'agents' by default.")] = "",
    ephemeral: Annotated[
        bool, flag("--ephemeral", "For a short-lived job: reads, or writes as FLEET_REPLICA.")
    ] = False,
) -> bool:
    """Make a workspace here, or join the one that is here. Doing it twice changes nothing.

    On a terminal it asks one thing after the other; a flag is an answer.
    """
    root = output.chosen.root_to_be()
    check_version(root)
    if host not in ("", "none"):
        install.check_host(host)
    named = output.chosen.agent_named()
    asks = sys.stdin.isatty() and sys.stdout.isatty() and not yes and not output.chosen.as_json
    if asks and not ephemeral:
        named = named or _ask_agent(root)
        remote = remote or _ask_remote(root)
    if (_is_name(remote) or author == "git") and which("git") is None:
        raise RemoteUnavailable("git is not installed, or not on the PATH. Nothing was made; install git")
    remote = _address(root, remote)
    _check_author(root, author)
    if not output.chosen.root_named():
        _check_repository(root, remote)
    for about, question in setup.likely_typos(root, remote, branch).items():
        # A script that names another remote means it: the change is printed, and can be undone.
        output.confirm(question, yes=yes or (about == "remote" and not sys.stdin.isatty()))
    home = home or _another_home(root, asks=asks)
    workspace, messages, is_new = setup.join(root, named, remote, branch, home, ephemeral=ephemeral)
    if local := config.ignore(workspace.files, config.IGNORED_LOCAL, shared=True):
        messages.append(f".gitignore: {counted(len(local), 'line')} for this machine's own files")
    places, own = f"{workspace.place}/ and clan-learnings/", setup.own_ignores(workspace)
    question = f"Keep what fleet writes in {places} out of this folder's own git commits?"
    # Without a terminal the careful answer holds: `git add .` publishes nothing by mistake.
    lacks = config.ignore(workspace.files, own, dry_run=True, shared=True)
    if not lacks or output.is_agreed(question, yes=yes, default=True):
        config.ignore(workspace.files, own, shared=True)
        messages += [f".gitignore: {len(lacks)} single files of {places}, which fleet writes"] if lacks else []
    echo("\n".join(messages))
    _offer_remote(workspace, asks=asks)
    _offer_author(workspace, author, asks=asks)
    _offer_embedding(workspace, yes=yes, is_new=is_new)
    _offer_webhook(workspace, yes=yes)
    if not workspace.is_in_a_clan:
        origin = sharing.Membership(workspace).shown()
        known = f"; `fleet sync --yes` uses this repository's origin, {origin}{_of_fork(root)}" if origin else ""
        echo(f"no remote is named here, so fleet works offline. `fleet init --remote URL` names one{known}")
    code = _show_remote(workspace) if starting.is_unasked(workspace) else 0
    who = "" if ephemeral else workspace.agent(named)
    if who:
        _offer_files(workspace, who, take_in=take_in, asks=asks)
        _offer_host(workspace, host, asks=asks)
        _show_next(workspace, who)
    document = {"workspace": str(workspace.root), "is_new": is_new, "agent": who, "did": messages}
    output.show(document | {"remote": sharing.Membership(workspace).shown()})
    for message in (*workspace.reports, *(f"warning: {each}" for each in workspace.warnings)):
        note(message)
    workspace.close()
    if code:
        raise typer.Exit(code)
    return bool(author or host) or (not is_new and workspace.files.written > 0)


def _check_author(root: Path, named: str) -> None:
    """Raise ``UsageError`` where ``--author`` names nobody, before anything is made."""
    if named == "git" and not Repository(root).identity():
        raise UsageError("git knows no user.name and user.email here: `git config` sets both. Nothing was made")
    if named not in ("", "git", "none") and not git.Author(identity=named).is_named:
        raise UsageError(f"{named[:80]!r} is no author: 'Name <address>', git or none. Nothing was made")


def _check_repository(root: Path, remote: str) -> None:
    """Raise ``UsageError`` if the workspace around has another remote, and this folder is in another git repository."""
    current, here = config.load(root / config.FILE_NAME).share.remote, Path.cwd()
    if not remote or not current or Address.typed(remote).bare == current:
        return
    ours, around = (git.output(each, "rev-parse", "--git-common-dir") for each in (here, root))
    if ours and (here / ours).resolve() != (root / around).resolve():
        raise UsageError(
            f"{here} is in a git repository of its own, and the workspace around it, {root}, shares through "
            f"{Address(current).redacted}. Nothing was changed. With `--dir .` a workspace begins here, and "
            f"`--dir {root}` names another remote for all that is there"
        )


def _another_home(root: Path, *, asks: bool) -> str:
    """Return another folder for the agents' files if the usual one has files of the project's own, else ""."""
    if not (proposed := setup.proposed_home(root)):
        return ""
    if asks:
        question = f"git tracks files of the project's own in {homes.DEFAULT}/. Folder for the agents' files"
        return str(typer.prompt(question, default=proposed)).strip()
    echo(f"{homes.DEFAULT}/ holds files of the project's own: what fleet keeps for each agent goes into {proposed}/")
    return proposed


def _ask_agent(root: Path) -> str:
    if (root / ".fleet/replica.toml").exists():
        return ""
    while not names.is_agent(name := str(typer.prompt("Name of the agent that works here", default="agent")).strip()):
        note("a name has 1 to 32 of a-z, 0-9, '-' and '_', and begins with a letter or digit")
    return name


def _is_name(remote: str) -> bool:
    """Return whether this is the name of one of git's remotes, and no address: a word, and no folder here."""
    return remote == "origin" or (re.fullmatch(r"\w[\w-]{0,99}", remote) is not None and not Path(remote).exists())


def _address(root: Path, remote: str) -> str:
    """Return a remote's address, where it was given by its name in git; raise ``UsageError`` if git knows none."""
    if not _is_name(remote):
        return remote
    if address := Repository(root).origin(remote):
        return address
    none = f"no git repository around this folder has a remote called {remote}, and no folder here is: --remote URL"
    raise UsageError(f"{git.refusal(root) or none}. Nothing was made")


def _of_fork(root: Path) -> str:
    """Return that an origin seems to be a fork, of which the others see nothing; "" where it does not."""
    is_fork = Repository(root).origin("upstream") not in (None, Repository(root).origin())
    return " (if that is your fork: `fleet init --remote upstream` shares with the others)" if is_fork else ""


def _ask_remote(root: Path) -> str:
    """Return the remote that a person wants to share through; "" for none, or where one is named."""
    share = config.load(root / config.FILE_NAME).share
    if share.remote:
        return ""
    if (origin := Repository(root).origin()) and typer.confirm(
        f"Share {share.lessons} through {Address(origin).redacted}, on a branch `fleet` of its own{_of_fork(root)}?",
        default=True,
    ):
        return origin
    question = f"Git remote to share {share.lessons} through (empty: none for now)"
    while (named := str(typer.prompt(question, default="")).strip()).casefold() not in _NONE:
        if _is_name(named) and not Repository(root).origin(named):
            note(f"{named!r} is no address and no folder here: a URL, or the path of a repository; empty for none")
            continue
        try:
            Address.typed(named)
            return named
        except UsageError as why:
            note(str(why))
    return ""


def _offer_remote(workspace: Workspace, *, asks: bool) -> None:
    """Ask about a remote that the workspace names, where nobody here has agreed to it."""
    membership = sharing.Membership(workspace)
    if not asks or not starting.is_unasked(workspace):
        return
    try:
        membership.remote()
    except ConsentNeededError as needed:
        if output.is_agreed(f"Share {needed.lessons} through {needed.shown} ({needed.origin})?"):
            membership.remote(yes=True)
    except UsageError:
        pass  # why it cannot be used is told when it is fetched from


def _offer_author(workspace: Workspace, named: str, *, asks: bool) -> None:
    """Ask once whose name the commits bear; until somebody answers, they bear nobody's."""
    share = workspace.config.share
    is_settled = share.author or workspace.state.get("author_asked")
    if not named and asks and share.remote and workspace.state.agreed(consent.REMOTE) and not is_settled:
        if not (identity := Repository(workspace.root).identity()):
            return
        is_named = typer.confirm(f"Commit lessons as {identity}? Everybody who reads the branch sees it", default=True)
        named = "git" if is_named else "none"
    if named:
        who = sharing.Membership(workspace).name_author(named)
        echo(f"commits are made as {who}" if who else "commits bear no person's name")


def _offer_files(workspace: Workspace, agent: str, *, take_in: bool | None, asks: bool) -> None:
    """Take in the files of a project that hold lessons, and print how many lessons past sessions propose."""
    if take_in is None and (not asks or workspace.state.get("files_asked")):
        return
    workspace.state.put(files_asked=workspace.wall())
    preview = moving.preview_import(workspace) if take_in is not False else None
    if preview and (files := [Path(path) for path, number in preview.files.items() if number]):
        paths = [each.relative_to(workspace.root).as_posix() for each in files]
        names = listed(paths)
        lessons = counted(preview.patterns + preview.discoveries, "lesson")
        if take_in or typer.confirm(f"Take in {lessons} from {names}?", default=True):
            imported = moving.import_files(workspace, agent, files)
            echo(f"took in {counted(imported.patterns_new + imported.discoveries_new, 'new lesson')} from {names}")
    if proposals := moving.proposals(workspace, agent, [], 30).new:
        echo(f"past sessions propose {counted(len(proposals), 'lesson')}: `fleet import --transcripts` shows them")


def _offer_host(workspace: Workspace, host: str, *, asks: bool) -> None:
    """Install the host that is named; else ask, once, about those that are on the PATH, or about Claude Code."""
    hosts = [host] if host not in ("", "none") else []
    is_settled = workspace.state.get("host_asked") or Calls.installed(workspace.root)
    if not host and asks and not is_settled:
        workspace.state.put(host_asked=workspace.wall())
        here = [name for name in INSTALLABLE if which(INSTALLABLE[name].client)] or [CLAUDE_CODE]
        question = "Let {0.title} call fleet by itself ({0.file})?"
        hosts = [name for name in here if typer.confirm(question.format(INSTALLABLE[name]), default=True)]
    for name in hosts:
        file = SettingsFile.of(workspace.root, name)
        changed = any(each.is_other for each in file.install())
        echo(f"{file.path} calls fleet {'now, from the next session on' if changed else 'already'}")
        _note_what_lacks(file, name)


def _show_next(workspace: Workspace, agent: str) -> None:
    own = {each.name for each in workspace.replicas().replicas}
    with workspace.db.without_refresh():  # whatever was fetched just now is known; a second call changes nothing
        newest = workspace.db.newest_by()
    if others := [each for each in newest if names.agent_of(each) == agent and each not in own]:
        echo(
            f"{agent} writes elsewhere, too ({', '.join(others[:_WRITERS_SHOWN])}), and both count as one agent. If "
            "they are two, `fleet init --agent NAME` gives this one a name of its own"
        )
    is_installed = Calls.installed(workspace.root)
    install_it = "`fleet install claude-code` lets each session start with what is known"
    first = "`fleet start` shows what a session starts with" if is_installed else install_it
    echo(f'next: {first}; `fleet correct --wrong "..." --right "..." --pattern "..."` logs what was learned')


def _show_remote(workspace: Workspace) -> int:
    """Fetch from the clan, and print how much it knows; return the exit code, 0 without a network.

    Without an answer the workspace is usable all the same.
    """
    code = 0
    try:
        with output.progress("Fetching") if workspace.state.agreed(consent.REMOTE) else nullcontext():
            fetched = sharing.fetch_if_agreed(workspace, workspace.agent())
        trouble = fetched.why
    except FleetError as why:
        trouble = str(why)
        if isinstance(why, RemoteUnavailable):
            stands = "The workspace stands; `fleet init --remote URL` names another address"
            trouble += f". {'This machine works offline until then' if why.is_offline else stands}"
            code = 0 if why.is_offline else why.exit_code
    if trouble:
        note(f"the clan's lessons are not here yet: {trouble}")
        return code
    lessons = finding.counted(workspace, reflecting.current_clusters(workspace))
    number = workspace.discoveries.count()
    if workspace.tree.head() and (lessons or number):
        agents = {agent for lesson in workspace.patterns.lessons() for agent in lesson.agents()}
        by = f" from {counted(len(agents), 'agent')}" if agents else ""
        entries = counted(number, "discovery")
        is_more_here = workspace.agents_with_notes() or workspace.db.outgoing()  # private, or never sent there
        known_by = f"{fetched.remote} and this folder know" if is_more_here else f"{fetched.remote} knows"
        echo(f"{known_by} {counted(lessons, 'lesson')}{by} and {entries}")
    else:
        echo(f"{fetched.remote} answers, and knows nothing yet")
    return code


def _offer_embedding(workspace: Workspace, *, yes: bool, is_new: bool) -> None:
    embeddings = Embeddings(workspace)
    state, endpoint = embeddings.state, embeddings.hint
    if state == "missing" and is_new:
        echo("optional: with the extra `semantic`, lessons are found by what they mean, too: `fleet doctor` says how")
    question = f"Send the clan's lessons to {endpoint}, so that they are found by what they mean?"
    if state == "unagreed" and output.is_agreed(question, yes=yes):
        embeddings.agree()
        missing = f", once the extra `semantic` is here: {embeddings.hint}" if embeddings.hint else ""
        echo(f"lessons are embedded by {endpoint}{missing}")


def _offer_webhook(workspace: Workspace, *, yes: bool) -> None:
    if not (host := Notices(workspace).unagreed()):
        return
    question = f"Send a message to {host} whenever a reflection is done or something waits for you?"
    if not output.is_agreed(question, yes=yes):
        echo(f"{host} gets no messages until somebody agrees to it here: `fleet init` asks on a terminal")
        return
    try:
        Notices(workspace).agree()
        echo(f"messages go to {host}")
    except UsageError as why:
        note(f"[notify] webhook: {why}")


# --- agent hosts and shells -------------------------------------------------------------------------------------------


@app.command("install")
def _install(
    host: Host,
    project: Project = False,
    user: User = False,
    dry_run: output.DryRun = False,
    plugin_dir: Annotated[
        bool, flag("--plugin-dir", "Print where the plugin lies, for hosts that load one; change nothing.")
    ] = False,
) -> bool:
    """Set up an agent host, so that the loop runs by itself. Doing it twice changes nothing."""
    install.check_host(host)
    if plugin_dir:
        folder = str(install.PLUGIN)
        output.show({"plugin": folder}, folder)
        return False
    file = _file(host, project=project, user=user)
    has_changed = _show_changes(
        file.install(dry_run=dry_run),
        f"{file.path} calls fleet now, from the next session on; "
        f"`fleet uninstall {host}{' --user' * user}` takes that out again",
        f"{file.path} calls fleet already; nothing was changed",
        dry_run=dry_run,
    )
    if not (dry_run or output.chosen.as_json):
        has_changed |= _ask_to_reflect(file.host.client)
    _note_what_lacks(file, host)
    if which("fleet") is None:
        note("`fleet` is not on the PATH: until it is, the hooks do nothing. `uv tool install` or pipx puts it there")
    return has_changed


@app.command("uninstall")
def _uninstall(
    host: Host,
    project: Project = False,
    user: User = False,
    dry_run: output.DryRun = False,
) -> bool:
    """Take fleet's hooks, skill and slash commands out, and nothing else. No lesson is touched."""
    install.check_host(host)
    file = _file(host, project=project, user=user)
    team = ". Committed, this holds for all who pull it; FLEET_DISABLED=1 turns fleet off for you alone"
    return _show_changes(
        file.uninstall(dry_run=dry_run),
        f"{file.path} does not call fleet any more; what was learned stays where it is{team * (not user)}",
        f"{file.path} does not call fleet; nothing was changed",
        dry_run=dry_run,
    )


@app.command("hook")
def _hook(event: Annotated[str, argument("EVENT", "SessionStart, PreToolUse, ...")]) -> None:
    """Answer a host's hook: its payload on stdin. Hosts call this; exits 0 whatever happens, or 2 to block a tool."""
    raise typer.Exit(hook.main([event]))


@app.command("completion")
def _completion(
    shell: Annotated[str, argument("SHELL", "bash, zsh or fish.", SHELLS)],
) -> None:
    """Print a completion script. In bash: `source <(fleet completion bash)`, best in ~/.bashrc."""
    # Printed, never installed: a shell's files are a person's.
    if shell not in SHELLS:
        raise UsageError(f"there is a script for {', '.join(SHELLS)}, not for {shell[:40]!r}")
    echo(get_completion_script(prog_name="fleet", complete_var=output.COMPLETING, shell=shell), as_is=True)


def _note_what_lacks(file: SettingsFile, host: str) -> None:
    if off := Calls.of(file.root, host).off:
        note(f"{off} turns every hook off: change that, if hooks should run")
    if file.host.note:
        note(file.host.note)
    if file.root and git.output(file.root, "check-ignore", "--", str(file.path)):
        note(f"git ignores {file.path}: nobody who clones the project gets it, unless `git add --force` commits it")


def _file(host: str, *, project: bool, user: bool) -> SettingsFile:
    if project and user:
        raise UsageError("--project or --user, not both. Nothing was changed")
    return SettingsFile.of(None if user else output.chosen.root(), host)


def _ask_to_reflect(client: str) -> bool:
    """Ask once whether the host's own model may look back on sessions, naming its cost; return if a person chose."""
    with suppress(NoError), output.opened() as workspace:
        if not session_end.Choice(workspace).is_open_to(client):
            return False
        limits = session_end.Choice(workspace).settings
        offer = (
            f"When a session ends, fleet writes down what it taught, by fixed rules and at no cost. {client}'s own "
            f"model would find more, for at most ${limits.max_usd:g} a session and ${limits.daily_usd:g} a day; it "
            "would read the session, without the secrets that fleet knows"
        )
        if not sys.stdin.isatty():
            note(f"{offer}. To agree, a person runs `fleet reflect --use {client}`")
            return False
        is_yes = typer.confirm(f"{offer}. May it?", default=False)
        session_end.Choice(workspace).choose(client if is_yes else session_end.RULES)
        return True
    return False


def _show_changes(done: Sequence[FileChange], new: str, old: str, *, dry_run: bool) -> bool:
    """Show the changes of the settings, the first file, and of the pages beside them; return whether any changed."""
    if dry_run:
        for diff in filter(None, (Edit(str(each.path), each.before, each.after).diff for each in done)):
            echo(diff, as_is=True)
        note("nothing was changed")
    else:
        echo(new if any(each.is_other for each in done) else old)
        for page in done[1:]:
            if page.is_theirs:
                note(f"{page.path} is not as fleet wrote it: it was left alone")
            elif page.is_other:
                echo(f"{'wrote' if page.after else 'took out'} {page.path}")
    changed = [str(each.path) for each in done if each.is_other]
    left = [str(each.path) for each in done if each.is_theirs]
    output.show({"changed": changed, "left": left, "dry_run": dry_run}, ())
    return bool(changed)


# --- settings ---------------------------------------------------------------------------------------------------------


@app.command("config", context_settings={"ignore_unknown_options": True})  # a value may be a negative number
def _config(
    action: Annotated[str, argument("[get|set]", "None: list all.", ("get", "set"))] = "",
    name: Annotated[str, argument("[KEY]", "A setting, section.key; or, to get, a section.", config.find(""))] = "",
    value: Annotated[str | None, argument("[VALUE]", 'Text, or TOML: 3, true, ["a", "b"]; "" is empty.')] = None,
) -> None:
    """Show the settings of fleet.toml, or set one. Comments, and all else in the file, stay as they are."""
    if (action, bool(name), value is None) not in {("", False, True), ("get", True, True), ("set", True, False)}:
        usage = "`fleet config` lists the settings; `fleet config get KEY`, or `set KEY VALUE`"
        raise UsageError(f"{usage}. Nothing was changed")
    with output.opened() as workspace:
        if action == "set":
            ((name, parsed),) = setup.configure(workspace, {name: value or ""}).items()
            output.show({"name": name, "value": parsed}, f"{name} = {config.as_toml(parsed)}")
            return
        names = config.find(name)
        settings = [each for each in config.settings(workspace.config_file) if each.name in names]
        rows: list[str] | list[output.Row] = [_setting_row(each) for each in settings]
        if [name] == names:
            rows = [each.value if isinstance(each.value, str) else _as_text(each.value) for each in settings]
        output.show({"settings": [each._asdict() for each in settings]}, rows)


def _as_text(value: Any) -> str:
    return "not set" if value is None else config.as_toml(value)


def _setting_row(setting: Any) -> output.Row:
    value = output.cleaned(_as_text(setting.value))
    value = value if len(value) <= _VALUE_CHARS_MAX else f"{value[:_VALUE_CHARS_MAX]}..."
    return (f"{setting.name:<32} ", "bold" if setting.is_set else ""), (value, "" if setting.is_set else "dim")
