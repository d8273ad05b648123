"""Use cases of auto-reflect and consolidation: a session's end, rows for AGENTS.md, topics of daily logs, migration.

Each use case makes a plan from the files that it read and applies it as a run (``store/runs``). If a file was edited
meanwhile, it makes a new plan. Daily logs are only appended to. All use the same pages, so they share one module.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

from fleet.app import observing, tidying
from fleet.model.errors import BusyError, DiskError, NoError, RefusedError
from fleet.reflect import auto_reflect, consolidation, inbox, observations
from fleet.reflect.auto_reflect import AgentsFile, Block, DailyLog, Entry, Scratchpad
from fleet.reflect.clusters import SESSIONS_MIN, Recurrence
from fleet.reflect.consolidation import Gates, Lock, Migration, Plan, Topic
from fleet.reflect.inbox import Inbox
from fleet.reflect.observations import Statement, Whose
from fleet.reflect.records import Record, Records, Written
from fleet.reflect.reflection import Reflection
from fleet.store.files import is_plain
from fleet.store.runs import Draft, Edit, Runs
from fleet.store.workspace import Workspace
from fleet.text.markdown import rows
from fleet.text.screening import counted

WHAT = "agents-md"
"""Value of ``what`` in the body of an inbox item for a row of AGENTS.md."""
KIND, REFLECTED, MIGRATED = "consolidate", "reflect", "migrate"
DAYS_MAX = 366
"""Greatest number of days of logs that are read."""
DAYS_REFLECTED = 120
"""Number of days of logs in which a session's end looks for recurrences."""
_DAY_MS = 86_400_000
_LOCK_WAIT_S = 5.0
_COMPRESSED = f"compressed {auto_reflect.FILE}"
"""Summary of a run that compressed the scratchpad."""


class _Suggestions(NamedTuple):
    """Result of a suggestion: suggested rows, and rows promoted into AGENTS.md with their runs.

    Attributes:
        left: sentences that say why a row waits although the mode is ``auto``, or that a directive is unknown.
        compressed: number of observations that went to the daily logs.
    """

    mode: str = auto_reflect.SUGGEST
    rows: tuple[Entry, ...] = ()
    promoted: tuple[tuple[Entry, str], ...] = ()
    left: tuple[str, ...] = ()
    compressed: int = 0

    def summary(self) -> str:
        """Return the result as one line; "" if nothing changed."""
        parts = [f"{counted(len(self.rows), 'row is', 'rows are')} ready to promote"] if self.rows else []
        for entry, run in self.promoted:
            undo = f" (fleet undo {run})" if run else ""
            parts.append(f"promoted {entry.item!r} into {auto_reflect.AGENTS_FILE}{undo}")
        if self.compressed:
            parts.append(f"{counted(self.compressed, 'observation')} went to the daily logs")
        return "; ".join([*parts, *self.left])


class _Closing(NamedTuple):
    """Result of a session's end: the daily log that got a block, "" for none, and what followed from it.

    ``consolidated``: None where a gate was closed.
    """

    log: str = ""
    suggested: _Suggestions = _Suggestions()
    consolidated: "ConsolidationResult | None" = None

    def summary(self) -> str:
        """Return the result as one line; "" if nothing happened."""
        parts = [f"a block was added to {self.log}" if self.log else "", self.suggested.summary()]
        if self.consolidated is not None and self.consolidated.run:
            parts.append(self.consolidated.summary())
        return "; ".join(filter(None, parts))


class ConsolidationResult(NamedTuple):
    """Result of a consolidation, or of its plan.

    ``plan``: None where a gate was closed.
    ``run``: "" where nothing was changed.
    """

    gates: Gates
    plan: Plan | None = None
    run: str = ""
    edits: tuple[Edit, ...] = ()

    @property
    def number(self) -> int:
        """Number of topics that the plan adds or changes."""
        return len(self.plan.added) + len(self.plan.merged) if self.plan is not None else 0

    @property
    def diff(self) -> str:
        """Unified diff of the plan."""
        return "\n".join(filter(None, (each.diff for each in self.edits)))

    def question(self) -> inbox.Item:
        """Return the plan as a person is asked about it: each file is one change."""
        title, changes = f"Consolidating would change {self.number:,} topics", [each.diff for each in self.edits]
        command = "fleet consolidate --force --dry-run"
        return inbox.Item.of_plan(KIND, title, self.summary(), self.diff.splitlines(), changes, command)

    def summary(self) -> str:
        """Return the result as one line."""
        if self.plan is None:
            return f"a gate is closed: {self.gates.summary()}. `fleet consolidate --force` passes time and sessions"
        if not self.plan.files:
            last = "is unknown, since its file could not be read" if self.gates.trouble else "stays"
            return f"nothing to consolidate: no file changed, and the time of the last consolidation {last}"
        return f"consolidated: {counted(len(self.plan.added), 'new topic')}, {len(self.plan.merged)} merged into"


# --- a session's end ------------------------------------------------------------------------------------------------


def close_session(
    workspace: Workspace,
    agent: str,
    session: str,
    reflection: Reflection | None = None,
    run: str = "",
    *,
    only_log: bool = False,
) -> _Closing:
    """Log what a session did, suggest or promote what recurs, and consolidate if the gates are open.

    A second call adds nothing. A session without events gets no block. A block has the lines of the reflection, which
    the run ``run`` made; without a reflection, it has the observations.
    ``only_log``: append to the daily log, and leave the rest to the next session's end, or to a sleep.
    """
    if workspace.is_read_only:
        return _Closing()
    Runs(workspace).recover()
    lines = _lines_of_reflection(reflection) if reflection is not None else {}
    log = _log_session(workspace, agent, session, lines, run if lines else "")
    if only_log:
        return _Closing(log)
    suggested = suggest(workspace, agent)
    consolidated = None
    if check(workspace, agent, session).is_open:
        with suppress(BusyError):
            consolidated = consolidate(workspace, agent, session=session)
    return _Closing(log, suggested, consolidated)


def _log_session(workspace: Workspace, agent: str, session: str, lines: Mapping[str, list[str]], run: str) -> str:
    """Append a session's block to the day's log; return the path of the log, "" if there is nothing new to append."""
    now_ms = workspace.world.wall_ms()
    whose = Whose.of(agent, session, now_ms)
    with workspace.lock("scratchpad", _LOCK_WAIT_S), workspace.lock("runs", _LOCK_WAIT_S):  # as in ``observe``
        pad = Scratchpad(Runs(workspace).page(auto_reflect.FILE).text)
        observed = [each for each in pad.statements() if each.session == whose.key]
        # A reflection may concern a session of an earlier day, whose log may have its block already.
        days = DAYS_REFLECTED if run else 2
        since = min([_day(now_ms - days * _DAY_MS), *(each.at[:10] for each in observed)])
        logged, reflected = set[str](), ""
        for block in _blocks(workspace, since):
            if block.session == whose.key and block.is_whole:
                logged |= {_wording_id(each.text) for each in block.statements}
                reflected = max(reflected, block.at if block.run else "")
            else:
                observed += [each for each in block.statements if each.session == whose.key]
        by_kind = (lines or _lines_of_observations(each for each in observed if each.at > reflected)).items()
        new = {kind: [text for text in texts if _wording_id(text) not in logged] for kind, texts in by_kind}
        if not any(new.values()):
            return ""
        day = _day(now_ms)
        log = DailyLog(day, Runs(workspace).page(DailyLog(day).path).text)
        if not (workspace.root / log.path).exists():
            observing.keep_ignored(workspace.files)
        block_text = log.appended_block(whose, new, run)
        workspace.files.append(workspace.root / log.path, block_text.encode("utf-8", "surrogateescape"))
    return log.path


def _day(at_ms: int) -> str:
    return observations.minute(at_ms)[:10]


def _wording_id(text: str) -> str:
    return Recurrence.id_of(observations.without_label(text))


def _lines_of_reflection(reflection: Reflection) -> dict[str, list[str]]:
    """Return the lines of a reflection for a block of a daily log, by kind."""
    learned = [*(each.text for each in reflection.lessons), *reflection.memory_notes]
    by_kind = {"worked": [reflection.what_worked or ""], "failed": [reflection.what_didnt or ""], "learned": learned}
    clean = {kind: [*dict.fromkeys(filter(None, map(observations.clean, texts)))] for kind, texts in by_kind.items()}
    return {kind: lines for kind, lines in clean.items() if lines}


def _lines_of_observations(observed: Iterable[Statement]) -> dict[str, list[str]]:
    """Return the lines of observations for a block of a daily log, by kind."""
    by_kind: dict[str, dict[str, None]] = {}
    for each in observed:
        by_kind.setdefault(each.section, {})[each.text] = None
    return {kind: list(texts) for kind, texts in by_kind.items()}


def _apply(workspace: Workspace, agent: str, plan: Callable[[], Draft | None]) -> str:
    """Plan and apply a change of the scratchpad under its lock; return the id of the run."""
    with workspace.lock("scratchpad", _LOCK_WAIT_S):
        return Runs(workspace).apply_planned(REFLECTED, agent, plan)


# --- recurrences ------------------------------------------------------------------------------------------------------


def suggest(workspace: Workspace, agent: str, *, dry_run: bool = False) -> _Suggestions:
    """Suggest a row for each statement that recurred in three or more sessions; in the mode ``auto`` promote the rows.

    A dry run writes nothing, and cannot tell whether AGENTS.md would refuse a promotion.
    """
    if workspace.is_read_only:
        return _Suggestions()
    with workspace.lock("suggestions"):  # else two sessions that end at once find the same, and both write it
        return _suggest(workspace, agent, dry_run=dry_run)


def _suggest(workspace: Workspace, agent: str, *, dry_run: bool) -> _Suggestions:
    page = Runs(workspace).page(auto_reflect.FILE).text
    mode, remark = Scratchpad(page).directive()
    compressed = len(_compressed(workspace, page)[1]) if dry_run else _compress(workspace, agent)
    if mode == auto_reflect.OFF:
        return _Suggestions(mode, compressed=compressed)
    new, waiting = _recurred(workspace, page)
    promoted, reasons = list[tuple[Entry, str]](), [remark]
    for row, recurrence in (*waiting, *new) if mode == auto_reflect.AUTO else ():
        if not recurrence.is_directive:
            try:
                promoted.append((row, "" if dry_run else _promote(workspace, agent, row, recurrence)))
            except RefusedError as why:
                reasons.append(str(why))
    promoted_items = {row.item for row, _ in promoted}
    left = [(row, recurrence) for row, recurrence in new if row.item not in promoted_items]
    if left and not dry_run:
        _put_rows(workspace, agent, left)
    why_left = tuple(dict.fromkeys(filter(None, reasons)))
    return _Suggestions(mode, tuple(row for row, _ in left), tuple(promoted), why_left, compressed)


_Row = tuple[Entry, Recurrence]


def _recurred(workspace: Workspace, page: str) -> tuple[list[_Row], list[_Row]]:
    """Return rows for new recurrences, and the recurring rows that wait in the scratchpad, each with its recurrence."""
    pad = Scratchpad(page.encode("utf-8", "surrogateescape").decode("utf-8", "replace"))
    since = _day(workspace.world.wall_ms() - DAYS_REFLECTED * _DAY_MS)
    logged = (each for block in _blocks(workspace, since) for each in block.statements)
    clean = [each for each in (*pad.statements(), *logged) if not each.has_secret]
    rules = [*pad.promoted_items(), *_texts_declined(workspace), *_rules(workspace)]
    rows = pad.ready()
    # A row that a person took out of the scratchpad does not come back.
    suggested = [
        each.item.body.get("item", "") for each in Inbox(workspace).entries() if each.item.body.get("what") == WHAT
    ]
    new, matched = Recurrence.among(clean, [*rules, *(each.item for each in rows), *suggested])
    of_rows = [(row, Recurrence.among(matched.get(len(rules) + index, ()))[0]) for index, row in enumerate(rows)]
    waiting = [(row, group[0]) for row, group in of_rows if group and len(group[0].sessions) >= SESSIONS_MIN]
    return [(_as_row(each), each) for each in new if len(each.sessions) >= SESSIONS_MIN], waiting


def _texts_declined(workspace: Workspace) -> list[str]:
    """Return the texts that are not suggested again: rejected ones, and rows and topics whose run somebody undid."""
    undone = Runs(workspace).undone()
    decided = (each for each in Inbox(workspace).entries() if each.item.kind == "candidate" and each.decision)
    bodies = [each.item.body for each in decided if each.decision and each.decision.outcome == inbox.REJECTED]
    texts = [str(body.get("pattern") or body.get("note") or "") for body in bodies]
    for run in Runs(workspace).listed() if undone else ():
        for edit in run.edits if run.id in undone and run.kind in (KIND, REFLECTED) else ():
            if edit.path == auto_reflect.FILE:
                before, after = (
                    Scratchpad((data or b"").decode("utf-8", "replace")) for data in (edit.before, edit.after)
                )
                ready = {row.item for row in before.ready()}
                texts += [row.item for row in after.ready() if row.item not in ready]
                # A promoted row need not be a new one. If it waited before the run, the undo lets it wait for a person.
                texts += [each for each in after.promoted_items() if each not in before.promoted_items()]
            elif edit.path.startswith(f"{consolidation.FOLDER}/") and edit.before is None:
                texts += Topic.read(edit.path, edit.after or b"").texts[-1:]
    return texts


def _as_row(recurrence: Recurrence) -> Entry:
    """Return a recurrence as a row: its item, the rest of its text, and how often it came up."""
    item, _, detail = recurrence.text.partition(" — ")
    days = " to ".join(dict.fromkeys(recurrence.statements[place].at[:10] for place in (0, -1)))
    flag = "reads as a directive: a person decides; " if recurrence.is_directive else ""
    evidence = f"{flag}{len(recurrence.sessions)} sessions, {days}"
    row = Entry(recurrence.category, item.strip(), f"{detail} ({evidence})".strip() if detail else evidence)
    return row.on_page  # its words are its key in the inbox, which mirrors the page


def _evidence(statements: Iterable[Statement]) -> tuple[str, ...]:
    """Return a line with time, session and words for each statement. Its copy in a daily log gives no second line."""
    rows: dict[tuple[str, str], str] = {}
    for each in statements:
        session = each.session if each.is_known else _session_name(each.session).removeprefix(each.at[:10]).strip()
        named = " ".join(filter(None, (each.at, session)))
        rows.setdefault((each.session, _wording_id(each.text)), f"{named}: {each.text}")
    return tuple(rows.values())


def _session_name(key: str) -> str:
    """Return the name of a session in a row: its mark; if it has none, its time and its topic or heading."""
    first, _, topic = key.partition(" ")
    return topic.strip() if first.startswith("@") else key.rpartition(" ")[2]


def _put_rows(workspace: Workspace, agent: str, rows: Sequence[_Row]) -> None:
    def plan() -> Draft | None:
        page = Runs(workspace).page(auto_reflect.FILE)
        summary = f"{counted(len(rows), 'row')} for {auto_reflect.READY}"
        return _draft(summary, [page.to(Scratchpad(page.text).with_rows(row for row, _ in rows))])

    run = _apply(workspace, agent, plan)
    Inbox(workspace, agent).put([_item(row, recurrence, run) for row, recurrence in rows])


def _item(row: Entry, recurrence: Recurrence | None = None, run: str = "") -> inbox.Item:
    return inbox.Item(
        kind="promotion",
        title=f"{row.category} for {auto_reflect.AGENTS_FILE}: {row.item}",
        key=_key(row),
        evidence=_evidence(recurrence.statements if recurrence else ())[:10],
        weight=float(len(recurrence.sessions)) if recurrence else 0.0,
        diff=f"+ {' — '.join(filter(None, (row.item, row.detail)))}",
        body={"what": WHAT, "category": row.category, "item": row.item, "detail": row.detail},
        run=run,
    )


def _key(row: Entry) -> str:
    return f"{auto_reflect.AGENTS_FILE} {Recurrence.id_of(row.item)}"


def waiting(workspace: Workspace) -> list[inbox.Item]:
    """Return the rows under ``## Ready to Promote`` that AGENTS.md does not have as items of the inbox."""
    ready = Scratchpad(Runs(workspace).page(auto_reflect.FILE).text).ready()
    stated = [Statement(each.rule, "", "") for each in ready]
    _, matched = Recurrence.among(stated, _rules(workspace) if ready else ())
    known = {each.text for group in matched.values() for each in group}
    return [_item(each) for each in ready if each.rule not in known]


def _rules(workspace: Workspace) -> list[str]:
    """Return the rules of AGENTS.md; an empty list if it cannot be read, since a promotion is refused later then."""
    with suppress(DiskError):
        return AgentsFile(Runs(workspace).page(auto_reflect.AGENTS_FILE).text).rules()
    return []


def _promote(workspace: Workspace, agent: str, row: Entry, recurrence: Recurrence | None = None) -> str:
    """Write a row into its section of AGENTS.md and under ``## Auto-Promoted``; return the run that takes it back.

    Raises:
        RefusedError: the file is a link, cannot be written, holds a conflict, or would become too long. It is
            unchanged, and the row waits.
    """
    run_id, day = Runs(workspace).name(REFLECTED), workspace.wall()[:10]
    evidence = ", ".join(map(_session_name, recurrence.sessions[:5])) if recurrence else "a person's yes"
    summary = f"promoted {row.item!r} into {auto_reflect.AGENTS_FILE}"

    def plan() -> Draft | None:
        rules, page = (Runs(workspace).page(path) for path in (auto_reflect.AGENTS_FILE, auto_reflect.FILE))
        text, section = AgentsFile(rules.text).with_rule(row)
        after = Scratchpad(page.text).with_promoted(day, row, section, f"{evidence}; fleet undo {run_id}")
        return _draft(summary, [rules.to(text), page.to(after)], run_id)

    try:
        _check_agents_file(workspace)
        done = _apply(workspace, agent, plan)
    except DiskError as why:
        raise RefusedError(f"{auto_reflect.AGENTS_FILE} was not written ({why}): {row.item!r} waits") from why
    if recurrence is not None:
        Inbox(workspace).settle("promotion", _key(row), summary, done)
    return done


def _check_agents_file(workspace: Workspace) -> None:
    file = workspace.root / auto_reflect.AGENTS_FILE
    if file.is_symlink():
        raise RefusedError(f"{auto_reflect.AGENTS_FILE} is a link, which fleet writes through nowhere; it is as it was")
    if file.exists() and not (file.is_file() and os.access(file, os.W_OK | os.R_OK)):
        raise RefusedError(f"{auto_reflect.AGENTS_FILE} cannot be written; it is as it was")


def decide(workspace: Workspace, agent: str, body: Mapping[str, Any], *, is_yes: bool) -> str:
    """Promote the row of an inbox item, or take it out of the scratchpad; return the run, "" where it is gone."""
    category, item, detail = (str(body.get(name, "")) for name in ("category", "item", "detail"))
    rows = Scratchpad(Runs(workspace).page(auto_reflect.FILE).text).ready()
    row = next((each for each in rows if each.item == item), Entry(category, item, detail))
    if is_yes:
        return _promote(workspace, agent, row)

    def plan() -> Draft | None:
        page = Runs(workspace).page(auto_reflect.FILE)
        return _draft(f"took {row.item!r} out of {auto_reflect.READY}", [page.to(Scratchpad(page.text).without(row))])

    return _apply(workspace, agent, plan)


def _compressed(workspace: Workspace, page: str) -> tuple[str, list[str]]:
    """Return a compressed scratchpad, and the lines moved out of it. Lines that an undo brought back stay in it."""
    today, kept = workspace.wall()[:10], set[str]()
    _, moved = Scratchpad(page).compressed(today, kept)
    undone = Runs(workspace).undone() if moved else {}
    for run in Runs(workspace).listed() if undone else ():
        for edit in run.edits if run.id in undone and run.summary == _COMPRESSED else ():
            if edit.path == auto_reflect.FILE:
                after = (edit.after or b"").decode("utf-8", "surrogateescape")
                kept |= {*edit.text.replace("\r\n", "\n").split("\n")} - {*after.replace("\r\n", "\n").split("\n")}
    return Scratchpad(page).compressed(today, kept)


def _compress(workspace: Workspace, agent: str) -> int:
    """Move the oldest observations of a scratchpad that has grown too long to the daily logs; return how many."""
    moved = list[str]()

    def plan() -> Draft | None:
        page = Runs(workspace).page(auto_reflect.FILE)
        page_left, moved[:] = _compressed(workspace, page.text)
        days: dict[str, list[str]] = {}
        for line in moved:
            days.setdefault(Statement.observed(rows(line))[0].at[:10], []).append(line)
        edits = [page.to(page_left)] if moved else []
        for day, lines in sorted(days.items()):
            log = Runs(workspace).page(DailyLog(day).path)
            edits.append(log.to(log.text + DailyLog(day, log.text).appended_lines(lines, is_observed=True)))
        return _draft(_COMPRESSED, edits)

    _apply(workspace, agent, plan)
    return len(moved)


# --- consolidation --------------------------------------------------------------------------------------------------


def check(workspace: Workspace, agent: str, session: str = "") -> Gates:
    """Return the state of the three gates of a consolidation."""
    lock, now_ms = _lock(workspace), workspace.world.wall_ms()
    last = lock.last_before(now_ms)
    blocks = _blocks(workspace, _day(last) if last else "")
    return Gates.of(lock, blocks, now_ms, Whose.of(agent, session).key if session else "")


def consolidate(
    workspace: Workspace,
    agent: str,
    *,
    session: str = "",
    force: bool = False,
    dry_run: bool = False,
    days: int | None = None,
    confirm: Callable[[inbox.Item], object] = bool,
) -> ConsolidationResult:
    """Merge the statements of the daily logs into topics, and bring the index up to date.

    ``session``: id of the calling session, which the gate of sessions does not count.
    ``force``: ignore the gates of time and of sessions, and an unreadable lock file, but never a live lock.
    ``days``: number of days of logs to read; None: seven, or all days since the last consolidation if these are more.
    ``confirm``: called with the plan before it is applied.

    Raises:
        BusyError: another consolidation runs.
        RefusedError: the lock file cannot be read.
    """
    gates = check(workspace, agent, session)
    if gates.trouble and not force:
        raise RefusedError(
            f"{consolidation.LOCK} {gates.trouble}, so that nobody knows when was consolidated last; nothing was done. "
            "`fleet consolidate --force` consolidates, and writes it anew"
        )
    if dry_run:
        return _planned(workspace, gates, days)
    result = ConsolidationResult(gates)
    if not force and not gates.is_due:
        return result

    def plan() -> Draft | None:
        nonlocal result
        result = _planned(workspace, gates, days)
        confirm(result.question())
        return _draft(result.summary(), result.edits)

    with _hold_lock(workspace, force=force) as done:
        if run := Runs(workspace).apply_planned(KIND, agent, plan):
            done.append(run)
            result = result._replace(run=run)
            lists = {"topics": result.plan.added, "merged": result.plan.merged} if result.plan is not None else {}
            written = tuple(Written(name=name, ids=titles, count=len(titles)) for name, titles in lists.items())
            why = result.summary()
            record = Record(run=run, kind="consolidation", session=session, outcome="success", why=why, writers=written)
            try:
                Records(workspace, agent).append(record)
            except DiskError as why:
                workspace.warn(f"{run} is done, and `fleet records` does not show it: {why}")
    return result


def _planned(workspace: Workspace, gates: Gates, days: int | None) -> ConsolidationResult:
    """Return the plan of a consolidation, with its edits."""
    now_ms = workspace.world.wall_ms()
    since = _day(now_ms - (days or auto_reflect.LOG_DAYS) * _DAY_MS)
    if days is None:
        last = _lock(workspace).last_before(now_ms)
        since = min(since, _day(last)) if last else ""
    files = _pages(workspace, consolidation.FOLDER, consolidation.FILE_BYTES_MAX + 1)
    index = Runs(workspace).page(consolidation.INDEX)
    zone, keep_words = tidying.zone_of(workspace), workspace.config.sleep.dates == "add"
    blocks, declined = _blocks(workspace, since), _texts_declined(workspace)
    plan = Plan.of(index.text, files, blocks, declined, zone=zone, keep_words=keep_words)
    before = files if index.before is None else files | {consolidation.INDEX: index.before}
    return ConsolidationResult(gates, plan, edits=_edits(plan.files, before))


def _pages(workspace: Workspace, folder: str, bytes_max: int) -> dict[str, bytes]:
    """Return the first ``bytes_max`` bytes of each Markdown file of a folder, by path."""
    paths = sorted((workspace.root / folder).glob("*.md"))
    return {f"{folder}/{path.name}": _head_of(workspace, path, bytes_max) for path in paths}


def _edits(files: Mapping[str, str], before: Mapping[str, bytes]) -> tuple[Edit, ...]:
    """Return the edits of a plan. Each file must still have the bytes that it was planned with."""
    return tuple(Edit(path, before.get(path), None).to(text) for path, text in sorted(files.items()))


def _head_of(workspace: Workspace, path: Path, bytes_max: int) -> bytes:
    """Return the beginning of a file; a NUL byte for one that cannot be read, or is a link, a pipe or a folder."""
    with suppress(OSError, DiskError):
        if is_plain(path):
            with workspace.files.open(path) as file:
                return file.read(bytes_max)
    return b"\0"


def _blocks(workspace: Workspace, since: str) -> list[Block]:
    """Return the blocks of the daily logs from a day on, at most a year, without those of undone reflections."""
    blocks = list[Block]()
    folder = workspace.root / auto_reflect.LOGS
    listed = sorted(path for path in folder.glob("*.md") if DailyLog.day_of(path.name) >= max(since, "0"))
    for path in listed[-DAYS_MAX:]:
        text = _head_of(workspace, path, auto_reflect.LOG_BYTES_MAX).decode("utf-8", "replace")
        blocks += DailyLog(DailyLog.day_of(path.name), text).blocks()
    undone = Runs(workspace).undone() if any(each.run for each in blocks) else {}
    return [each for each in blocks if each.run not in undone]


@contextmanager
def _hold_lock(workspace: Workspace, *, force: bool) -> Iterator[list[str]]:
    """Hold the lock of a consolidation, and yield a list. If the caller appends a run, the lock's time becomes now."""
    with workspace.lock("consolidation", 0):
        now_ms, lock = workspace.world.wall_ms(), _lock(workspace)
        # A lock file that this machine wrote is stale, however fresh: its writer held the flock that we hold now.
        is_ours = workspace.files.read(workspace.local / _OURS) == f"{lock.at_ms}\n".encode()
        if lock.is_live(now_ms) and not is_ours:
            raise BusyError(
                f"{lock.by or 'somebody'} has held {consolidation.LOCK} for "
                f"{max(now_ms - lock.at_ms, 0) / 60_000:.0f} minutes; nothing was done. After "
                f"{consolidation.STALE_MINUTES} minutes it counts as left behind"
            )
        mine, done = Lock(lock.last_ms, consolidation.FORCE if force else consolidation.AUTO, now_ms), list[str]()
        observing.keep_ignored(workspace.files)
        # Written before the lock file: if this process dies, the next one knows that lock file as this machine's.
        workspace.files.replace(workspace.local / _OURS, f"{now_ms}\n".encode())
        workspace.files.replace(workspace.root / consolidation.LOCK, mine.render())
        try:
            yield done
        finally:
            last_ms = workspace.world.wall_ms() if done else lock.last_ms
            workspace.files.replace(workspace.root / consolidation.LOCK, Lock(last_ms).render())


_OURS = "consolidating"
"""Name of the file in ``.fleet`` with the time at which this machine took the lock last."""


def _lock(workspace: Workspace) -> Lock:
    path = workspace.root / consolidation.LOCK
    if path.is_symlink() or path.is_dir():
        return Lock(trouble="is a link" if path.is_symlink() else "is a folder, which somebody has to remove first")
    try:
        return Lock.read(workspace.files.read(path))
    except DiskError:
        return Lock(trouble="cannot be read")


# --- migration ------------------------------------------------------------------------------------------------------


def migrate(
    workspace: Workspace, agent: str, *, dry_run: bool = False, with_agents_md: bool = False
) -> tuple[list[str], str, str]:
    """Move a monolithic scratchpad to daily logs, topics and an index, after a backup of the old file.

    Returns the files with what goes into each, the run, and the diff of AGENTS.md.

    Raises:
        NoError: there is no scratchpad.
        RefusedError: the scratchpad is a link or cannot be read, or a line of it would be lost.
    """
    if workspace.files.is_linked(workspace.root / auto_reflect.FILE):
        raise RefusedError(f"{auto_reflect.FILE} is a link, which fleet writes through nowhere; nothing was changed")
    if not workspace.files.read(workspace.root / auto_reflect.FILE):
        raise NoError(f"there is no {auto_reflect.FILE} here: nothing to migrate")
    files: list[str] = []
    diff = ""

    def plan() -> Draft | None:
        nonlocal diff
        edits, files[:] = _migration(workspace)
        if with_agents_md:
            _check_agents_file(workspace)
            rules = Runs(workspace).page(auto_reflect.AGENTS_FILE)
            text = AgentsFile(rules.text).with_daily_logs()
            if rules.before is not None and text != rules.text:
                edits.append(rules.to(text))
                diff = edits[-1].diff
        if edits and (lock := Runs(workspace).page(consolidation.LOCK)).before is None:
            # The hours to the first consolidation count from now.
            edits.append(lock.to(Lock(workspace.world.wall_ms()).render().decode()))
        return _draft("migrated", edits)

    if dry_run:
        plan()
        return files, "", diff
    with workspace.lock("scratchpad", _LOCK_WAIT_S):
        if run := Runs(workspace).apply_planned(MIGRATED, agent, plan):
            observing.keep_ignored(workspace.files)
    return files, run, diff


def _migration(workspace: Workspace) -> tuple[list[Edit], list[str]]:
    """Return the edits of a migration, the backup of the old file first, and a line of report for each file."""
    data = Runs(workspace).page(auto_reflect.FILE).before or b""
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as why:
        raise RefusedError(f"{auto_reflect.FILE} is no UTF-8 text; nothing was changed") from why
    data_by_path = {auto_reflect.FILE: data}
    for folder in (auto_reflect.LOGS, consolidation.FOLDER):
        data_by_path |= _pages(workspace, folder, 64 * auto_reflect.LOG_BYTES_MAX)
    if (index := Runs(workspace).page(consolidation.INDEX).before) is not None:
        data_by_path[consolidation.INDEX] = index
    texts = {path: each.decode("utf-8", "surrogateescape") for path, each in data_by_path.items()}
    migration = Migration(text, texts, workspace.wall()[:10])
    if not migration.files:
        return [], []
    if lost := migration.lost():
        raise RefusedError(f"{len(lost)} lines would be in no new file, such as {lost[0][:80]!r}; nothing was changed")
    backup = _backup(workspace, data)
    report = [f"{backup}: the old file, byte for byte", *migration.report]
    return [Runs(workspace).page(backup).to(data), *_edits(migration.files, data_by_path)], report


def _backup(workspace: Workspace, data: bytes) -> str:
    """Return the path of the backup: a free one, or one that has these bytes already."""
    name, number = consolidation.BACKUP, 2
    while os.path.lexists(workspace.root / name) and workspace.files.read(workspace.root / name) != data:
        name, number = f"{consolidation.BACKUP}.{number}", number + 1
    return name


# --- common parts ------------------------------------------------------------------------------------------------


def _draft(summary: str, edits: Iterable[Edit], run: str = "") -> Draft | None:
    """Return the draft of a run that makes these edits; None where they change nothing."""
    changed = [each for each in edits if each.before != each.after]
    return Draft(run, summary, changed) if changed else None
