"""Journal of the work on a branch: append-only, in the order of time, for the next agent and for people.

There is one journal a branch, headed ``# JOURNAL — branch``. The branch that wrote first has
``agents/<name>/JOURNAL.md``, where readers of this format look, and where a worktree with its own folder finds all of
it; others have ``agents/<name>/journals/<branch>.md``. A ``JOURNAL.md`` without such a heading belongs to every branch.
Times are UTC.
"""

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from hashlib import blake2b
from pathlib import Path
from typing import NamedTuple

from fleet.learn import inputs
from fleet.model.errors import UsageError
from fleet.store.workspace import Workspace
from fleet.text import markdown, screening

FILE_NAME = "JOURNAL.md"
FOLDER = "journals"
NO_BRANCH = "main"
HANDOVER_LINES = 50
BRANCH_CHARS_MAX = 200
GIT_FILE_BYTES_MAX = 4096

_HEADING = re.compile(r"#[ \t]+JOURNAL[ \t]+[—–-]+[ \t]+(?P<branch>.*\S)[ \t]*")
_COMMIT = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
_NOT_IN_SLUG = re.compile(r"[^a-z0-9._-]+")


class Entry(NamedTuple):
    """One entry as it was told: each of failed, next and ok may repeat."""

    title: str
    intent: str = ""
    approach: str = ""
    failed: Sequence[str] = ()
    next: Sequence[str] = ()
    ok: Sequence[str] = ()
    state: str = ""


class Written(NamedTuple):
    """The place that an entry went to, and the kinds of secrets that were taken out of it."""

    path: Path
    branch: str
    secrets: tuple[str, ...]


def write(workspace: Workspace, agent: str, told: Entry) -> Written:
    """Add an entry to the journal of the branch, durable before this returns.

    Raises:
        UsageError: no title, or nothing can be written here.
        RefusedError: a field is too long.
        DiskError: it did not reach the disk.
    """
    screened = Screened()
    title = screened.line("title", told.title)
    if not title:
        raise UsageError("--title has no words in it; nothing was written. Say what you worked on")
    failed = [f"❌ Failed: {text}" for text in screened.lines("failed", told.failed)]
    after = [f"→ {text}" for text in screened.lines("next", told.next)]
    # As many of both: what was done after each failure. Else no one can say which belongs to which.
    steps = (
        [row for pair in zip(failed, after, strict=True) for row in pair]
        if len(failed) == len(after)
        else failed + after
    )
    rows = [
        f"## {_now(workspace)} — {title}",
        *(f"{label}: {text}" for label, text in screened.labelled(Intent=told.intent, Approach=told.approach)),
        *steps,
        *(f"✅ {text}" for text in screened.lines("ok", told.ok)),
        *(f"Current state: {text}" for _, text in screened.labelled(state=told.state)),
    ]
    path, branch = append(workspace, agent, "\n".join(rows))
    return Written(path, branch, tuple(sorted(screened.secrets)))


def append(workspace: Workspace, agent: str, block: str, *, is_new: bool = True) -> tuple[Path, str]:
    """Add a screened block to the journal of the branch; return its path and the branch.

    Args:
        workspace: where.
        agent: whose journal.
        block: one or more lines.
        is_new: an empty line goes before it; otherwise it belongs to what the journal ends with.
    """
    if workspace.is_read_only:
        raise UsageError("this workspace is ephemeral: it is only read. Nothing was written")
    with workspace.log_lock(agent):
        path, branch = of_branch(workspace, agent)
        known = workspace.files.read(path)
        head = "" if known else f"# JOURNAL — {branch}\n\n"
        gap = "\n" if known and is_new and not known.endswith(b"\n\n") else ""
        workspace.files.append(path, f"{head}{gap}{block}\n".encode())
    return path, branch


def of_branch(workspace: Workspace, agent: str) -> tuple[Path, str]:
    """Return the journal of the branch that the workspace is on, whether it is there or not, and the branch."""
    branch = branch_of(workspace.root)
    first = workspace.home(agent) / FILE_NAME
    owner = _owner(workspace.files.read(first))
    if owner in ("", branch):
        return first, branch
    return workspace.home(agent) / FOLDER / f"{slug(branch)}.md", branch


def all_of(home: Path) -> list[Path]:
    """Return the journals in an agent's folder, the first one before the others. Links are left alone."""
    others = home / FOLDER
    found = [home / FILE_NAME]
    if others.is_dir() and not others.is_symlink():
        found += sorted(others.glob("*.md"))
    return [path for path in found if path.is_file() and not path.is_symlink()]


def last_lines(workspace: Workspace, agent: str, count: int = HANDOVER_LINES) -> list[str]:
    """Return the end of the journal of the branch, each line fit to leave."""
    path, _ = of_branch(workspace, agent)
    text = workspace.files.read(path).decode("utf-8-sig", "replace")
    # Screened whole: a secret may run over two lines.
    clean = screening.redact(screening.strip_controls(text.replace("\r\n", "\n")))
    return [screening.for_terminal(line) for line in clean.rstrip("\n").split("\n")[-count:]] if clean.strip() else []


def branch_of(root: Path) -> str:
    """Return the git branch around a folder, read from git's own files: no process is started.

    A worktree's ``.git`` is a file that says where its ``HEAD`` stands. While a rebase runs it is the branch being
    rebased. Detached: the short commit. Without a repository, or where it cannot be told: ``main``.
    """
    for folder in (root, *root.parents):
        dot_git = folder / ".git"
        if dot_git.is_dir():
            return _branch_in(dot_git)
        told = _first_line(dot_git)
        if told.startswith("gitdir:"):
            return _branch_in(folder / told.removeprefix("gitdir:").strip())
    return NO_BRANCH


def _branch_in(git: Path) -> str:
    head = _first_line(git / "HEAD")
    if _COMMIT.fullmatch(head):
        rebased = (_first_line(git / name / "head-name") for name in ("rebase-merge", "rebase-apply"))
        head = next((f"ref: {name}" for name in rebased if name.startswith("refs/heads/")), head)
        if _COMMIT.fullmatch(head):
            return head[:7]
    ref = head.removeprefix("ref:").strip()
    branch = screening.one_line(screening.strip_controls(ref.removeprefix("refs/heads/")))
    if not head.startswith("ref:") or not branch or branch == ".invalid":  # as a reftable leaves it
        return NO_BRANCH
    return markdown.escape(screening.redact(branch[:BRANCH_CHARS_MAX]))


def _first_line(path: Path) -> str:
    try:
        with path.open("rb") as file:
            data = file.read(GIT_FILE_BYTES_MAX)
    except OSError:
        return ""
    return data.decode("utf-8", "replace").split("\n", 1)[0].strip()


def slug(branch: str) -> str:
    """Return a file's name for a branch: readable, and no two branches share one."""
    plain = _NOT_IN_SLUG.sub("-", branch.lower()).strip("-.")[:60]
    if plain and plain == branch:
        return plain
    return f"{plain or 'branch'}-{blake2b(branch.encode(), digest_size=4).hexdigest()}"


def _owner(data: bytes) -> str:
    """Return the branch that a journal is headed with, "" when it names none."""
    for line in data.decode("utf-8-sig", "replace").splitlines()[:20]:
        if found := _HEADING.fullmatch(line.strip()):
            return found["branch"]
    return ""


def _now(workspace: Workspace) -> str:
    return datetime.fromtimestamp(workspace.world.wall_ms() / 1000, UTC).strftime("%Y-%m-%d %H:%M")


class Screened:
    """The border for the fields of one entry: one line each, no secrets, no comment marks.

    Attributes:
        secrets: the kinds that were taken out so far.
    """

    def __init__(self) -> None:
        self.secrets: set[str] = set()

    def line(self, name: str, text: str) -> str:
        """Return one field, fit to be written.

        Raises:
            RefusedError: it is too long.
        """
        entered = inputs.enter(name, text)
        self.secrets.update(entered.secrets)
        return markdown.escape(entered.text)

    def lines(self, name: str, texts: Sequence[str]) -> list[str]:
        """Return a repeated field, without those that have no words."""
        return [line for line in (self.line(name, text) for text in texts) if line]

    def labelled(self, **texts: str) -> list[tuple[str, str]]:
        """Return labels and fields, without those that have no words."""
        found = ((label, self.line(label.lower(), text)) for label, text in texts.items())
        return [(label, line) for label, line in found if line]
