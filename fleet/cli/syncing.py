"""A sync as it is typed: who syncs, with which remote, and what is told of it. Without the parser's import."""

import sys
from typing import TYPE_CHECKING

from fleet.cli import desk

if TYPE_CHECKING:
    from fleet.cli.exchanging import Synced
    from fleet.keep.workspace import Workspace
    from fleet.share.meanwhile import Meanwhile
    from fleet.share.remote import Remote
    from fleet.share.tree import Outgoing

EXIT_REFUSED = 3


def sync(*, dry_run: bool = False, yes: bool = False, agent: str = "", directory: str = "") -> None:
    """Pull, join, push and render. Afterwards this machine and the clan have the same lessons."""
    from fleet.share.meanwhile import Meanwhile

    with desk.opened(directory) as workspace:
        take_seat(workspace, agent)
        if dry_run:
            from fleet.cli import wiring
            from fleet.share import exchange

            _print_outgoing(exchange.preview(workspace, wiring.hooks(workspace)))
            return
        if is_paused(workspace, "synced"):
            return
        meanwhile = Meanwhile()
        remote = clan_remote(workspace, yes=yes, meanwhile=meanwhile)
        from fleet.cli import exchanging

        with workspace.disk.lock(workspace.local / "locks" / "sync.lock"):
            outcome = exchanging.sync(workspace, remote, meanwhile=meanwhile)
        _tell(outcome, remote)
        if outcome.is_partial:
            raise SystemExit(EXIT_REFUSED)


def _print_outgoing(out: "Outgoing") -> None:
    # The lines alone on stdout, as they would go out: `fleet sync --dry-run | jq .set.text`.
    for path, lines in out.lines.items():
        desk.note(f"{path}: {desk.counted(len(lines), 'line')}")
        for raw in lines:
            desk.say(raw.decode("utf-8", "backslashreplace"))
    for held_back in out.withheld:
        desk.note(f"stays here: a line of {held_back.path} {held_back.reason}")
    desk.note(f"{desk.counted(out.count, 'line')} would go out; nothing was sent")
    if out.withheld:
        raise SystemExit(EXIT_REFUSED)


def take_seat(workspace: "Workspace", agent: str) -> None:
    """Whoever syncs has a replica, so that its log is settled; but for a job that only reads."""
    named = desk.agent_in(workspace, agent)
    if not workspace.is_read_only:
        with workspace.writing(named):
            pass


def is_paused(workspace: "Workspace", done: str) -> bool:
    """Tell whether sharing is paused here, and say so: what was asked for was not done."""
    from fleet.keep import pause

    held = pause.current(workspace)
    if held:
        desk.say(f"not {done}: sharing is paused {held}. Everything is kept here; `fleet resume` ends the pause")
    return held is not None


def clan_remote(
    workspace: "Workspace", *, yes: bool, may_ask: bool = True, meanwhile: "Meanwhile | None" = None
) -> "Remote | None":
    """Return the clan's remote, once somebody on this machine has agreed to it; None when it left the clan.

    Args:
        workspace: where.
        yes: they agree now.
        may_ask: they can be asked.
        meanwhile: what there is to do while the remote is waited for.
    """
    from fleet.keep import consent
    from fleet.keep.errors import UsageError
    from fleet.share.git import GitRemote, check_branch, check_remote, guess_remote, redact_url

    share = workspace.config.share
    if consent.has_left(workspace):
        return None
    url = share.remote or guess_remote(workspace.root) or ""
    if not url:
        return None
    url, branch = check_remote(url), check_branch(share.branch)
    if not consent.is_given(workspace, url):
        shown = f"{redact_url(url)}, branch {branch}"
        origin = "named in fleet.toml by somebody else" if share.remote else "the origin of the repository around"
        if not yes and not (may_ask and sys.stdin.isatty()):
            raise UsageError(
                f"this clan's lessons would go to {shown} ({origin}), and nobody has agreed to that on this machine. "
                "Nothing was sent. Run `fleet sync --yes`, or name the remote: `fleet init --remote URL`"
            )
        if not yes and not _confirmed(f"Share this clan's lessons with {shown} ({origin})?"):
            raise UsageError("nothing was sent. Name another remote with `fleet init --remote URL`")
        consent.give(workspace, url)
    return GitRemote(workspace.local / "git", url, branch, timeout_s=share.wait_s, meanwhile=meanwhile)


def _tell(outcome: "Synced", remote: "Remote | None") -> None:
    lessons = desk.counted(outcome.patterns_in, "lesson")
    findings = desk.counted(outcome.discoveries_in, "discovery", "discoveries")
    if remote is None:
        desk.say("nothing was sent: no remote is named. All is kept here; `fleet init --remote URL` names one")
    else:
        verb = "exchanged, in part," if outcome.is_partial else "synced"
        desk.say(
            f"{verb} with {remote.name}: {desk.counted(outcome.out, 'line')} out; "
            f"{lessons} and {findings} new or changed in"
        )
    for number, what in (
        (outcome.withheld, "held back here by the gate: `fleet sync --dry-run` tells why"),
        (outcome.held, "held: stamped more than a day ahead of this machine's clock; tried again at every load"),
        (outcome.carried, "carried for a newer version of fleet"),
        (outcome.refused, "could not be read and went to quarantine: `fleet status` tells why"),
        (
            max(outcome.lost - outcome.waiting, 0),
            "had been lost by the remote and were sent again: its history was rewritten or reverted",
        ),
        (
            outcome.waiting,
            "only an edition can carry, and a clock that is wrong writes none: set it and run `fleet sync`",
        ),
    ):
        if number:
            desk.note(f"{desk.counted(number, 'line')} {what}")
    if outcome.edition:
        desk.say("wrote a new edition of patterns.jsonl and patterns.md")
    for text in outcome.promoted:
        desk.say(f"promoted into memory.md: {desk.cleaned(text)}")


def _confirmed(question: str) -> bool:
    import typer  # its import takes longer than most syncs need; hardly any sync asks

    return typer.confirm(question, default=False)
