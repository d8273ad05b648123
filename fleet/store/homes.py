"""Homes: the folders of the agents' own files; and the root of the workspace that a folder is in.

``fleet.toml`` names the folder in which the homes lie, their place (``[files] home``). ``.fleet/homes`` has a line for
each place on this machine so far, the present one last. So a hook finds it without parsing TOML, logging goes on in the
same place while ``fleet.toml`` is unreadable, and files left in an earlier place are found. The module imports little
of the standard library, since hooks import it.
"""

# ruff: noqa: PTH110, PTH113, PTH114, PTH118, PTH119, PTH120
# Paths are texts here: pathlib alone would take 5 ms of a hook's time.
from __future__ import annotations

import os
import stat

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

CONFIG = "fleet.toml"
"""The file whose folder is a workspace's root."""

DEFAULT = "agents"
"""Default place of the homes, and their place in a backup."""

PROPOSED = "fleet-agents"
"""Place that is proposed to a project with an ``agents/`` of its own. The hyphen rules out a Python package of that
name; ``.agents/`` is in use: hosts look for skills there, and consolidation keeps its logs and topics in it."""

FILE = os.path.join(".fleet", "homes")
MEMORY = "memory.md"
"""Name of an agent's memory, in its home."""
FILES = frozenset(
    (
        *("corrections.md", MEMORY, "JOURNAL.md", "notes.jsonl", "reflections.jsonl", "inbox.jsonl"),
        *("discoveries.jsonl", "user-model.md", "checks.md", "MEMORY.md", "USER.md", ".agents.local.md"),
    )
)
"""Names of the files that fleet writes in a home."""
LOCK = ".agents/.consolidation-lock"
"""Path of the consolidation's lock, from the root."""
NOTES = (
    *(".agents.local.md", ".agents.local.md.backup*"),
    *(".agents/local.md", ".agents/logs/*.md", ".agents/topics/*.md"),
)
"""Patterns of the files with notes of all agents, from the root; an agent's own notes have these names in its home."""
_IN_FOLDERS = ("journals/*.md", "skills/*/SKILL.md", *(each for each in NOTES if "/" in each))
"""Patterns of the files that fleet writes in folders of a home."""
RESTORED = "*.restored-*"
"""Pattern of the files that a restore writes beside a different file of the same name."""
TEMPORARY = ".*.tmp"
"""Pattern of temporary files, which are written and then renamed: a process that is killed leaves one."""
FOLDERS = frozenset(each.partition("/")[0] for each in _IN_FOLDERS)
"""Names of the folders in a home whose whole content belongs to the agent."""

_BYTES_MAX = 64 * 1024
_CONFIG_BYTES_MAX = 1024 * 1024
_CHARS_MAX = 100
_PATH_BYTES_MAX = 16 * 1024
_TAKEN = frozenset((".git", ".fleet"))
_UNFIT = frozenset('\\*?[]<>|:"')


def problem(place: str) -> str:
    """Return why a place is invalid, "" for a valid one: a plain relative folder below the root."""
    parts = place.split("/")
    folded = [part.casefold().rstrip(". ") for part in parts]
    is_below = all(folded) and all(part == part.strip() for part in parts)
    is_plain = place.isprintable() and _UNFIT.isdisjoint(place) and (place.isascii() or _is_composed(place))
    if not is_below or not is_plain or len(place) > _CHARS_MAX:
        return "it is a folder below the workspace's own with a short, plain name, such as 'tools/fleet-agents'"
    if not _TAKEN.isdisjoint(folded) or folded[0] in ("clan-learnings", "fleet.toml", "~"):
        return "that place is taken"
    return ""


def _is_composed(place: str) -> bool:
    from unicodedata import is_normalized  # some tenths of a ms, which a hook need not take

    return is_normalized("NFC", place)


class Homes:
    """Present and earlier places of the homes in one workspace."""

    def __init__(self, root: str | os.PathLike[str]) -> None:
        self._root = root

    def known(self) -> list[str]:
        """Return the places of the homes on this machine in the order of use, the present one last."""
        lines = read(os.path.join(self._root, FILE), _BYTES_MAX, from_end=True).decode("utf-8", "replace").splitlines()
        return [line for line in lines if not problem(line)] or [self._in_settings() or DEFAULT]

    def current(self) -> str:
        """Return the present place of the homes, without parsing TOML."""
        return self.known()[-1]

    def is_read_only(self) -> bool:
        """Return whether nobody may write here: an ephemeral folder, and no lease."""
        register = read(os.path.join(self._root, ".fleet", "replica.toml"), _CONFIG_BYTES_MAX)
        return b"\nephemeral = true" in register and not os.environ.get("FLEET_REPLICA")

    def noted(self, place: str) -> bytes:
        """Return the new content of ``.fleet/homes`` for a place; b"" if it need not change."""
        is_noted, before = os.path.lexists(os.path.join(self._root, FILE)), self.known()
        if place == before[-1] and (is_noted or place == DEFAULT):
            return b""
        # Without the file, the homes were in the default place, if anybody has worked here.
        traces = (os.path.join(self._root, *names) for names in ((".fleet", "replica.toml"), (DEFAULT, "guest")))
        earlier = before if is_noted else [DEFAULT] if any(map(os.path.lexists, traces)) else []
        return "".join(f"{line}\n" for line in (*(old for old in earlier if old != place), place)).encode()

    def _in_settings(self) -> str:
        """Return the place in ``fleet.toml``; "" if the file does not have it in the form that fleet writes."""
        data = read(os.path.join(self._root, CONFIG), _CONFIG_BYTES_MAX)
        for line in (b"\n" + data).partition(b"\n[files]")[2].partition(b"\n[")[0].splitlines():
            key, _, value = line.decode("utf-8", "replace").partition("=")
            quoted = value.strip() if key.strip() == "home" else ""
            place = quoted[1:].partition(quoted[0])[0] if quoted else ""
            if place and not problem(place):
                return place
        return ""


def is_own(names: Sequence[str]) -> bool:
    """Return whether a path, in parts below a home, is of a file that fleet writes."""
    return names[0] in FOLDERS or names[0] in FILES or (names[0].startswith("archive-") and names[0].endswith(".md"))


def ignores(place: str) -> tuple[str, ...]:
    """Return the patterns for ``.gitignore`` of all files that fleet writes into homes in a place.

    They name files, never a whole folder: a project may have source of its own there.
    """
    patterns = (*sorted(FILES), "archive-*.md", *_IN_FOLDERS, f"**/{RESTORED}", f"**/{TEMPORARY}")
    return tuple(f"/{place}/*/{pattern}" for pattern in patterns)


def read(path: str, bytes_max: int, *, from_end: bool = False, follows: bool = False) -> bytes:
    """Return the first or last bytes of a plain file; b"" for any other, and for a link that is not to be followed.

    A pipe in its place would wait for its other end, and a device that a link leads to may never end.
    """
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | (0 if follows else os.O_NOFOLLOW))
    except OSError:
        return b""
    try:
        status = os.fstat(handle)
        start = max(status.st_size - bytes_max, 0) if from_end else 0
        return os.pread(handle, bytes_max, start) if stat.S_ISREG(status.st_mode) else b""
    except OSError:
        return b""
    finally:
        os.close(handle)


# --- the root ---------------------------------------------------------------------------------------------------------


def root_around(start: str) -> str:
    """Return the root of the workspace around a folder, the nearest ``fleet.toml`` upward; "" for none.

    A git worktree belongs to its main checkout's workspace, unless it has a register of writers of its own.
    """
    around = _upward(start)
    if around and os.path.exists(os.path.join(around, ".fleet", "replica.toml")):
        return around
    checkout = _in_main_checkout(start)
    return (_upward(checkout) if checkout else "") or around


def is_root(folder: str) -> bool:
    """Return whether a folder is a workspace's root: it has ``fleet.toml`` or a register of writers.

    A branch from before ``fleet init`` has no ``fleet.toml``; corrections are logged all the same while it is checked
    out. Where ``.fleet`` is a link there is none: a cloned repository could show any workspace here as its own.
    """
    if os.path.islink(os.path.join(folder, ".fleet")):
        return False
    return os.path.isfile(os.path.join(folder, CONFIG)) or os.path.exists(os.path.join(folder, ".fleet/replica.toml"))


def _upward(folder: str) -> str:
    while folder:
        if is_root(folder):
            return folder
        above = os.path.dirname(folder)
        folder = above if above != folder else ""
    return ""


def _in_main_checkout(start: str) -> str:
    """Return the folder of the main checkout that corresponds to one in a worktree; "" outside worktrees.

    git's files are read without git: the worktree's ``.git`` names its folder in the repository, which must name that
    ``.git`` in turn. Else a folder from elsewhere could name any workspace on this machine.
    """
    top = start
    while not os.path.lexists(mark := os.path.join(top, ".git")):
        top, below = os.path.dirname(top), top
        if top == below:
            return ""
    if not (pointer := _text(mark)).startswith("gitdir: "):
        return ""
    own = os.path.join(top, pointer.removeprefix("gitdir: "))
    common, back = _text(os.path.join(own, "commondir")), _text(os.path.join(own, "gitdir"))
    repository = os.path.realpath(os.path.join(own, common))
    if not common or not back or os.path.basename(repository) != ".git":
        return ""
    if os.path.realpath(os.path.join(own, back)) != os.path.realpath(mark):
        return ""
    return os.path.normpath(os.path.join(os.path.dirname(repository), os.path.relpath(start, top)))


def _text(path: str) -> str:
    """Return the text of one of git's small files; "" for a folder or an unreadable file."""
    return os.fsdecode(read(path, _PATH_BYTES_MAX).rstrip(b"\r\n")).replace("\0", "")
