"""Lessons from past sessions: what people refused and corrected there, and what failed until something mended it.

With ``[hook] auto_memory`` also what the host's own memory of the project keeps as feedback.

A proposal is what somebody said, or what a command said, in one line; nothing here words a lesson anew, and nothing is
logged that was not accepted. They are ranked: what lays down how something is done comes before what only asks.
"""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from fleet.app import learning
from fleet.hosts import sessions, transcripts
from fleet.learn.corrections import Correction, Logged
from fleet.model.errors import UsageError
from fleet.reflect import rules
from fleet.reflect.rules import Proposal
from fleet.store.workspace import Workspace
from fleet.text import dates

_MEMORY_BYTES_MAX = 64 * 1024
_MEMORY_WORTH = 6


class Past(NamedTuple):
    """Proposals from past sessions, best first, with the number of sessions, and what could not be read."""

    proposals: list[Proposal]
    sessions: int
    troubles: list[str]


def proposals(workspace: Workspace, agent: str, paths: Sequence[Path], days: float) -> Past:
    """Return what the host's past sessions of this project propose and was not accepted yet.

    Args:
        workspace: of the project.
        agent: whose log tells what was accepted.
        paths: transcripts, or folders of them; none: those that the host keeps of this project.
        days: how far back.
    """
    root = os.fspath(workspace.root)
    since_ms = workspace.world.wall_ms() - days * 86_400_000
    read: list[rules.Session] = []
    troubles: list[str] = []
    for file in sessions.files_in(paths) if paths else sessions.stored(root):
        session = sessions.read(file)
        if session.trouble:
            troubles.append(f"{file.name} {session.trouble}")
        if paths or not session.cwd or sessions.is_below(session.cwd, root):
            found = [each for each in session.events if (dates.to_ms(each.at) or 0) >= since_ms]
            if found:
                read.append(rules.Session(session.id, found, transcripts.objections(found)[0], session.cwd))
    logged = workspace.files.read(workspace.home(agent) / "corrections.md")
    kept = remembered(workspace)
    ranked = [*(kept if workspace.config.hook.auto_memory else ()), *rules.propose(read)]
    return Past([each for each in ranked if each.id.encode() not in logged], len(read), troubles)


def remembered(workspace: Workspace) -> list[Proposal]:
    """Return what the client's own memory keeps as feedback: a file a fact, its kind and what it is in its head."""
    return [each for name, page in _pages(workspace) for each in _fact(name, page)]


def memory_pages(workspace: Workspace) -> list[str]:
    """Return the pages of the client's own memory of this project."""
    return [page for _, page in _pages(workspace)]


def _pages(workspace: Workspace) -> Iterator[tuple[str, str]]:
    """Yield each page's name without its ending, and its text."""
    home = os.environ.get("CLAUDE_CONFIG_DIR") or os.fspath(Path.home() / ".claude")
    for folder in (Path(each) / "memory" for each in transcripts.folders(os.fspath(workspace.root), home)):
        for path in sorted(folder.glob("*.md")) if not folder.is_symlink() else ():
            if not path.is_symlink() and path.is_file():
                with path.open("rb") as file:
                    yield path.stem, file.read(_MEMORY_BYTES_MAX).decode("utf-8", "replace")


def _fact(name: str, page: str) -> Iterator[Proposal]:
    _, _, rest = page.partition("---\n")
    head, _, body = rest.partition("\n---")
    fields = {key.strip(): value.strip(" \"'") for key, _, value in (row.partition(":") for row in head.splitlines())}
    said = fields.get("description") or next((row for row in body.splitlines() if row.strip()), "")
    if page.startswith("---\n") and fields.get("type") == "feedback" and said:
        yield rules.proposal("", "memory", said, fields.get("name", name), "", _MEMORY_WORTH)


def chosen(found: Sequence[Proposal], wanted: str) -> list[Proposal]:
    """Return the proposals that are named: by numbers from 1 or ids, with commas between, or all.

    Raises:
        UsageError: a word that names none.
    """
    if wanted.strip() == "all":
        return list(found)
    by_name = {str(number): each for number, each in enumerate(found, 1)} | {each.id: each for each in found}
    words = [word.strip() for word in wanted.split(",") if word.strip()]
    if unknown := next((word for word in words if word not in by_name), ""):
        raise UsageError(
            f"{unknown[:40]!r} is no proposal; nothing was logged. Name numbers or ids of the table, or all"
        )
    return list({by_name[word].id: by_name[word] for word in words}.values())


def accept(workspace: Workspace, agent: str, each: Proposal) -> Logged:
    """Log a proposal as a correction of its own session."""
    told = Correction(each.wrong, each.text, each.text, source=f"past session, {each.kind} {each.id}")
    return learning.correct(workspace, agent, told, session=each.session)
