"""Journal of the work on a branch: append-only, in the order of time, for the next agent and for people.

Each branch has one journal, headed ``# JOURNAL — branch``. The branch that wrote first has
``agents/<name>/JOURNAL.md``, where other readers of this format look; others have
``agents/<name>/journals/<branch>.md``. A ``JOURNAL.md`` without such a heading belongs to every branch. Times are UTC.
"""

import os
import re
import shlex
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple

from fleet.learn import attempts
from fleet.learn.attempts import AttemptLog, BlockedCommand
from fleet.learn.inputs import Text
from fleet.model.errors import NoError, UsageError
from fleet.store import git, homes
from fleet.store.workspace import Workspace
from fleet.text import markdown, screening, tables
from fleet.text.screening import for_terminal, one_line, redact

FILE_NAME = "JOURNAL.md"
FOLDER = "journals"
NO_BRANCH = "main"
HANDOVER_LINES = 50
BRANCH_CHARS_MAX = 200
WIDTH = 64
"""Columns of a declaration's block."""
STREAKS_SHOWN_MAX = 20
WAY_OUT = 'fleet mutate M5 --failed "what does not work" --switch "what you do instead" --why "why it should work"'

_CHECKOUTS_MAX = 200
_HEADING = re.compile(r"#[ \t]+JOURNAL[ \t]+[—–-]+[ \t]+(?P<branch>.*\S)[ \t]*")
_NOT_IN_SLUG = re.compile(r"[^a-z0-9._-]+")
_WORDS_SHOWN_MAX = 160


class _Written(NamedTuple):
    """Path and branch of an entry that was written, and the kinds of secrets that were removed from it."""

    path: Path
    branch: str
    secrets: tuple[str, ...]


def _branch_of(root: Path) -> tuple[str, bool]:
    """Return the git branch that is worked on in a folder, and whether HEAD has left it for a commit.

    During a rebase or a bisection it is the branch that git returns to; on another detached HEAD the last branch, or
    the short commit if no branch is known. Without a repository: ``main``.
    """
    branch = git.output(root, "symbolic-ref", "--short", "HEAD") or _existing(root, _in_progress(root))
    checkouts = "" if branch else git.output(root, "log", "-g", "--format=%gs", f"-{_CHECKOUTS_MAX}", "HEAD")
    left = _existing(root, re.findall(r"(?m)^checkout: moving from (\S+) to", checkouts))
    head = branch or left or git.output(root, "rev-parse", "--short=7", "HEAD")
    shown = one_line(screening.strip_controls(head))[:BRANCH_CHARS_MAX]
    return markdown.escape(redact(shown)) or NO_BRANCH, bool(left)


def _in_progress(root: Path) -> Iterator[str]:
    """Yield the names to which git returns after a rebase or a bisection, during which HEAD is detached."""
    files = ("rebase-merge/head-name", "rebase-apply/head-name", "BISECT_START")
    paths = git.output(root, "rev-parse", *(word for each in files for word in ("--git-path", each)))
    for path in paths.splitlines():
        data = homes.read(str(root / path), 4 * BRANCH_CHARS_MAX)
        yield data.decode("utf-8", "replace").strip().removeprefix("refs/heads/")


def _existing(root: Path, names: Iterable[str]) -> str:
    """Return the first of these names that is a branch's, "" for none."""
    named = (each for each in dict.fromkeys(names) if each and not re.fullmatch(r"[0-9a-f]{40,64}", each))
    return next((each for each in named if git.output(root, "rev-parse", "--verify", f"refs/heads/{each}")), "")


def _checkout_of(root: Path) -> Path:
    """Return the folder whose branch is worked on: the root, or this process's folder in a worktree of the root."""
    try:
        folder = Path.cwd()
        if not Path(homes.root_around(os.fspath(folder)) or os.sep).samefile(root):
            return root
    except OSError:
        return root
    return folder if _repository(folder) == _repository(root) else root


def _repository(folder: Path) -> str:
    """Return the git folder that all worktrees of a repository share, "" without a repository."""
    common = git.output(folder, "rev-parse", "--git-common-dir")
    return os.path.realpath(folder / common) if common else ""


def _is_named(command: str, text: str) -> bool:
    """Return whether a text has the words of a command."""
    return bool(command) and re.search(rf"(?<!\w){re.escape(command)}(?!\w)", text) is not None


def _slug(branch: str) -> str:
    """Return a file's name for a branch: readable, and no two branches share one."""
    plain = _NOT_IN_SLUG.sub("-", branch.lower()).strip("-.")[:60]
    if plain and plain == branch:
        return plain
    return f"{plain or 'branch'}-{blake2b(branch.encode(), digest_size=4).hexdigest()}"


def _owner(data: bytes) -> str:
    """Return the branch that a journal's heading names; "" for none."""
    for line in data.decode("utf-8-sig", "replace").splitlines()[:20]:
        if match := _HEADING.fullmatch(line.strip()):
            return match["branch"]
    return ""


class _Strategy(NamedTuple):
    """One of the eight ways out of a stuck approach, ``M1`` to ``M8``, with its name here (``[attempts] names``)."""

    code: str
    name: str
    when: str
    example: str


_DATA = str(Path(__file__).with_name("data") / "mutations.toml")
STRATEGIES = tuple(_Strategy(code, **fields) for code, fields in tables(_DATA).items())


class Declaration(NamedTuple):
    """A declaration as it was written, and the kinds of secrets that were removed from it.

    ``opened``: the commands whose doors it opens, or whose failures it is about; of each family the last one.
    """

    id: str
    strategy: _Strategy
    path: Path
    block: str
    failed: str
    opened: tuple[str, ...]
    secrets: tuple[str, ...]


class Proposal(NamedTuple):
    """A mutation that worked, with its lesson (which names the error, if it is known) and the command to log it.

    A sleep logs the same words, so it is one lesson, whoever logs it first.
    """

    id: str
    code: str
    name: str
    failed: str
    switch: str
    why: str
    pattern: str
    command: str


class Journal:
    """Journals of an agent, and the mutations that it declares in them.

    Methods that write are durable before they return. They raise ``UsageError`` if a field has no words or nothing can
    be written here, ``RefusedError`` for a field that is too long, and ``DiskError`` if the disk was not reached.
    """

    def __init__(self, workspace: Workspace, agent: str) -> None:
        self._workspace = workspace
        self._home = workspace.home(agent)
        self._agent = agent
        self._log = AttemptLog(workspace.root, agent)

    def write(
        self,
        title: str,
        intent: str = "",
        approach: str = "",
        failed: Sequence[str] = (),
        after: Sequence[str] = (),
        ok: Sequence[str] = (),
        state: str = "",
    ) -> _Written:
        """Add an entry to the journal of the branch."""
        secrets = set[str]()
        named = _entered(secrets, "title", [title])
        if not named:
            raise UsageError("--title has no words in it; nothing was written. Say what you worked on")
        tried = [f"❌ Failed: {text}" for text in _entered(secrets, "failed", failed)]
        then = [f"→ {text}" for text in _entered(secrets, "next", after)]
        # If there are as many of both, they are paired: each failure with what was done after it.
        is_paired = len(tried) == len(then)
        steps = [row for pair in zip(tried, then, strict=True) for row in pair] if is_paired else tried + then
        now = self._workspace.wall()
        rows = [
            f"## {now[:10]} {now[11:16]} — {named[0]}",
            *(f"Intent: {text}" for text in _entered(secrets, "intent", [intent])),
            *(f"Approach: {text}" for text in _entered(secrets, "approach", [approach])),
            *steps,
            *(f"✅ {text}" for text in _entered(secrets, "ok", ok)),
            *(f"Current state: {text}" for text in _entered(secrets, "state", [state])),
        ]
        path, branch = self._append("\n".join(rows))
        return _Written(path, branch, tuple(sorted(secrets)))

    def _append(self, block: str, *, is_new: bool = True) -> tuple[Path, str]:
        """Add a screened block to the journal of the branch; return its path and the branch.

        ``is_new``: an empty line goes before it; otherwise it belongs to what the journal ends with.
        """
        if self._workspace.is_read_only:
            raise UsageError("this workspace is ephemeral: it is only read. Nothing was written")
        with self._workspace.log_lock(self._agent):
            path, branch = self.of_branch()
            known = self._workspace.files.read(path)
            head = "" if known else f"# JOURNAL — {branch}\n\n"
            gap = "\n" if known and is_new and not known.endswith(b"\n\n") else ""
            self._workspace.files.append(path, f"{head}{gap}{block}\n".encode())
        return path, branch

    def all(self) -> list[Path]:
        """Return the agent's journals, the first one before the others. Links are left alone."""
        folder = self._home / FOLDER
        paths = [self._home / FILE_NAME, *(() if folder.is_symlink() else sorted(folder.glob("*.md")))]
        return [path for path in paths if path.is_file() and not path.is_symlink()]

    def strategies(self) -> tuple[_Strategy, ...]:
        """Return the eight strategies under their names here."""
        return _named(self._workspace.config.attempts.names)

    def strategy(self, named: str) -> _Strategy:
        """Return the strategy with a code, or a name; raise ``UsageError`` for any other."""
        folded = named.strip().casefold()
        for each in self.strategies():
            if folded in (each.code.casefold(), each.name.casefold()):
                return each
        raise UsageError(
            f"there is no mutation {named[:40]!r}; the codes are M1 to M8. Nothing was written. "
            "`fleet mutate --list` says which is for what"
        )

    def of_branch(self) -> tuple[Path, str]:
        """Return the path of the journal of the branch that is worked on here, which may not exist, and the branch."""
        branch, has_left = _branch_of(_checkout_of(self._workspace.root))
        if has_left:
            self._workspace.warn(f"HEAD is on no branch: the journal of {branch}, where it was last, goes on")
        first = self._home / FILE_NAME
        owner = _owner(self._workspace.files.read(first))
        if owner in ("", branch):
            return first, branch
        return self._home / FOLDER / f"{_slug(branch)}.md", branch

    def last_lines(self) -> list[str]:
        """Return the end of the journal of the branch, screened."""
        path, _ = self.of_branch()
        text = self._workspace.files.read(path).decode("utf-8-sig", "replace")
        # Screened whole: a secret may run over two lines.
        clean = screening.redact(screening.strip_controls(text.replace("\r\n", "\n")))
        lines = clean.rstrip("\n").split("\n")[-HANDOVER_LINES:] if clean.strip() else []
        return [screening.for_terminal(line) for line in lines]

    def declare(self, session: str, code: str, failed: str, switch: str, why: str) -> Declaration:
        """Declare a mutation in the journal, and open the closed doors for one more try.

        Without a session it is for all sessions of the agent: a command line does not know the host's.
        """
        strategy, secrets = self.strategy(code), set[str]()
        given = {"failed": failed, "switch": switch, "why": why}
        texts = {name: "".join(_entered(secrets, name, [text])) for name, text in given.items()}
        if empty := next((name for name, text in texts.items() if not text), ""):
            raise UsageError(
                f"--{empty} is missing, or has no words in it; nothing was written. All three make a declaration"
            )
        failing, limit = self._log.state().of(session), self._workspace.config.attempts.limit
        # A declaration is about closed doors; where there are none, about all failures.
        closed = [streak for streak in failing if streak.count >= limit]
        stuck = closed or failing
        # The words may name a command or family; if they name none, they must be about the closed doors.
        named = [each for each in failing if _is_named(each.last.command, failed) or _is_named(each.family, failed)]
        block = _block(strategy, max((streak.count for streak in named or closed), default=0), texts)
        path, _ = self._append(block)
        id_, opened = f"m-{self._workspace.world.entropy(4).hex()}", {each.family: each.last.command for each in stuck}
        about = {"id": id_, "session": session, "families": [*opened], "code": strategy.code, "name": strategy.name}
        self._log.note_declared({**about, **texts})
        return Declaration(id_, strategy, path, block, texts["failed"], (*opened.values(),), tuple(sorted(secrets)))

    def record_success(self, mutation: dict[str, Any], proof: str) -> None:
        """Note that a mutation worked: in the log of attempts, and as a line of the journal.

        ``proof``: the command that succeeded, or the agent's words.
        """
        mutation["name"] = mutation["name"] or self.strategy(mutation["code"]).name  # a heading by hand may have none
        self._log.note_won(mutation)
        about = f"{mutation['code']} ({mutation['name']}) worked on: {_short(mutation['failed'])}"
        shown = attempts.fitting(proof, attempts.COMMAND_CHARS_MAX)
        self._append(f"✅ {about}{f' — {shown}' if shown else ''}", is_new=False)

    def worked(self, session: str, proof: str) -> dict[str, Any]:
        """Record that the newest pending mutation worked, and return it; raise ``NoError`` if none is pending."""
        declared = self._log.state().declared.values()
        of_session = (each for each in declared if not session or each["session"] in ("", session))
        waiting = [each for each in of_session if not each.get("superseded")]
        if not waiting:
            raise NoError("no declared mutation waits for its success; nothing was written")
        self.record_success(waiting[-1], "".join(_entered(set(), "ok", [proof])))
        return waiting[-1]

    def proposals(self) -> list[Proposal]:
        """Return the mutations that worked and are no pattern yet, oldest first, each with a ready command."""
        won = self._log.state().won
        if not won:
            return []
        logged = self._workspace.files.page(self._home / "corrections.md")
        return [_proposal(event) for event in won.values() if str(event["id"]).encode() not in logged]

    def open_attempts(self, session: str = "") -> list[dict[str, Any]]:
        """Return the streaks of failures that have not ended, newest first; of all sessions if none is named.

        The fields are those of ``fleet handover --json``; ``closed``: the same command would be stopped now.
        """
        settings = self._workspace.config.attempts
        limit = 10**9 if settings.off else settings.limit
        streaks = sorted(self._log.state().of(session), key=lambda streak: streak.last.at_ns, reverse=True)
        return [
            {
                "session": each.session,
                "family": each.family,
                "command": each.last.command,
                "error": each.output,
                "failures": each.count,
                "closed": each.is_closed(limit),
            }
            for each in streaks[:STREAKS_SHOWN_MAX]
        ]


def _entered(secrets: set[str], name: str, texts: Sequence[str]) -> list[str]:
    """Return fields screened, one line each, without empty ones; add the kinds of their secrets to ``secrets``."""
    entered = [Text.enter(name, text) for text in texts]
    secrets.update(kind for each in entered for kind in each.secrets)
    return [text for each in entered if (text := markdown.escape(each.text))]


def message(blocked: BlockedCommand) -> str:
    """Return the text for an agent whose command is stopped: what happened, what it means, and the ways out."""
    rows = Path(__file__).with_name("data").joinpath("stopped.txt").read_text("utf-8")
    output, count = blocked.streak.output or "(no output)", blocked.streak.count
    text = rows.format(command=blocked.tried.command, count=count, output=output, way_out=WAY_OUT)
    names = (f"  {each.code} {each.name}: {each.when}" for each in _named(blocked.names))
    return redact(for_terminal("\n".join([text.rstrip("\n"), *names])))


def _named(names: Mapping[str, str]) -> tuple[_Strategy, ...]:
    return tuple(each._replace(name=names.get(each.code) or each.name) for each in STRATEGIES)


def _block(strategy: _Strategy, times: int, texts: Mapping[str, str]) -> str:
    rows = [f"## MUTATION: {strategy.code} ({strategy.name})"]
    often = f"{times}x " if times else ""
    for label, name in ((f"Failed {often}on: ", "failed"), ("Switching to: ", "switch"), ("Rationale: ", "why")):
        text, indent = f"{label}{texts[name]}", " " * len(label)
        rows += textwrap.wrap(text, WIDTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
    return "\n".join(rows)


def _proposal(event: dict[str, Any]) -> Proposal:
    keys = ("code", "name", "failed", "switch", "why", "error")
    code, name, failed, switch, why, error = (one_line(redact(for_terminal(str(event.get(key, ""))))) for key in keys)
    pattern = f"When {_short(failed)} fails{f' with {_short(error)}' if error else ''}, {_short(switch)}"
    words = {
        "--wrong": failed,
        "--right": switch,
        "--pattern": pattern,
        "--source": f"mutation {code} ({name}) {event['id']}",
    }
    command = " ".join(["fleet correct", *(f"{option} {shlex.quote(text)}" for option, text in words.items())])
    return Proposal(str(event["id"]), code, name, failed, switch, why, pattern, command)


def _short(text: str) -> str:
    return screening.shortened(text, _WORDS_SHOWN_MAX)
