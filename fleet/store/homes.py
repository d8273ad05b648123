"""Places: the root of the workspace around a folder, and in it the place of the agents' homes.

Each agent has a home, a folder of its own files; ``fleet.toml`` names their place (``[files] home``). ``.fleet/homes``
has a line for each place that held them on this machine, the one of now last: a hook, which parses no TOML, reads it
there; while ``fleet.toml`` cannot be read, logging goes on where it was; and files that were left in an earlier place
are found. Little of the standard library: a hook imports it.
"""

# ruff: noqa: PTH110, PTH113, PTH118, PTH119, PTH120
# Paths are texts here: pathlib alone would take 5 ms of a hook's time.
from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

CONFIG = "fleet.toml"
"""The file whose folder is a workspace's root."""

DEFAULT = "agents"
"""Default place of the homes; so they are called in a backup, wherever they are."""

PROPOSED = "fleet-agents"
"""Proposed where a project has an ``agents/`` of its own. No Python package can be called so, for its hyphen; and
``.agents/`` is others': hosts look for skills there, and consolidation keeps its logs and topics in it."""

FILE = os.path.join(".fleet", "homes")
MEMORY = "memory.md"
"""The memory of an agent, in its home."""
FILES = frozenset(
    (
        *("corrections.md", MEMORY, "JOURNAL.md", "notes.jsonl", "reflections.jsonl", "inbox.jsonl"),
        *("discoveries.jsonl", "user-model.md", "checks.md", "MEMORY.md", "USER.md", ".agents.local.md"),
    )
)
"""Files of an agent's own that fleet writes."""
LOCK = ".agents/.consolidation-lock"
"""Lock of the consolidation, at the root."""
NOTES = (
    *(".agents.local.md", ".agents.local.md.backup*"),
    *(".agents/local.md", ".agents/logs/*.md", ".agents/topics/*.md"),
)
"""Notes of all agents, at the root of the workspace, as patterns. So they are called in a home, too, if one has any."""
_IN_FOLDERS = ("journals/*.md", "skills/*/SKILL.md", *(each for each in NOTES if "/" in each))
"""Files in folders of an agent's own that fleet writes, as patterns."""
_RESTORED = "*.restored-*"
"""What a backup held of a file that is otherwise here."""
FOLDERS = frozenset(each.partition("/")[0] for each in _IN_FOLDERS)
"""Folders of an agent's own: all in them is the agent's."""

_BYTES_MAX = 64 * 1024
_CONFIG_BYTES_MAX = 1024 * 1024
_CHARS_MAX = 100
_PATH_BYTES_MAX = 16 * 1024
_TAKEN = frozenset((".git", ".fleet"))
_UNFIT = frozenset('\\*?[]<>|:"')


def problem(place: str) -> str:
    """Return why the homes cannot be there, "" where they can: a plain relative folder below the root."""
    parts = place.split("/")
    folded = [part.casefold().rstrip(". ") for part in parts]
    if not place or len(place) > _CHARS_MAX:
        return f"a folder has a name of 1 to {_CHARS_MAX} characters"
    if not all(folded) or any(part != part.strip() for part in parts):
        return "it is a folder below the workspace's own, such as 'tools/fleet-agents'"
    if _UNFIT.intersection(place) or not place.isprintable():
        return "it has a character that no such folder has"
    if not place.isascii() and not _is_composed(place):
        return "its characters are not composed (NFC)"
    if not _TAKEN.isdisjoint(folded) or folded[0] in ("clan-learnings", "fleet.toml", "~"):
        return "that place is taken"
    return ""


def _is_composed(place: str) -> bool:
    from unicodedata import is_normalized  # some tenths of a ms, which a hook need not take

    return is_normalized("NFC", place)


class Homes:
    """The agents' homes in one workspace: where they are, and were."""

    def __init__(self, root: str | os.PathLike[str]) -> None:
        self._root = root

    def known(self) -> list[str]:
        """Return the places that held the homes on this machine, in the order of use, the one of now last."""
        said = _read(os.path.join(self._root, FILE), _BYTES_MAX).decode("utf-8", "replace").splitlines()
        return [each for each in said if not problem(each)] or [self._in_settings() or DEFAULT]

    def current(self) -> str:
        """Return the place of the homes, as the workspace noted it last: no TOML is parsed."""
        return self.known()[-1]

    def noted(self, place: str) -> bytes:
        """Return what ``.fleet/homes`` is to hold from now on; b"" where nothing need be noted."""
        is_noted, before = os.path.lexists(os.path.join(self._root, FILE)), self.known()
        if place == before[-1] and (is_noted or place == DEFAULT):
            return b""
        # Until something is noted they were in the usual place, if anybody has worked here.
        first = (os.path.join(self._root, *names) for names in ((".fleet", "replica.toml"), (DEFAULT, "guest")))
        rest = before if is_noted else [DEFAULT] if any(map(os.path.lexists, first)) else []
        return "".join(f"{each}\n" for each in (*(each for each in rest if each != place), place)).encode()

    def _in_settings(self) -> str:
        """Return the place that ``fleet.toml`` names in the plain form in which fleet writes it, "" for none."""
        data = _read(os.path.join(self._root, CONFIG), _CONFIG_BYTES_MAX)
        for line in (b"\n" + data).partition(b"\n[files]")[2].partition(b"\n[")[0].splitlines():
            key, _, value = line.decode("utf-8", "replace").partition("=")
            place = value.strip()[1:].partition(value.strip()[:1])[0] if key.strip() == "home" else ""
            if place and not problem(place):
                return place
        return ""


def is_own(names: Sequence[str]) -> bool:
    """Tell whether a path, in parts below an agent's home, is of a file that fleet writes."""
    return names[0] in FOLDERS or names[0] in FILES or (names[0].startswith("archive-") and names[0].endswith(".md"))


def ignores(place: str) -> tuple[str, ...]:
    """Return git's patterns of all that fleet writes into homes in a place, file by file.

    Never a whole folder: a project may have source of its own in the place of the homes. Drafts of skills are an
    agent's own, too: what a person said yes to is copied to where the project has its skills.
    """
    return tuple(f"/{place}/*/{name}" for name in (*sorted(FILES), "archive-*.md", *_IN_FOLDERS, f"**/{_RESTORED}"))


def ignores_at_the_root() -> tuple[str, ...]:
    """Return git's patterns of what fleet writes at the root for this machine alone, file by file."""
    return (
        "/.fleet/",
        *(f"/{name}" for name in (*NOTES, LOCK)),
        f"/.agents.local.md{_RESTORED[1:]}",
        f"/.agents/**/{_RESTORED}",
    )


def _read(path: str, bytes_max: int) -> bytes:
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        return os.read(handle, min(bytes_max, os.fstat(handle).st_size))
    except OSError:
        return b""
    finally:
        os.close(handle)


# --- the root ---------------------------------------------------------------------------------------------------------


def root_around(start: str) -> str:
    """Return the workspace's root that a folder is in, the nearest ``fleet.toml`` upward; "" where there is none.

    A worktree of git has its main checkout's workspace, unless somebody writes in one of its own.
    """
    around = _upward(start)
    if around and os.path.exists(os.path.join(around, ".fleet", "replica.toml")):
        return around
    checkout = _in_main_checkout(start)
    return (_upward(checkout) if checkout else "") or around


def is_root(folder: str) -> bool:
    """Tell whether a folder is a workspace's root: it has the file, or a register whose file is damaged or missing.

    A branch from before ``fleet init`` has no ``fleet.toml``; what is logged while it is checked out is logged here.
    """
    return os.path.isfile(os.path.join(folder, CONFIG)) or os.path.exists(os.path.join(folder, ".fleet/replica.toml"))


def _upward(folder: str) -> str:
    while folder:
        if is_root(folder):
            return folder
        above = os.path.dirname(folder)
        folder = above if above != folder else ""
    return ""


def _in_main_checkout(start: str) -> str:
    """Return what a folder of a worktree is in the main checkout; "" for a folder of none.

    Read as git writes it, without git: the worktree's ``.git`` names its folder in the repository, which names both the
    repository and that ``.git`` again. Else a folder from elsewhere could name any workspace on this machine.
    """
    top = start
    while not os.path.lexists(mark := os.path.join(top, ".git")):
        top, below = os.path.dirname(top), top
        if top == below:
            return ""
    if not (told := _told(mark)).startswith("gitdir: "):
        return ""
    own = os.path.join(top, told.removeprefix("gitdir: "))
    common, back = _told(os.path.join(own, "commondir")), _told(os.path.join(own, "gitdir"))
    repository = os.path.realpath(os.path.join(own, common))
    if not common or not back or os.path.basename(repository) != ".git":
        return ""
    if os.path.realpath(os.path.join(own, back)) != os.path.realpath(mark):
        return ""
    return os.path.normpath(os.path.join(os.path.dirname(repository), os.path.relpath(start, top)))


def _told(path: str) -> str:
    """Return what stands in one of git's small files, "" for a folder or what cannot be read."""
    return os.fsdecode(_read(path, _PATH_BYTES_MAX).rstrip(b"\r\n")).replace("\0", "")
