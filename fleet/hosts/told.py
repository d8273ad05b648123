"""What one session has been told: a few words a line in ``.fleet/told/<session>``, so that nothing is said twice.

Standard library only. A line that is lost costs a repetition.
"""

import os

from fleet.hosts import local

FOLDER = "told"
TWICE = "twice"
"""The file whose time says when one start was told of twice last."""

BYTES_MAX = 64 * 1024
DAYS_KEPT = 7

_PLAIN = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_")
_NAME_CHARS_MAX = 80


def name_of(session: str) -> str:
    """Return the file's name for a session. Its id came from outside: what is no plain word is hashed."""
    if session and len(session) <= _NAME_CHARS_MAX and _PLAIN.issuperset(session):
        return session
    import hashlib

    return "h-" + hashlib.blake2b(session.encode("utf-8", "replace"), digest_size=8).hexdigest()


def words(root: str, session: str) -> list[str]:
    """Return what was noted, oldest first."""
    return local.read(root, FOLDER, name_of(session), bytes_max=BYTES_MAX).decode("ascii", "replace").splitlines()


def note(root: str, session: str, *told: str) -> None:
    """Add what was told. A full file, or a disk that cannot be written, takes no more."""
    data = "".join(f"{word}\n" for word in told).encode("ascii", "replace")
    local.append(root, FOLDER, name_of(session), data=data, bytes_max=BYTES_MAX)


def claim(root: str, session: str, word: str) -> bool:
    """Note a word that counts once; tell whether this call was the first. A host may call twice at the same time."""
    mine = f"{word} {os.urandom(4).hex()}"
    note(root, session, mine)
    # What is appended is read back in the order of all writers, so that two calls agree on who was first.
    return next((line for line in words(root, session) if line.rpartition(" ")[0] == word), mine) == mine


def is_first(root: str, session: str, word: str, at_ms: int, within_ms: int) -> bool:
    """Note that something happened; tell whether it was the first for so long, and not told of twice.

    Args:
        root: of the workspace.
        session: the host's id of it.
        word: what happened.
        at_ms: when, milliseconds since 1970.
        within_ms: what comes closer behind a first one is the same.
    """
    mine = f"{word} {at_ms} {os.urandom(4).hex()}"
    note(root, session, mine)
    first_ms = -within_ms
    for line in words(root, session):
        what, _, said = line.rpartition(" ")[0].rpartition(" ")
        if what != word or not said.isdigit():
            continue
        is_new = abs(int(said) - first_ms) >= within_ms
        if is_new:
            first_ms = int(said)
        if line == mine:
            return is_new
    return True  # it could not be noted: twice is better than never


def prune(root: str, now_s: float) -> None:
    """Forget the sessions that nobody has heard of for a week."""
    folder = local.path_of(root, FOLDER)
    if os.path.islink(folder) or not os.path.isdir(folder):
        return
    for name in os.listdir(folder):
        path = os.path.join(folder, name)
        if now_s - os.lstat(path).st_mtime > DAYS_KEPT * 86_400:
            os.unlink(path)
