"""Rule-based reflector: lessons of a session by its form alone, offline and at no cost.

A lesson is a quotation of a person or a command, in one line; none is worded anew. Rules come before mere requests.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from hashlib import blake2b
from itertools import takewhile
from pathlib import Path
from typing import NamedTuple

from fleet.model.names import normalise
from fleet.reflect.digest import runs, unpasted, wants_to_be_obeyed
from fleet.reflect.reflection import FAILURE, PERSON, Lesson, Outcome, Reflection
from fleet.text import dates, screening, shell
from fleet.text.advice import pattern
from fleet.text.prompts import Event, Prompt, Session
from fleet.text.signals import detect, objections

LESSON_MIN = 3
"""Least score of a proposal that becomes a lesson of a reflection."""
LESSONS_MAX = 8
_TEXT_CHARS_MAX = 300
_ABOUT_CHARS_MAX = 160
_ERROR_WORDS_MIN = 4
_WORDS_MIN, _WORDS_MAX = 5, 50
_WORTH = {"rejection": 3, "interruption": 1, "strong": 3, "medium": 1, "failure": 3, "missing": 3, "standing": 3}

_pattern = partial(pattern, str(Path(__file__).with_name("data") / "rules.toml"))
_POINTING_WORDS_MAX = 8
"""A remark that points at something and has fewer words is no rule."""
_SENTENCE = re.compile(r"[^.!?\n]+[.!?]?")
_FIX_WITHIN = 6
_SEQUENCE = 3
_REPEATS_MIN = 3
_READS_MIN = 5
_SLOW_MS = 300_000
_EDITS = frozenset(("Edit", "Write", "MultiEdit"))


class Proposal(NamedTuple):
    """Possible lesson of a past session.

    ``kind``: rejection, interruption, correction, standing, failure, missing or memory.
    ``wrong``: the refused, done or failing action; ``trigger``: of the command that was refused.
    """

    id: str
    kind: str
    text: str
    wrong: str
    session: str
    at: str
    times: int
    worth: int
    line: int = 0
    quote: str = ""
    trigger: str = ""

    @classmethod
    def of(
        cls, session: str, kind: str, excerpt: str, about: str, at: str, worth: int, *, line: int = 0, quote: str = ""
    ) -> "Proposal":
        """Return a proposal with its fields screened, in one line each, and a score for how much of a rule it is.

        ``quote``: the words that support it, by default its own.
        """
        text, wrong = _line(excerpt, _TEXT_CHARS_MAX), _line(about, _ABOUT_CHARS_MAX)
        words = len(text.split())
        if kind not in ("failure", "missing", "memory"):
            asks = text.endswith(("?", "？")) or _pattern("asks").match(text) is not None
            worth += 2 * (_pattern("binds").search(text) is not None) - 4 * asks
            worth += 2 * (_pattern("orders").match(text) is not None)
            worth += 2 * (asks and _pattern("asks_why_not").search(text) is not None)
            worth -= 2 * (_pattern("reports").match(text) is not None) + 2 * (
                _pattern("pastes").search(text) is not None
            )
            worth -= 3 * (_pattern("chats").match(text) is not None) + 2 * (not asks and "?" in text)
            worth -= 3 * (words < _POINTING_WORDS_MAX and _pattern("points").search(text) is not None)
            worth -= 2 * (words < _WORDS_MIN) + (words > _WORDS_MAX) + 4 * text.endswith((":", "："))  # lacks its rule
            worth = min(worth, LESSON_MIN - 1) if _is_passing(text) else worth
        elif wants_to_be_obeyed(quote):
            worth = 0
        supports = _line(quote or excerpt, 2_000)
        return cls(cls.id_of(session, kind, text), kind, text, wrong, session, at, 1, worth, line, supports)

    def as_lesson(self) -> Lesson:
        """Return the lesson of a reflection."""
        by = FAILURE if self.kind in ("failure", "missing") else PERSON
        return Lesson(text=self.text, wrong=self.wrong, quote=self.quote, by=by, line=self.line)

    @staticmethod
    def id_of(session: str, kind: str, text: str) -> str:
        """Return the mark of a session's lesson in the log, so that it is logged once: ``t-`` and 8 hex."""
        identity = f"{session}\0{kind}\0{normalise(text)}"
        return f"t-{blake2b(identity.encode('utf-8', 'surrogatepass'), digest_size=4).hexdigest()}"


def reflect(session: Session) -> Reflection:
    """Return the reflection on a session by its form."""
    proposals = propose([session])
    lessons = [each.as_lesson() for each in proposals if each.worth >= LESSON_MIN][:LESSONS_MAX]
    slug, description, body = _sequence(session) or _slow(session) or _wish(session) or (None, None, None)
    return Reflection(
        outcome=_outcome(session, proposals),
        what_didnt="; ".join(each.text for each in proposals if each.kind == "failure")[:500] or None,
        should_skill=slug is not None,
        skill_slug=slug,
        skill_description=description,
        skill_body=body,
        memory_notes=tuple(_notes(session)),
        lessons=tuple(lessons),
    )


# --- lessons --------------------------------------------------------------------------------------------------------


def propose(sessions: Iterable[Session]) -> list[Proposal]:
    """Return the proposals of sessions, best first; what several sessions have is one proposal, with its number."""
    by_text: dict[str, Proposal] = {}
    for session in sessions:
        for proposal in (*_objected(session), *_failed(session), *_was_missing(session)):
            key = normalise(proposal.text)
            known = by_text.get(key)
            if known is None:
                by_text[key] = proposal
            elif known.session != proposal.session:
                by_text[key] = known._replace(times=known.times + proposal.times, worth=known.worth + 1)
    return sorted(by_text.values(), key=lambda each: (-each.worth, each.at, each.id))


def _objected(session: Session) -> Iterator[Proposal]:
    objected = objections(session.events)[0]
    for objection in objected:
        theirs, kind = unpasted(objection.words), objection.kind
        offer = Proposal.of(session.id, kind, theirs, objection.step, objection.at, _WORTH[kind], line=objection.line)
        yield offer._replace(trigger=shell.Command(objection.refused).trigger)
    known_texts = {each.words for each in objected}
    last = ""
    for event in session.events:
        if event.kind == "call":
            last = f"{event.tool} {event.about}"
        elif event.kind == "prompt" and event.text.strip() not in known_texts and Prompt(event.text).is_typed:
            known_texts.add(event.text.strip())
            theirs = unpasted(event.text)
            signal = detect(theirs)
            if signal is not None:
                excerpt = theirs if len(theirs) <= _TEXT_CHARS_MAX else signal.excerpt
                about, worth = last and f"after {last}", _WORTH[signal.confidence]
                yield Proposal.of(session.id, "correction", excerpt, about, event.at, worth, line=event.line)
            else:
                yield from _standing(session.id, event)


def _standing(session: str, event: Event) -> Iterator[Proposal]:
    """Yield the sentences of a prompt that hold beyond its task: standing orders and rules."""
    sender, typed = Prompt(unpasted(event.text)).own_words()
    for match in () if sender else _SENTENCE.finditer(typed):
        sentence = match[0].strip()
        words = len(sentence.split())
        if not _WORDS_MIN <= words <= _WORDS_MAX or "·" in sentence:
            continue
        is_order = _pattern("orders").match(sentence) and _pattern("stands").search(sentence)
        if is_order or _pattern("lays_down").search(sentence):
            yield Proposal.of(session, "standing", sentence, "", event.at, _WORTH["standing"], line=event.line)


def _is_passing(text: str) -> bool:
    """Return whether all binding sentences of a text hold only for now, quote somebody, or only seem to bind."""
    binding = (each[0] for each in _SENTENCE.finditer(text) if _pattern("binds").search(each[0]))
    return _pattern("passes").search(text) is not None and all(map(_pattern("passes").search, binding))


def _failed(session: Session) -> Iterator[Proposal]:
    """Yield the builds that failed alike more than once, with the last step before they passed."""
    calls: dict[str, Event] = {}
    red: dict[str, dict[str, list[str]]] = {}
    last = ""
    for event in session.events:
        if event.kind == "call":
            calls[event.id] = event
            if event.tool != "Bash":
                last = f"{event.tool} {event.about}" if event.tool in _EDITS else last
        call = calls.get(event.id)
        if event.kind != "result" or call is None or call.tool != "Bash":
            continue
        ran = shell.Command(call.about)
        family, is_ok = ran.family, ran.outcome(event.text, is_error=not event.is_ok)
        if not ran.is_build():
            last = f"`{call.about}`" if is_ok and not ran.is_read_only else last
        elif is_ok is False:
            failure = shell.Failure(event.text)
            red.setdefault(family, {}).setdefault(failure.fingerprint, []).append(failure.line)
        elif is_ok:
            for lines in red.pop(family, {}).values():
                if len(lines) > 1 and len(re.findall(r"[A-Za-z]{2,}", lines[-1])) >= _ERROR_WORDS_MIN and last:
                    text = f"`{family}` fails with: {lines[-1]} — it passed after {last}"
                    fields = (session.id, "failure", text, f"{call.about}: {lines[-1]}", event.at, _WORTH["failure"])
                    yield Proposal.of(*fields, line=event.line, quote=lines[-1])._replace(times=len(lines))


def _was_missing(session: Session) -> Iterator[Proposal]:
    """Yield the files or tools that a command lacked, with the later command that provided them."""
    ran = list(runs(session.events))
    known_names: set[str] = set()
    for number, (call, result) in enumerate(ran):
        match = None if result.is_ok else _pattern("missing").search(result.text)
        name = next(filter(None, match.groups()), "") if match else ""
        if not name or len(name) < 4 or name in known_names:
            continue
        for later, after in ran[number + 1 : number + 1 + _FIX_WITHIN]:
            provides = name in later.about and not shell.Command(later.about).is_read_only and name not in call.about
            # An installer prints the name of what it installed: a failure only if something is missing there, too.
            if provides and (name not in after.text or (after.is_ok and not _pattern("missing").search(after.text))):
                known_names.add(name)
                line = shell.Failure(match[0]).line if match else ""
                text = f"`{shell.Command(call.about).family}` fails with: {line} — `{later.about}` provided it"
                fields = (session.id, "missing", text, f"{call.about}: {line}", result.at, _WORTH["missing"])
                yield Proposal.of(*fields, line=result.line, quote=line)
                break


def _line(text: str, chars_max: int) -> str:
    clean = screening.one_line(screening.screen(text[: 8 * chars_max], home=str(Path.home())).text)
    return screening.shortened(clean, chars_max)


# --- skills, notes and the outcome ----------------------------------------------------------------------------------


def _sequence(session: Session) -> tuple[str, str, str] | None:
    """Return a skill for the sequence of three commands that repeats most, as slug, description and body."""
    ran = [call for call, _ in runs(session.events) if not shell.Command(call.about).is_read_only]
    families = [shell.Command(each.about).family for each in ran]
    spans = [tuple(families[at : at + _SEQUENCE]) for at in range(len(families) - _SEQUENCE + 1)]
    begins: dict[tuple[str, ...], list[int]] = {}
    for at, span in enumerate(spans):
        earlier = begins.setdefault(span, [])
        if len(set(span)) == _SEQUENCE and (not earlier or at >= earlier[-1] + _SEQUENCE):  # they may not overlap
            earlier.append(at)
    best, times = max(begins.items(), key=lambda item: len(item[1]), default=((), []))
    if len(times) < _REPEATS_MIN:
        return None
    rows = "\n".join(f"{number + 1}. `{_line(ran[times[0] + number].about, 200)}`" for number in range(_SEQUENCE))
    # A host chooses a skill by its description: a family (`npm build`) need not be a command that exists.
    shared = (_shared_words([ran[at + number].about for at in times]) for number in range(_SEQUENCE))
    steps = ", ".join(f"`{_line(words or name, 60)}`" for words, name in zip(shared, best, strict=True))
    body = f"These three commands were run one after the other {len(times)} times in one session:\n\n{rows}\n"
    return _slug(" ".join(best)), f"Run {steps} in this order", body


def _shared_words(commands: Sequence[str]) -> str:
    """Return the words that all commands begin with."""
    columns = zip(*(each.split() for each in commands), strict=False)
    return " ".join(words[0] for words in takewhile(lambda words: len({*words}) == 1, columns))


def _slow(session: Session) -> tuple[str, str, str] | None:
    """Return a skill for a command that took over five minutes three times."""
    took: dict[str, list[tuple[int, Event]]] = {}
    for call, result in runs(session.events):
        began, ended = dates.to_ms(call.at), dates.to_ms(result.at)
        if began is not None and ended is not None and ended - began >= _SLOW_MS:
            took.setdefault(shell.Command(call.about).family, []).append((ended - began, call))
    for family, times in took.items():
        if len(times) >= _REPEATS_MIN:
            minutes = sum(ms for ms, _ in times) // len(times) // 60_000
            body = (
                f"`{_line(times[0][1].about, 200)}` was run {len(times)} times in one session and took {minutes} "
                "minutes each time. Say here how to do with less of it: what to run first, and what to leave out.\n"
            )
            return _slug(family), f"What to do instead of waiting for `{_line(times[0][1].about, 60)}`", body
    return None


def _wish(session: Session) -> tuple[str, str, str] | None:
    for event in session.events:
        typed = event.text if event.kind == "said" or (event.kind == "prompt" and Prompt(event.text).is_typed) else ""
        if match := _pattern("wishes").search(Prompt(typed).own_words()[1]):
            wish = _line(match[0], 200)
            body = f"In one session it was said: “{wish}”. Say here how that is done with what there is.\n"
            return _slug(" ".join(wish.split()[4:9])), wish, body
    return None


def _notes(session: Session) -> Iterator[str]:
    """Yield a note for each file that is read again and again."""
    reads = Counter(event.about for event in session.events if event.kind == "call" and event.tool == "Read")
    edited = {event.about for event in session.events if event.kind == "call" and event.tool in _EDITS}
    for path, times in reads.most_common(3):
        if times >= _READS_MIN and path not in edited:
            shown = _line(path.removeprefix(f"{session.cwd}/") if session.cwd else path, 120)
            yield f"`{shown}` was read {_READS_MIN} times or more in one session; note here what is looked for in it"


def _outcome(session: Session, proposals: Sequence[Proposal]) -> Outcome:
    built = [result for call, result in runs(session.events) if shell.Command(call.about).is_build()]
    if built and not built[-1].is_ok:
        return "failure"
    objected = any(each.kind in ("rejection", "interruption", "correction") for each in proposals)
    return "partial" if objected else "success"


def _slug(words: str) -> str:
    slug = re.sub(r"[^a-z0-9]+", "-", words.lower()).strip("-")[:50].rstrip("-")
    slug = slug if slug[:1].isalpha() else f"do-{slug}"[:50].rstrip("-")
    return slug if len(slug) > 1 else "do-it"
