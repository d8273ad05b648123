"""Discoveries: non-obvious findings, and the gate before them. Not routine fixes, and never secrets."""

from collections.abc import Sequence
from typing import NamedTuple

from fleet.keep import limits
from fleet.keep.discoveries import CONFIDENCES, TYPES, Discovery, discovery_id
from fleet.keep.errors import RefusedError, UsageError
from fleet.keep.reading import DISCOVERIES
from fleet.keep.workspace import Workspace
from fleet.learn import drafts


class Finding(NamedTuple):
    """A discovery as it was told."""

    problem: str
    solution: str
    context: str = ""
    type: str = "discovery"
    confidence: str = "medium"
    minutes: int | None = None
    tags: Sequence[str] = ()


def discover(workspace: Workspace, agent: str, told: Finding) -> tuple[Discovery, bool]:
    """Log a discovery; return it, and whether it was new.

    Raises:
        UsageError: an unknown type or confidence, or a workaround that was found too fast to be one.
        RefusedError: it holds a secret, or a text is too long. Nothing is written.
    """
    _check(told)
    texts = {name: drafts.enter(name, getattr(told, name)) for name in ("problem", "solution", "context")}
    tags = [drafts.enter("tag", tag) for tag in told.tags]
    kinds = sorted({kind for entered in (*texts.values(), *tags) for kind in entered.secrets})
    if kinds:
        raise RefusedError(
            f"this discovery holds a secret ({', '.join(kinds)}), and every agent of the clan would read it. "
            "Nothing was written. Say it without the secret; if it was a real one, rotate it"
        )
    problem, solution, context = (texts[name].text for name in ("problem", "solution", "context"))
    if not problem or not solution:
        raise UsageError("a discovery needs a --problem and a --solution with words in them; nothing was written")
    with workspace.writing(agent) as writer:
        held = workspace.load()
        workspace.admit(held.notebook)
        entry = Discovery(
            id=discovery_id(told.type, context, problem, solution),
            at=writer.tick(),
            by=writer.name,
            type=told.type,
            context=context,
            problem=problem,
            solution=solution,
            tags=tuple(tag.text for tag in tags if tag.text),
            confidence=told.confidence,
            minutes=told.minutes,
        )
        if entry.id in held.findings.entries:
            return held.findings.entries[entry.id], False
        writer.append(DISCOVERIES, [entry])
    return entry, True


def _check(told: Finding) -> None:
    if told.type not in TYPES:
        raise UsageError(f"--type must be one of {', '.join(TYPES)}, not {told.type[:40]!r}")
    if told.confidence not in CONFIDENCES:
        raise UsageError(f"--confidence must be one of {', '.join(CONFIDENCES)}, not {told.confidence[:40]!r}")
    if told.minutes is not None and not 0 <= told.minutes <= 10_000_000:
        raise UsageError("--minutes must be between 0 and 10,000,000")
    if told.type == "workaround" and (told.minutes is None or told.minutes <= limits.WORKAROUND_MINUTES_MIN):
        raise UsageError(
            f"a workaround needs --minutes above {limits.WORKAROUND_MINUTES_MIN}: what took less to find is a routine "
            "fix, and would crowd out what the fleet needs to hear. Nothing was written"
        )
    if len(told.tags) > limits.TAGS_MAX:
        raise UsageError(f"at most {limits.TAGS_MAX} tags; nothing was written")
