"""Leaving a clan: what stays in its remote, what stays here, and how to come back."""

from dataclasses import dataclass

from fleet.cli import desk
from fleet.keep import config, consent
from fleet.keep.reading import KINDS, Read
from fleet.keep.workspace import Workspace


@dataclass(frozen=True, slots=True)
class Stays:
    """What a machine that leaves has in its clan's remote, and what it never sent there."""

    remote: str
    branch: str
    replicas: list[str]
    waiting: int

    def told(self) -> list[str]:
        """Return it as lines for a person."""
        who = ", ".join(self.replicas) or "nobody here"
        lines = [
            f"in {self.remote}, branch {self.branch}, stays all that was sent, under the names of who wrote it ({who})",
            "leaving takes nothing back; `fleet retire` and `fleet purge` do, before it",
            "here stays every line: this clan's lessons as last fetched, the logs, all of agents/",
        ]
        if self.waiting:
            lines.append(f"{desk.counted(self.waiting, 'line')} never went out: `fleet sync` first, if it should")
        return lines


def what_stays(workspace: Workspace) -> Stays | None:
    """Return what stays in the remote; None when this machine is in no clan."""
    from fleet.cli.standing import standing

    found = standing(workspace, "")
    is_in = bool(workspace.config.share.remote or consent.is_given_to_any(workspace))
    if not found["remote"] or not is_in:
        return None
    return Stays(found["remote"], found["branch"], _sent_by(workspace), found["waiting"]["lines"])


def _sent_by(workspace: Workspace) -> list[str]:
    """Return our replica ids that the fetched tree has a word of."""
    ours = {replica.name for replica in workspace.replicas().replicas}
    found: set[str] = set()
    for kind in KINDS:
        for path in workspace.store.paths(kind, workspace.store.base):
            for raw, _ in workspace.store.entries(kind, path, Read(), workspace.store.base):
                found |= {name for name in ours - found if name.encode() in raw}
    return sorted(found)


def part(workspace: Workspace) -> list[str]:
    """Forget the remote on this machine; return what was done, and how to come back.

    The consent goes first: whatever happens after that, nothing is sent. ``fleet.toml`` may be the project's, and then
    it speaks for others as well: it is left alone.
    """
    from fleet.cli.checkup import asked

    share = workspace.config.share
    with workspace.disk.lock(workspace.local / "locks" / "sync.lock"):
        # The mark goes too: whoever comes back, or joins another clan, reads the whole tree again.
        consent.withdraw(workspace)
        workspace.state.put(mark="", last_sync="", pulled="")
        if not share.remote:
            done = "this machine left; the origin around this folder is not asked any more"
        elif asked(workspace, "ls-files", "--", config.FILE_NAME):
            done = (
                f"this machine left; {config.FILE_NAME} is in the project's git, names the remote for others, and stays"
            )
        else:
            text = workspace.config_file.read_text("utf-8-sig")
            workspace.disk.replace(workspace.config_file, config.with_remote(text, "", share.branch).encode())
            done = f"this machine left; {config.FILE_NAME} names no remote any more"
    return [
        done,
        "`fleet init --remote URL` comes back, and nothing counts twice",
        "another clan that is joined from this folder gets all that is here: begin in a new folder if it should not",
    ]
