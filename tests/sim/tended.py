"""Tended histories: what fleet does to an agent's and a project's pages, while people write into the same ones.

Sessions end and are reflected on, and what recurs becomes rows, topics and rules. Notebooks are tidied, guards stop
commands, and the inbox is answered. Most of these runs are undone at once, and then redone. Each time the pages must
have their former bytes again. What a person wrote must stay in its page, once; what a person took out must stay out.
All checks of the further histories hold here too.
"""

import os
import re
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import Any

import msgspec

from fleet.app import (
    consolidating,
    inbox,
    lessons,
    moving,
    observing,
    reflecting,
    reviewing,
    session_end,
    starting,
    undoing,
)
from fleet.hosts import sessions
from fleet.learn import counting
from fleet.model.errors import FleetError, NoError
from fleet.model.line import Line
from fleet.model.names import pattern_id
from fleet.model.pattern import fold
from fleet.reflect import auto_reflect, consolidation, rules
from fleet.reflect.inbox import Inbox, Item
from fleet.store.database import Local
from fleet.store.runs import PART, Run, Runs
from fleet.store.workspace import Workspace
from tests.reflect.talks import Talk
from tests.sim.further import Further
from tests.sim.simulator import HOUR_MS
from tests.sim.wider import TORN
from tests.sim.world import CrashError, Machine

STEPS_FACTOR = 3
"""How many times as many steps these histories have as others, since pages take many to fill."""
STATEMENTS = [
    "The cache of `tool-0` is stale after an upgrade",
    "Never run `tool-1` without the lock of its index",
    "Fixed the timeout of `tool-2` by a smaller batch",
    "The mirror fails behind the proxy since yesterday",
]
TAUGHT = [
    "no, never call `tool-0` from a hook, put it into the queue instead",
    "no, always pin the version of `tool-1` before you build with it",
    "no, never delete the index of `tool-2`, move it aside instead",
]
NOTES = [
    "The build of the mirror broke yesterday",
    "The mirror is rebuilt last week by the nightly job",
    "Deploys wait for the person on call",
    "Deploys wait for the person who is on call",
    "Releases are cut from a clean clone",
]
OF_HOMES = ("memory.md", "user-model.md", "USER.md")
_HAND = re.compile(rb"qzhand\d+x")
_POINTER, _BEHIND = re.compile(rb"- \[.*\]\(topics/"), re.compile(rb"\((qzhand\d+x)\)")
"""Beginning of a pointer, which quotes a topic's page; and what a person wrote after the quotation."""
_APPENDED = ("corrections.md", "JOURNAL.md", "reflections.md")
_PUT_BACK = ("bring_back", "restore_saved", "lose_fleet", "run_twice", "purge", "settle_elsewhere", "copy")
"""Actions that may replace a folder's content; the checks of its pages then start anew with what is there."""
_CARRYING = frozenset({"sync", "compact", "synced", "logged", "heals", "no"})
"""First words of trace lines of a step that only exchanges lines, and so may change no guard."""


class Tended(Further):
    """A further history in which fleet writes pages, and people write into them.

    Attributes:
        reflected: (id of a lesson, run, number in the run) of each occurrence that a reflection counted.
        uncounted: by lesson, how many such occurrences may or may not count.
        hands: by machine, each token that people wrote and did not take out, with the place where they wrote it.
        struck: by machine, the tokens that people took out again.
        unsure: by machine, the struck tokens that an undo may have brought back, and a redo takes out again.
        observed: by machine, the lines of observations.
        guards: by machine and lesson, its guard's decision and words.
        session: by machine, the id of the open session.
        anew: machines whose content may have been replaced, and that were not checked since.
    """

    torn = TORN | {pattern_id(words[:length]) for words in TAUGHT for length in range(1, len(words))}

    def __init__(self, seed: int, folder: Path) -> None:
        super().__init__(seed, folder)
        self.steps *= STEPS_FACTOR
        self.reflected: set[tuple[str, str, int]] = set()
        self.uncounted: Counter[str] = Counter()
        self.hands: dict[int, dict[bytes, str]] = {}
        self.struck: dict[int, set[bytes]] = {}
        self.unsure: dict[int, set[bytes]] = {}
        self.observed: dict[int, set[str]] = {}
        self.guards: dict[int, dict[str, tuple[str, str]]] = {}
        self.session: dict[int, str] = {}
        self.anew: set[int] = set()

    def entropy(self, length: int) -> bytes:
        """Return random bytes a moment later; each run draws some for its name, so no two runs have one time."""
        self.now_ms += 1
        return super().entropy(length)

    def actions(self) -> list[Callable[[Machine], object]]:
        """Return the possible actions, each as many times as its weight says."""
        tended = [
            *[self.observe, self.end_session] * 5,
            *[self.write_by_a_person, self.answer_inbox, self.propose] * 4,
            *[self.consolidate, self.suggest, self.guard, self.tidy, self.sleep] * 3,
            *[self.strike, self.wait_days, self.block_a_while, self.migrate, self.undo_any] * 2,
            *(self.lift_guard, self.turn_directive, self.upgrade),
        ]
        return super().actions() + tended * 4

    def step(self, action: Callable[[Machine], object], machine: Machine) -> bool:
        """Do an action; check that all pages keep what people wrote, and all guards what they say."""
        begun, was_back = len(self.trace), [self.happened[each] for each in _PUT_BACK]
        is_done = super().step(action, machine)
        is_anew = was_back != [self.happened[each] for each in _PUT_BACK] or any(
            "crashed in restore_saved" in each or "crashed in purge" in each for each in self.trace[begun:]
        )
        is_carrying = {each.split()[0] for each in self.trace[begun:]} <= _CARRYING
        self.anew.update(id(each) for each in self.machines if is_anew)
        for each in (each for each in self.machines if each.apart is None):
            if not _is_cut_short(each):
                self._check_pages(each, is_anew=id(each) in self.anew)
                self.anew.discard(id(each))
            self._check_guards(each, may_change=is_anew or (each is machine and not is_carrying), is_anew=is_anew)
        return is_done

    def powered(self) -> list[Callable[[Machine], object]]:
        """Return the actions in which power may fail."""
        acts = [self.end_session, self.consolidate, self.suggest, self.answer_inbox, self.guard, self.migrate]
        return [*super().powered(), *acts, *acts]

    # --- pages --------------------------------------------------------------------------------------------------------

    def pages(self, machine: Machine) -> dict[str, bytes]:
        """Return the pages of a folder: all Markdown files except the clan's own."""
        found = {}
        for folder, folders, names in os.walk(machine.root):
            folders[:] = sorted(each for each in folders if each not in (".fleet", "clan-learnings"))
            for name in sorted(names):
                if name.endswith(".md"):
                    path = Path(folder, name)
                    found[path.relative_to(machine.root).as_posix()] = path.read_bytes()
        return found

    def _undoable(self, machine: Machine) -> dict[str, bytes]:
        """Return the pages whose bytes an undo restores; logs, which are only appended to, are none of them."""
        kept = self.pages(machine).items()
        return {path: data for path, data in kept if Path(path).name not in _APPENDED and "/logs/" not in path}

    def _check_pages(self, machine: Machine, *, is_anew: bool) -> None:
        """Check that people's words stand in place, once, those they took out are gone, and all observations stand."""
        pages, places = self.pages(machine), dict[bytes, set[str]]()
        for path, data in pages.items():
            for token, times in Counter(_written(data)).items():
                places.setdefault(token, set()).add(_place(path))
                assert times == 1, f"{token!r} stands {times} times in {path} of {machine.root.name}"
        known, struck = self.hands.setdefault(id(machine), {}), self.struck.setdefault(id(machine), set())
        observed = self.observed.setdefault(id(machine), set())
        logs = "\n".join(data.decode() for path, data in pages.items() if _is_of_project(path))
        if is_anew:
            known.clear()
            struck.clear()
            observed -= {line for line in observed if line not in logs}
        lost = {token: place for token, place in known.items() if not _stands(place, places.get(token, set()))}
        assert not lost, f"what people wrote is gone from {machine.root.name}: {lost}, {places}"
        back = struck & places.keys()
        assert not back, f"what people took out is back in {machine.root.name}: {back}"
        gone = [line for line in observed if line not in logs]
        assert not gone, f"observations are gone from {machine.root.name}: {gone}"
        for token in places.keys() - self.unsure.get(id(machine), set()):
            known.setdefault(token, min(places[token]))

    def write_by_a_person(self, machine: Machine) -> bool:
        """Write a line into a page with an editor, or add some words to a line that is there."""
        home = self.open(machine).home(machine.agent)
        paths = [machine.root / each for each in self.pages(machine) if _is_of_project(each) and "/logs/" not in each]
        paths += [machine.root / auto_reflect.AGENTS_FILE, machine.root / auto_reflect.AGENTS_FILE]
        paths += [machine.root / consolidation.FOLDER / "own.md", *(home / each for each in OF_HOMES)]
        path = self.rng.choice(paths)
        token = f"qzhand{self.new_number()}x"
        before = path.read_bytes().decode() if path.exists() else ""
        rows = before.split("\n")
        at = self.rng.randrange(len(rows))
        is_page = path.name != auto_reflect.FILE and rows[at].strip() and "<!--" not in rows[at]
        if is_page and "|" not in rows[at] and not rows[at].startswith("---") and self.rng.random() < 0.4:
            rows[at] += f" ({token})" if _POINTER.match(rows[at].encode()) else f" {token}"
        else:
            rows.insert(at, f"{token} is what a person knows.")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes("\n".join(rows).encode())
        self.note("by a person", path.name, token)
        return True

    def strike(self, machine: Machine) -> bool:
        """Take out a line that a person wrote, unless a run that a crash cut short has still to move it."""
        known = self.hands.get(id(machine), {})
        if not known or machine.apart is not None or _is_cut_short(machine):
            return False
        self._put_in_place(machine)
        token, others = self.rng.choice(sorted(known)), set[bytes]()
        pages = {path: data for path, data in self.pages(machine).items() if token in data}
        # An answered draft was copied elsewhere. If the answer was undone, to redo it copies the draft again.
        if any("/logs/" in path or "/skills/" in path for path in pages):
            return False
        for path, data in pages.items():
            rows = data.split(b"\n")
            others |= {each for row in rows if token in row for each in _HAND.findall(row)}
            (machine.root / path).write_bytes(b"\n".join(row for row in rows if token not in row))
        for each in others:
            known.pop(each, None)
        self.struck[id(machine)] |= others - {each for data in self.pages(machine).values() for each in _written(data)}
        return True

    def turn_directive(self, machine: Machine) -> bool:
        """Change the scratchpad's directive, which says what fleet may do with it."""
        self._put_in_place(machine)
        path = machine.root / auto_reflect.FILE
        if not path.exists():
            return False
        mode = self.rng.choice([auto_reflect.AUTO, auto_reflect.AUTO, auto_reflect.SUGGEST, auto_reflect.OFF])
        path.write_bytes(re.sub(rb"promote=\w+", f"promote={mode}".encode(), path.read_bytes(), count=1))
        return True

    def wait_days(self, _: Machine) -> None:
        """Let some days pass, so that notes grow stale and gates open."""
        self.now_ms += self.rng.choice([1, 2, 9]) * 24 * HOUR_MS

    # --- a run is undone at once --------------------------------------------------------------------------------------

    def _facts(self, machine: Machine) -> dict[str, tuple[object, ...]]:
        """Return text, count and presence of each lesson here; a merged one is present, since its set decides that.

        The text of one that is absent or has no count is left out: a blocked writer's text reads again once another
        agent has logged the lesson and undone that.
        """
        patterns = self.open(machine).patterns
        grouped, facts = patterns.groups(), dict[str, tuple[object, ...]]()
        for each in patterns.records():
            is_in, seen = each.is_present or each.id in grouped, each.count("seen")
            facts[each.id] = (each.text if is_in and seen else "", seen, is_in)
        return facts

    @contextmanager
    def _taking_back(self, machine: Machine, back: Callable[[], object] = bool) -> Iterator[None]:
        """Undo after the block what it did, and redo it; check each time that pages and lessons are as they were.

        Args:
            machine: the machine.
            back: called after the undo; checks what else must be as before.
        """
        workspace = self.open(machine)
        if undoing._pending(workspace):  # a crash cut an undo short, and the next undo would finish that first
            yield
            return
        Runs(workspace).recover()
        self._do_as_any_command(workspace, machine.agent)
        known = {each.id for each in Runs(workspace).listed()}
        before, facts = self._undoable(machine), self._facts(machine)
        yield
        workspace = machine.workspace or self.open(machine)
        fresh = [each for each in Runs(workspace).listed() if each.id not in known]
        parts = {field.id for run in fresh for field in run.fields if field.name == PART}
        runs = [each for each in fresh if each.id not in parts]
        if not runs:
            changed = self._changed(machine, before)
            assert not changed, f"pages changed, and no run says so: {changed}"
            return
        if self.rng.random() < 0.3 or machine.others:
            return
        after, facts_after = self._undoable(machine), self._facts(machine)
        purged = self._purged_here(machine)
        try:
            undos = [undoing.undo(workspace, each.id) for each in runs]
            self._note_words_anew(machine, purged)
            assert self._undoable(machine) == before, f"taken back, but {self._changed(machine, before)}"
            now = self._facts(machine)
            changed = {each: (was, now.get(each)) for each, was in facts.items() if now.get(each) != was}
            assert not changed, f"taken back, but lessons are not as before: {changed}"
            back()
            for each in reversed(undos):
                undoing.undo(workspace, each.undone_by)
            self._note_words_anew(machine, purged)
        except CrashError:
            for each in runs:
                self._loosen(machine, each)
            self.promised.unfinished.add(machine.root)
            raise
        assert self._undoable(machine) == after, f"done again, but {self._changed(machine, after)}"
        now = self._facts(machine)
        changed = {each: (was, now.get(each)) for each, was in facts_after.items() if now.get(each) != was}
        assert not changed, f"done again, but lessons are not as before: {changed}"
        for each in runs:
            self.happened[f"back and again {each.kind}"] += 1

    def _do_as_any_command(self, workspace: Workspace, agent: str) -> None:
        """Do what any command does first, so that it is no part of what is undone.

        A folder gets a new name if it has none or its clock ran ahead. Entries that were written by hand are counted.
        Retired lessons leave the memories.
        """
        with workspace.writing(agent) as writer:
            counting.reconcile(writer)
        counting.reconcile_all(workspace)
        for agent in workspace.agents_here():
            reflecting.take_out_retired(workspace, agent)

    def _changed(self, machine: Machine, before: dict[str, bytes]) -> dict[str, tuple[bytes | None, bytes | None]]:
        now = self._undoable(machine)
        return {
            each: (before.get(each), now.get(each))
            for each in sorted(before.keys() | now.keys())
            if before.get(each) != now.get(each)
        }

    def _loosen(self, machine: Machine, run: Run) -> None:
        super()._loosen(machine, run)
        for each in sorted(each for each in self.reflected if each[1] == run.id):
            self.reflected.discard(each)
            self.uncounted[each[0]] += 1
        for field in run.fields:
            if field.name == "guard":
                self.guards.get(id(machine), {}).pop(field.id, None)
            if field.name == PART:
                self._loosen(machine, Runs(self.open(machine)).find(field.id))
        for edit in (each for each in run.edits if each.path.endswith("/SKILL.md")):  # decisions move it
            for token in _HAND.findall((edit.before or b"") + (edit.after or b"")):
                self.hands.get(id(machine), {}).pop(token, None)
                self.struck.get(id(machine), set()).discard(token)
        if run.kind == consolidating.MIGRATED:  # the undo restores the old page's bytes
            struck = self.struck.setdefault(id(machine), set())
            self.unsure.setdefault(id(machine), set()).update(struck)
            struck.clear()

    # --- sessions -----------------------------------------------------------------------------------------------------

    def observe(self, machine: Machine) -> None:
        """Note an observation in the open session."""
        workspace = self.open(machine)
        session = self.session.setdefault(id(machine), f"5e55{self.new_number():04x}")
        kind, text = self.rng.choice(["fix", "dead-end", "workaround"]), self.rng.choice(STATEMENTS)
        at_ms = workspace.world.wall_ms()
        written = observing.observe(machine.root, machine.agent, session, kind, text, at_ms)
        self.observed.setdefault(id(machine), set()).add(written.line)

    def end_session(self, machine: Machine) -> bool:
        """End the session and reflect on it: log what the rules find, write the daily log, and propose what recurs."""
        for _ in range(self.rng.randint(0, 2)):
            self.observe(machine)
        session = self.session.pop(id(machine), f"5e55{self.new_number():04x}")
        talk = Talk(self.folder / "transcripts" / f"{session}-{self.new_number()}.jsonl", session)
        talk.says("please go on with the mirror")
        for words in self.rng.sample(TAUGHT, self.rng.randint(0, 2)):
            talk.refuses("tool-9 --now", words)
        taught = [each.text for each in rules.reflect(sessions.read(talk.path)).lessons]
        for each in taught:
            self.ledger.maybe[each] += 1
        more: dict[str, Any] = {}
        if self.rng.random() < 0.5:
            more["memory_notes"] = tuple(self.rng.sample(NOTES, 2))
            more["persona_observations"] = (f"answers in {self.rng.choice(['one line', 'tables', 'lists'])}",)
            more["user_model_updates"] = {"dev1": (self.rng.choice(NOTES),)}
        with self._taking_back(machine), _reflecting(more):
            workspace = self.open(machine)
            came = session_end.reflect(workspace, machine.agent, talk.path)
            assert came.record is not None, came.why
            plan = came.plan
            closed = consolidating.close_session(
                workspace, machine.agent, session, plan.reflection if plan is not None else None
            )
            before = self.pages(machine)
            if plan is not None and closed.consolidated is None:
                consolidating.close_session(workspace, machine.agent, session, plan.reflection)
                assert self.pages(machine) == before, "a session was closed twice, and that wrote something"
            ids = [each for one in came.record.writers if one.name == "lessons" for each in one.ids if each[:2] == "p-"]
            self._count(machine, taught, ids, came.record.run)
        self.note("ended", session, *ids)
        again = session_end.reflect(self.open(machine), machine.agent, talk.path)
        assert again.record is None, "a session was reflected on twice"
        return True

    def _count(self, machine: Machine, texts: list[str], ids: list[str], run: str) -> None:
        if machine.others or machine.is_unsure:
            self.uncounted.update(ids)
            return
        for each in texts:
            self.ledger.maybe[each] -= 1
        for number, each in enumerate(ids):  # a session may count one id twice, as that of merged lessons
            self._note_done(machine, self.reflected, (each, run, number))

    def _make_unsure(self, what: Any) -> None:
        super()._make_unsure(what)
        if what[0] is self.reflected:  # a live room may have it still
            self.uncounted[what[1][0]] += 1

    def _lessons_of(self, what: Any) -> list[str]:
        if not isinstance(what, str) and what[0] is self.reflected:
            return [what[1][0]]
        return super()._lessons_of(what)

    def _expected(self) -> tuple[Counter[str], Counter[str]]:
        least, most = super()._expected()
        counted = Counter(each for each, *_ in self.reflected)
        return least + counted, most + counted + self.uncounted

    # --- upkeep -------------------------------------------------------------------------------------------------------

    def suggest(self, machine: Machine) -> bool:
        """Propose what recurs."""
        with self._taking_back(machine):
            done = consolidating.suggest(self.open(machine), machine.agent)
        return bool(done.rows or done.promoted)

    def consolidate(self, machine: Machine) -> bool:
        """Make topics of the daily logs; doing so twice must change nothing more."""
        with self._taking_back(machine):
            try:
                done = consolidating.consolidate(self.open(machine), machine.agent, force=True)
            except FleetError as why:
                self.note("not consolidated", type(why).__name__)
                return False
            before = self.pages(machine)
            again = consolidating.consolidate(self.open(machine), machine.agent, force=True)
            assert not again.run, f"consolidated twice, and that changed something: {self._changed(machine, before)}"
        return bool(done.run)

    def migrate(self, machine: Machine) -> bool:
        """Move the scratchpad to daily logs and topics."""
        with self._taking_back(machine):
            try:
                return bool(consolidating.migrate(self.open(machine), machine.agent)[1])
            except FleetError as why:
                self.note("not migrated", type(why).__name__)
                return False

    def undo_any(self, machine: Machine) -> bool:
        """Undo any run; that of a migration puts its lines back into the scratchpad."""
        done, known = super().undo_any(machine), self.hands.get(id(machine), {})
        for token in _written(self.pages(machine).get(auto_reflect.FILE, b"")) if done else ():
            if _is_of_project(known.get(token, "")):
                known[token] = auto_reflect.FILE
        return done

    def tidy(self, machine: Machine) -> bool:
        """Tidy the agent's notebook."""
        with self._taking_back(machine):
            return super().tidy(machine)

    def sleep(self, machine: Machine) -> bool:
        """Run all phases of an agent's sleep."""
        with self._taking_back(machine):
            return super().sleep(machine)

    def upgrade(self, machine: Machine) -> None:
        """Upgrade a folder that is of this version already, which must change nothing."""
        workspace = self.open(machine)  # this moves files from earlier places of the homes, so it comes first
        before, facts = self.pages(machine), self._facts(machine)
        moving.upgrade(workspace, yes=True)
        assert self.pages(machine) == before, "an upgrade changed pages that were of this version"
        assert self._facts(machine) == facts, "an upgrade changed lessons that were of this version"

    # --- what waits for a person --------------------------------------------------------------------------------------

    def propose(self, machine: Machine) -> bool:
        """Put an entry into the inbox, as a reflection does."""
        workspace, number = self.open(machine), self.new_number()
        lesson, words = self._some_lesson(machine), self.rng.choice(TAUGHT)
        skill = {"draft": workspace.own_path(machine.agent, "skills", f"s{number}", "SKILL.md")}
        table: list[tuple[str, str, dict[str, Any]]] = [
            ("persona", f"likes things in {number} words", {"note": f"likes things in {number} words"}),
            ("candidate", words, {"pattern": words, "wrong": "w", "right": "r"}),
            ("candidate", f"note {number}", {"what": "note", "note": f"The job {number} ran yesterday"}),
            ("candidate", f"person {number}", {"what": "person", "peer": "dev2", "note": f"owns the job {number}"}),
            ("guard", f"shall {lesson} stop its step", {"lesson": lesson, "decision": "deny"}),
            ("skill", f"a new skill {number}", skill | {"target": f"kept/s{number}/SKILL.md"}),
        ]
        kind, title, body = self.rng.choice(table)
        if kind == "guard" and not lesson:
            return False
        if kind == "skill":
            draft = machine.root / body["draft"]
            draft.parent.mkdir(parents=True, exist_ok=True)
            draft.write_text(f"# A skill\n\nqzhand{number}x is what a person put into the draft.\n")
        item = Item(kind=kind, title=title, key=f"{kind} {number}", body=body)
        return Inbox(workspace, machine.agent).put([item])[0].is_new

    def answer_inbox(self, machine: Machine) -> bool:
        """Answer an entry of the inbox; after an undo it must wait again, and after a redo no more."""
        workspace = self.open(machine)
        waiting = inbox.listing(workspace, count=0).entries
        if not waiting:
            return False
        entry, purged = self.rng.choice(waiting), self._purged_here(machine)
        pair = tuple(str(entry.item.body.get("pair", "")).split(":"))
        if entry.item.kind in {"merge", "contradiction"}:
            self.ledger.merged.add((pair[0], pair[1]))
            self.ledger.retired.update(pair)
        pattern = str(entry.item.body.get("pattern", ""))
        self.ledger.maybe[pattern] += 1
        self.demoted = {each for each in self.demoted if each[0] != str(machine.root)}
        if entry.item.kind == "guard":
            self.guards.get(id(machine), {}).pop(str(entry.item.body.get("lesson", "")), None)
        if entry.item.kind == "skill":  # a no removes the draft, with a person's words in it
            token = f"qzhand{PurePosixPath(str(entry.item.body['draft'])).parent.name[1:]}x".encode()
            self.hands.get(id(machine), {}).pop(token, None)
        is_yes, done = self.rng.random() < 0.6, None

        def waits() -> bool:
            found = [each for each in Inbox(workspace).entries() if each.item.id == entry.item.id]
            return any(each.is_pending for each in found)

        def waits_again() -> None:
            assert done is None or not done.run or waits(), f"the answer was taken back, and {entry.item} waits no more"

        try:
            with self._taking_back(machine, waits_again):
                if is_yes:
                    answer = self.rng.choice(["first", "second", ""])
                    done = inbox.approve(workspace, machine.agent, entry.item.id, answer)
                else:
                    done = inbox.reject(workspace, machine.agent, entry.item.id)
                if entry.item.kind == "candidate" and pattern and is_yes and self._acknowledge(machine, pattern):
                    self.ledger.logged[done.run] = (str(machine.root), pattern, False)
            assert not waits(), f"{entry.item} was answered, and waits"
        except FleetError as why:
            self.note("not answered", type(why).__name__)
            return False
        finally:
            self._note_words_anew(machine, purged)
        self.happened[f"answered {entry.item.kind}"] += 1
        return True

    # --- guards and trust ---------------------------------------------------------------------------------------------

    def guard(self, machine: Machine) -> bool:
        """Let a lesson stop its command on this machine."""
        lesson = self._some_lesson(machine)
        if not lesson or machine.others:
            return False
        workspace, known = self.open(machine), self.guards.setdefault(id(machine), {})
        undoing.finish(workspace)  # a crash may have cut short the undo of the same decision
        known.pop(lesson, None)
        with self._taking_back(machine):
            try:
                done = starting.Guards(workspace).decide(lesson, self.rng.choice(["ask", "deny"]))
            except NoError:
                lessons.edit(workspace, machine.agent, lesson, ["trigger=Bash:tool-7*"])
                return False
        known[done.id] = (done.decision, done.lesson)
        return True

    def lift_guard(self, machine: Machine) -> bool:
        """Lift a guard."""
        known = self.guards.get(id(machine), {})
        if not known or machine.others:
            return False
        workspace, lesson = self.open(machine), self.rng.choice(sorted(known))
        known.pop(lesson)
        with self._taking_back(machine):
            starting.Guards(workspace).lift(lesson)
        assert lesson not in {each.id for each in starting.Guards(self.open(machine)).all()}
        return True

    def _check_guards(self, machine: Machine, *, may_change: bool, is_anew: bool) -> None:
        """Check that all guards hold, with decision and words, until somebody here changes or lifts them."""
        known = self.guards.get(id(machine), {})
        if not known or machine.others:
            known.clear()
            return
        workspace = self.open(machine)
        now = {each.id: each for each in starting.Guards(workspace).all()}
        if is_anew:
            for each in known.keys() - now.keys():
                del known[each]
        for lesson, (decision, words) in known.items():
            assert lesson in now, f"{lesson} guarded its step on {machine.root.name}, and nobody lifted it"
            shown = now[lesson].lesson.removesuffix("; others have retired it since")
            if may_change:
                known[lesson] = (now[lesson].decision, shown or words)
                continue
            assert now[lesson].decision == decision, f"{lesson}: {decision} became {now[lesson].decision}"
            assert shown in ("", words), f"others changed the words of a guard: {words!r} became {shown!r}"

    def block_a_while(self, machine: Machine) -> bool:
        """Block a writer, which must then count nothing, and unblock it, so that all must be as before."""
        workspace = self.open(machine)
        self._do_as_any_command(workspace, machine.agent)
        before = self._facts(machine)
        known = self.known_by(machine).records
        names = sorted({each for record in known.values() for each in record.by_writer()})
        if not names or workspace.trust.blocked() or workspace.trust.asked() or machine.others:
            return False
        name = self.rng.choice(names)
        try:
            reviewing.block(workspace, machine.agent, name)
        except FleetError:  # it writes here
            return False
        for each in workspace.patterns.records():
            others = Line(each.id, {by: column for by, column in known[each.id].w.items() if by != name})
            seen = fold(others).count("seen")
            assert each.count("seen") <= seen, f"{name} is blocked, and {each.id} counts more than {seen}"
        reviewing.unblock(workspace, name)
        now = self._facts(machine)
        changed = {each: (was, now.get(each)) for each, was in before.items() if now.get(each) != was}
        assert not changed, f"{name} was blocked for a while, and lessons are not as before: {changed}"
        return True


class Alone(Tended):
    """A long tended history of one folder alone, which syncs only at the end, and in which power fails often."""

    def __init__(self, seed: int, folder: Path) -> None:
        super().__init__(seed, folder)
        self.machines = self.machines[:1]
        self.steps = self.rng.choice([20, 40, 80])

    def actions(self) -> list[Callable[[Machine], object]]:
        """Return the possible actions, each as many times as its weight says."""
        return [
            *[self.crash_in] * 16,
            *[self.observe, self.end_session, self.write_by_a_person, self.answer_inbox, self.undo_any] * 4,
            *[self.propose, self.consolidate, self.suggest, self.strike] * 2,
            *(self.guard, self.lift_guard, self.tidy, self.sleep, self.wait_days, self.migrate, self.turn_directive),
            *(self.promote, self.demote, self.correct, self.retire, self.restore, self.edit, self.undo),
            *(self.reword, self.merge_lessons, self.set_memory, self.move_homes),
        ]

    def powered(self) -> list[Callable[[Machine], object]]:
        """Return the actions in which power may fail."""
        acts = [
            self.end_session,
            self.consolidate,
            self.suggest,
            self.answer_inbox,
            self.guard,
            self.migrate,
            self.tidy,
        ]
        return [*acts, self.sleep, self.promote, self.demote, self.move_homes, self.undo_any]

    def begin(self) -> None:
        """Log a correction."""
        self.correct(self.machines[0])

    def heal(self) -> None:
        """Finish what a crash cut short, check the pages, and sync for the first time."""
        machine = self.machines[0]
        Runs(self.open(machine)).recover()
        self._check_pages(machine, is_anew=False)
        super().heal()


def _is_cut_short(machine: Machine) -> bool:
    """Return whether a crash left an unfinished run or undo here, which the next one finishes."""
    local = Local(machine.root / ".fleet" / "local.db", durable=False, machine=lambda: "one-machine")
    try:
        is_undoing = local.path.exists() and bool(local.get(local.here(undoing._PENDING)))
    finally:
        local.close()
    return is_undoing or any((machine.root / ".fleet" / "runs").glob("*.plan"))


def _is_of_project(path: str) -> bool:
    return path in (auto_reflect.FILE, auto_reflect.AGENTS_FILE) or path.startswith(".agents/")


def _place(path: str) -> str:
    """Return a page's place: one for the scratchpad and its logs, and just the name in a home, which may move."""
    if path == auto_reflect.FILE or path.startswith(f"{auto_reflect.LOGS}/"):
        return auto_reflect.FILE
    return path if _is_of_project(path) else PurePosixPath(path).name


def _written(page: bytes) -> Iterator[bytes]:
    """Yield the tokens that people wrote into a page, each once for a row, without those that a pointer quotes."""
    for row in page.split(b"\n"):
        yield from {*(_BEHIND if _POINTER.match(row) else _HAND).findall(row)}


def _stands(place: str, places: set[str]) -> bool:
    return place in places or (place == auto_reflect.FILE and any(map(_is_of_project, places)))


@contextmanager
def _reflecting(more: dict[str, Any]) -> Iterator[None]:
    """Add something to what the rules of reflection find."""
    reflect = rules.reflect
    rules.reflect = lambda session: msgspec.structs.replace(reflect(session), **more)
    try:
        yield
    finally:
        rules.reflect = reflect
