"""What plain git does to the clan's tree: ``merge=union`` line by line, and a three-way merge of whole trees.

Both sides are compared with the base. A change that both made stands once. Where different changes meet, both sides
stand, ours first, and lines that the two have in common stand once. ``test_union_merges.py`` compares this with
``git merge-file --union`` itself.
"""

import difflib
from collections.abc import Sequence
from dataclasses import dataclass

from fleet.share.remote import Files

MARKERS = (b"<<<<<<< ours\n", b"=======\n", b">>>>>>> theirs\n")
_JOINED_LINES_MAX = 3  # git puts two conflicts with no more lines than this between them into one


@dataclass(slots=True)
class _Hunk:
    """A place that either side changed, as half-open line ranges of ours and of theirs; and whose lines to take."""

    mine: tuple[int, int]
    theirs: tuple[int, int]
    is_conflict: bool = True
    takes_theirs: bool = False


Change = tuple[int, int, int, int]
"""Lines [0] to [1] of the old file became lines [2] to [3] of the new one."""


def changes(old: Sequence[bytes], new: Sequence[bytes]) -> list[Change]:
    """Return the differences between two files; adjacent ones are one change."""
    found = difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes()
    return [(a, b, c, d) for tag, a, b, c, d in found if tag != "equal"]


def union(mine: bytes, base: bytes, theirs: bytes, *, markers: bool = False) -> bytes:
    """Merge three versions of a file as ``merge=union`` does, or with ``markers`` as git does without that setting."""
    ours, old, others = (data.splitlines(keepends=True) for data in (mine, base, theirs))
    left, right = changes(old, ours), changes(old, others)
    if not left or not right:
        return theirs if not left else mine
    out: list[bytes] = []
    at = 0
    for hunk in _joined(_refined(_hunks(left, right, ours, others), ours, others)):
        out += ours[at : hunk.mine[0]]
        at = hunk.mine[1]
        own, other = ours[slice(*hunk.mine)], others[slice(*hunk.theirs)]
        if hunk.is_conflict:
            start, middle, end = MARKERS if markers else (b"", b"", b"")
            out += [start, *_ended(own), middle, *(_ended(other) if markers else other), end]
        else:
            out += other if hunk.takes_theirs else own
    return b"".join([*out, *ours[at:]])


def _ended(lines: list[bytes]) -> list[bytes]:
    """End the last line with a newline, since more follows it."""
    return [*lines[:-1], lines[-1] if lines[-1].endswith(b"\n") else lines[-1] + b"\n"] if lines else []


def _hunks(left: list[Change], right: list[Change], ours: list[bytes], others: list[bytes]) -> list[_Hunk]:
    """Walk both lists of changes along the base; changes that overlap or touch become a conflict, unless equal."""
    found: list[_Hunk] = []
    i = j = 0
    while i < len(left) or j < len(right):
        a = left[i] if i < len(left) else None
        b = right[j] if j < len(right) else None
        shift_a = left[i - 1][3] - left[i - 1][1] if i else 0  # from a line of the base to the same line of ours
        shift_b = right[j - 1][3] - right[j - 1][1] if j else 0
        if b is None or (a is not None and a[1] < b[0]):
            _append(found, _Hunk((a[2], a[3]), (a[0] + shift_b, a[1] + shift_b), is_conflict=False))
            i += 1
        elif a is None or b[1] < a[0]:
            _append(found, _Hunk((b[0] + shift_a, b[1] + shift_a), (b[2], b[3]), is_conflict=False, takes_theirs=True))
            j += 1
        else:
            if a[:2] != b[:2] or ours[a[2] : a[3]] != others[b[2] : b[3]]:
                start, end = min(a[0], b[0]), max(a[1], b[1])
                mine = (a[2] - (a[0] - start), a[3] + (end - a[1]))
                theirs = (b[2] - (b[0] - start), b[3] + (end - b[1]))
                _append(found, _Hunk(mine, theirs))
            i, j = i + (a[1] <= b[1]), j + (b[1] <= a[1])
    return found


def _append(found: list[_Hunk], hunk: _Hunk) -> None:
    last = found[-1] if found else None
    if last is None or (hunk.mine[0] > last.mine[1] and hunk.theirs[0] > last.theirs[1]):
        found.append(hunk)
        return
    if (last.is_conflict, last.takes_theirs) != (hunk.is_conflict, hunk.takes_theirs):
        last.is_conflict = True
    last.mine, last.theirs = (last.mine[0], hunk.mine[1]), (last.theirs[0], hunk.theirs[1])


def _refined(hunks: list[_Hunk], ours: list[bytes], others: list[bytes]) -> list[_Hunk]:
    """Split each conflict at the lines that both sides have in common."""
    found: list[_Hunk] = []
    for hunk in hunks:
        own, other = ours[slice(*hunk.mine)], others[slice(*hunk.theirs)]
        if not hunk.is_conflict or not own or not other:
            found.append(hunk)
            continue
        a, b = hunk.mine[0], hunk.theirs[0]
        found += [_Hunk((a + i, a + j), (b + k, b + m)) for i, j, k, m in changes(own, other)]
    return found


def _joined(hunks: list[_Hunk]) -> list[_Hunk]:
    found: list[_Hunk] = []
    for hunk in hunks:
        last = found[-1] if found else None
        is_near = last is not None and hunk.mine[0] - last.mine[1] <= _JOINED_LINES_MAX
        if last is not None and is_near and last.is_conflict and hunk.is_conflict:
            last.mine, last.theirs = (last.mine[0], hunk.mine[1]), (last.theirs[0], hunk.theirs[1])
        else:
            found.append(hunk)
    return found


def merge_trees(mine: Files, base: Files, theirs: Files, *, markers: bool = False) -> Files:
    """Merge three trees; a file that one side removed and the other changed stays as changed."""
    merged: Files = {}
    for path in sorted(mine.keys() | theirs.keys()):
        own, old, other = (tree.get(path, b"") for tree in (mine, base, theirs))
        if own == other or other == old:
            merged[path] = own
        elif own == old:
            merged[path] = other
        elif not own or not other:
            merged[path] = own or other
        else:
            merged[path] = union(own, old, other, markers=markers)
    return {path: data for path, data in merged.items() if data}
