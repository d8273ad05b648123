"""Echo suppression: text that fleet itself put before an agent, and that comes back as if somebody had said it.

A lesson that is shown, repeated and counted would prove itself. So text that was injected is taken out before anybody
looks for a signal in it, and a correction that tells nothing but a shown lesson counts for nothing (FAULTS, attack 2).

What was injected is known by its form: it stands between two equal marks ``fleet-<16 hex>``, or between a host's own
marks, or is a line that ends in its evidence: ``(velma, seen 5 by 3 agents; p-<6 to 16 hex>)``, ``(p-...)``,
``(d-...)``. A line is known by its end, since beginnings get lost: a dash, a quote's mark, an indent.
"""

import re
from collections.abc import Iterable

from fleet.model.names import normalise

_FRAME = re.compile(r"(?<![A-Za-z0-9_-])fleet-[0-9a-f]{16}(?![A-Za-z0-9_-])")
_STANDS_BETWEEN = "stands between this mark and its repetition"
_HOST_OPENS = re.compile(r"<hook_context\b[^<>]{0,200}>", re.IGNORECASE)
_HOST_CLOSES = re.compile(r"</hook_context\s{0,8}>", re.IGNORECASE)
_EVIDENCE = re.compile(r"\((?:[^()\n]{1,200}; ?)?(?P<id>[pd]-[0-9a-f]{6,16})\)")
_AFTER = " \t\r\"'`*_.,;:!?»”’)]|>"
_BEFORE = re.compile(r"^(?:[\s>|*+•\"'`«“‘-]|\d{1,3}[.)](?=\s))+")
_NO_ESCAPES = str.maketrans({"\\": "", "‹": "<", "›": ">"})


def strip_injected(said: str) -> str:
    """Return what somebody said without what fleet, or a host, had put into it."""
    return _without_lines(_without_frames(_without_host_frames(said)))


def _without_host_frames(said: str) -> str:
    """Take out ``<hook_context>`` blocks. What is inside may itself say where it ends: so its last end counts."""
    first, *blocks = _HOST_OPENS.split(said)
    kept = [first]
    for block in blocks:
        ends = [found.end() for found in _HOST_CLOSES.finditer(block)]
        kept.append(block[ends[-1] :] if ends else "")
    return "".join(kept)


def _without_frames(said: str) -> str:
    """Take out what stands between two equal marks; of one that was cut off, all that follows."""
    marks = list(_FRAME.finditer(said))
    ends: dict[int, int] = {}
    later: dict[str, int] = {}
    for found in reversed(marks):
        is_cut_off = _STANDS_BETWEEN in said[found.end() : found.end() + 200]
        ends[found.start()] = later.get(found[0], len(said) if is_cut_off else found.end())
        later[found[0]] = found.end()
    kept: list[str] = []
    at = 0
    for found in marks:
        if found.start() >= at:
            kept.append(said[at : found.start()])
            at = ends[found.start()]
    return "".join([*kept, said[at:]])


def _without_lines(said: str) -> str:
    if "-" not in said:
        return said
    return "\n".join(row for row in map(_without_evidence, said.split("\n")) if row is not None)


def _without_evidence(row: str) -> str | None:
    """Return what follows the last evidence in a line; None when that is nothing."""
    ends = [found.end() for found in _EVIDENCE.finditer(row)]
    if not ends:
        return row
    rest = row[ends[-1] :]
    return rest if rest.strip(_AFTER) else None


def injected_id(said: str) -> str:
    """Return the id at the end of a text that is a shown lesson, copied; "" for any other text."""
    if "-" not in said or "(" not in said:
        return ""  # no id, no evidence: so are most
    rows = [row for row in said.strip().split("\n") if row.strip()]
    found = [hits[-1] for row in rows if (hits := list(_EVIDENCE.finditer(row)))]
    return str(found[-1]["id"]) if found and not strip_injected(said).strip(_AFTER + "\n") else ""


def is_echo(wrong: str, right: str, pattern: str, lessons: Iterable[tuple[str, str]]) -> bool:
    """Tell whether a correction only repeats what was shown.

    So it is when its pattern is a copied line, evidence and all; or when its pattern is a shown lesson, and neither
    what went wrong nor the right way says anything but that lesson: no mistake is told.

    Args:
        wrong: what went wrong.
        right: the correct approach.
        pattern: the lesson.
        lessons: text and right way of the lessons that were shown.
    """
    if injected_id(pattern):
        return True
    told = [_bare(wrong), _bare(right)]
    for lesson, way in lessons:
        if _bare(pattern) != _bare(lesson):
            continue
        known = {"", _bare(lesson), _bare(way), _bare(f"{lesson} — right: {way}"), _bare(f"right: {way}")}
        if known.issuperset(told):
            return True
    return False


def _bare(said: str) -> str:
    """Return a text as it is compared: without copied lines, without what a list or a quote puts before it."""
    left = strip_injected(said).translate(_NO_ESCAPES)
    return normalise(" ".join(_BEFORE.sub("", row) for row in left.split("\n")))
