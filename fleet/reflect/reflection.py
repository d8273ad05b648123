"""Reflection on a session: the reflectors, and the parser that recovers JSON from whatever a model wrote around it.

The recovery knows strings: a brace inside a string opens and closes nothing. Of several objects the largest valid one
is taken; of an object that breaks off, the part that is there.

A reflector is a host's own client, any command, or an endpoint. One that hangs, dies or prints without end is stopped
with all its children. It runs in an empty folder with fleet turned off, so that it reads no project's instructions and
triggers no hook. ``claude`` is called without tools, hooks, memory or session file (docs/reflection.md).
"""

import json
import os
import re
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from itertools import islice
from pathlib import Path
from threading import Thread
from typing import Any, Literal, NamedTuple, TypeVar

import msgspec

from crdt import clock
from fleet.model.names import normalise
from fleet.store import consent, process
from fleet.store.config import BANNED, Reflect
from fleet.text import dates, tables
from fleet.text.screening import texts_in

ANSWER_CHARS_MAX = 512 * 1024
_OBJECTS_MAX = 60
_MENDED_MAX = 3
_CUTS_MAX = 9
_DEPTH_MAX = 32
_LIST_MAX = 50
_FIELDS_DEPTH = 3  # a list in an object in the reflection; no field is nested deeper
_SLUG = re.compile(r"[a-z][a-z0-9-]{1,49}")
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*+"|[{}\[\],]|"', re.DOTALL)

PERSON: Literal["person"] = "person"
FAILURE: Literal["failure"] = "failure"
_By = Literal["person", "failure", ""]
Outcome = Literal["success", "partial", "failure"]
_Result = TypeVar("_Result")


class Lesson(msgspec.Struct, frozen=True, kw_only=True):
    """Lesson of a session, with the session's words that support it, and the number of their line (0: unknown).

    ``by``: ``person`` where a person said so, ``failure`` where a command failed and then worked; "" for neither.
    """

    text: str
    wrong: str = ""
    right: str = ""
    quote: str = ""
    by: _By = ""
    line: int = 0


class Reflection(msgspec.Struct, frozen=True, kw_only=True):
    """Answer of a reflector about a session: the fields that docs/reflection.md explains."""

    outcome: Outcome
    what_worked: str | None = None
    what_didnt: str | None = None
    should_skill: bool = False
    skill_slug: str | None = None
    skill_description: str | None = None
    skill_body: str | None = None
    memory_notes: tuple[str, ...] = ()
    persona_observations: tuple[str, ...] = ()
    next_check_at: str | None = None
    user_model_updates: dict[str, tuple[str, ...]] = {}
    lessons: tuple[Lesson, ...] = ()


class _ParsedAnswer(NamedTuple):
    """Parsed answer: its reflection, if there is one; why there is none, or what was lost."""

    reflection: Reflection | None
    trouble: str = ""


def parse(answer: str, banned: Sequence[str] = BANNED) -> _ParsedAnswer:
    """Return the reflection in an answer; a banned word anywhere rejects all of it."""
    reasons = list[str]()
    # The largest whole object is taken; one with stray commas, or that breaks off, only if none is whole.
    for objects, trouble in _readings(answer[-ANSWER_CHARS_MAX:]):
        for _, fields in sorted(objects, key=lambda each: -each[0]):
            try:
                stated = _validated(fields)
            except ValueError as fault:
                reasons.append(str(fault))
                continue
            if word := _banned_word(stated, banned):
                return _ParsedAnswer(None, f"the banned word {word!r} is in it: all of it is rejected")
            return _ParsedAnswer(stated, trouble)
    return _ParsedAnswer(None, reasons[0] if reasons else "there is no JSON object in the answer")


def _banned_word(reflection: Reflection, banned: Sequence[str]) -> str:
    """Return the first banned word in a reflection, as a whole word in any case; "" for none."""
    words = [re.escape(word.strip()) for word in banned if word.strip()]
    if not words:
        return ""
    text = "\n".join(texts_in(msgspec.to_builtins(reflection)))
    match = re.search(rf"(?<!\w)(?:{'|'.join(words)})(?!\w)", text, re.IGNORECASE)
    return match[0] if match else ""


# --- recovery -------------------------------------------------------------------------------------------------------

_Objects = list[tuple[int, dict[str, Any]]]  # with their sizes


def _readings(answer: str) -> Iterator[tuple[_Objects, str]]:
    """Yield the possible readings of an answer, the best first, each with what was lost in it."""
    yield _objects(answer), ""
    yield _objects(re.sub(r",(\s*[}\]])", r"\1", answer)), ""  # the commonest fault of models
    begins = islice(re.finditer(r"\{", answer), _MENDED_MAX)
    broken = [(len(answer) - each.start(), _broken_off(answer[each.start() :])) for each in begins]
    trouble = "the answer breaks off; what was said until then was read"
    yield [(size, parsed) for size, parsed in broken if parsed is not None], trouble


def _objects(answer: str) -> _Objects:
    """Return the outermost JSON objects of a text."""
    decoder, objects, at = json.JSONDecoder(strict=False), _Objects(), answer.find("{")
    for _ in range(_OBJECTS_MAX):
        if at < 0:
            break
        end = at + 1
        with suppress(ValueError, RecursionError):
            parsed, end = decoder.raw_decode(answer, at)
            objects.append((end - at, parsed))
        at = answer.find("{", end)
    return objects


def _broken_off(text: str) -> dict[str, Any] | None:
    """Return an object that breaks off, closed at the end of the text, or before one of its last members.

    A string without an end is left out: half a note may say something else.
    """
    stack, cuts = list[str](), deque[tuple[int, str]](maxlen=_CUTS_MAX)
    for token in _TOKEN.finditer(text):
        sign = token[0]
        if sign in "{[":
            stack.append("}" if sign == "{" else "]")
            if len(stack) > _DEPTH_MAX:
                return None
            cuts.append((token.end(), "".join(reversed(stack))))
        elif sign in "}]" and (not stack or stack.pop() != sign or not stack):
            return None
        elif sign == ",":
            cuts.append((token.start(), "".join(reversed(stack))))
        elif sign == '"':  # the beginning of a string without an end
            break
    else:
        cuts.append((len(text), "".join(reversed(stack))))
    for end, closing in reversed(cuts):
        with suppress(ValueError, RecursionError):
            return json.loads(text[:end] + closing, strict=False) or None
    return None


# --- validation -----------------------------------------------------------------------------------------------------


def _validated(fields: dict[str, Any]) -> Reflection:
    """Return an object as a normalised reflection; raise ValueError where it is none."""
    next_ms = dates.to_ms(fields.get("next_check_at"))
    normalised = {
        "next_check_at": f"{clock.pack(next_ms)[:19]}Z" if next_ms else None,
        "lessons": list(_lessons(fields.get("lessons"))),
    }
    reflection = msgspec.convert(_tidied(fields) | normalised, Reflection)
    if reflection.should_skill and not _SLUG.fullmatch(reflection.skill_slug or ""):
        slug = (reflection.skill_slug or "")[:60]
        raise ValueError(f"skill_slug {slug!r} is no slug: a-z, then a-z, 0-9 and '-', 2 to 50 characters")
    return reflection


def _tidied(value: Any, depth: int = _FIELDS_DEPTH) -> Any:
    """Return a JSON value with its texts trimmed, and without empty ones."""
    if isinstance(value, str):
        return _clean(value)
    if isinstance(value, list) and depth:
        return [tidied for each in value[:_LIST_MAX] if (tidied := _tidied(each, depth - 1)) not in ("", None)]
    if isinstance(value, dict) and depth:
        members = {_clean(key): _tidied(each, depth - 1) for key, each in value.items()}
        return {key: tidied for key, tidied in members.items() if key and tidied not in ("", None, [])}
    return value


def _lessons(value: Any) -> Iterator[Lesson]:
    """Yield the lessons of a reflection that have words. An invalid one is left out, and rejects nothing else."""
    for entry in value[:_LIST_MAX] if isinstance(value, list) else ():
        fields = entry if isinstance(entry, dict) else {"text": entry}  # a model's short form
        given = {name: fields.get(name) for name in ("text", "wrong", "right", "quote")}
        texts = {name: _clean(text) for name, text in given.items() if isinstance(text, str)}
        if text := texts.get("text"):
            if normalise(texts.get("right", "")) == normalise(text):  # else a session's start shows the rule twice
                texts.pop("right", None)
            by, line = fields.get("by"), fields.get("line")
            said_by: _By = PERSON if by == PERSON else FAILURE if by == FAILURE else ""
            yield Lesson(**texts, by=said_by, line=line if type(line) is int and 0 < line < 10**9 else 0)


def _clean(text: str) -> str:
    return text.encode("utf-8", "replace").decode().strip()


# --- reflectors -----------------------------------------------------------------------------------------------------

OUTPUT_BYTES_MAX = 4 * 1024 * 1024
_TOKENS_OUT_MAX = 4_096
_DATA = Path(__file__).with_name("data")

CLIENTS: dict[str, list[str]] = tables(str(_DATA / "clients.toml"))
SYSTEM, _, _SHAPE = (_DATA / "prompt.txt").read_text("utf-8").rstrip().partition("\n\n")
"""System prompt of a reflector, and the shape of its answer."""


class Answer(NamedTuple):
    """Answer of a reflector.

    ``text``: "" for none; ``trouble``: the reason for that, in a sentence; ``usd``: its cost, None for unknown.
    """

    text: str = ""
    trouble: str = ""
    usd: float | None = None
    tokens_in: int = 0
    tokens_out: int = 0
    model: str = ""


def ask(reflector: str, settings: Reflect, digest: str, mark: str) -> Answer:
    """Return the answer of a reflector about a session; a failure is its trouble, and never raised.

    ``mark``: a random tag around the digest.
    """
    prompt_text = f"{_SHAPE}\n\nThe record of the session:\n<{mark}>\n{digest}\n</{mark}>\n"
    if reflector == "endpoint":
        return _from_endpoint(settings, prompt_text)
    if reflector == "command":
        words = list(settings.command)
        if not words:
            return Answer(trouble="[reflect] command in fleet.toml is empty: there is nobody to ask", usd=0.0)
        return _priced(_run(words, f"{SYSTEM}\n\n{prompt_text}", settings.wait_s, _plain), settings)
    given = {"USD": f"{settings.max_usd:g}", "SYSTEM": SYSTEM}
    words = [given.get(word, word) for word in CLIENTS[reflector]]
    prompt = prompt_text if "SYSTEM" in CLIENTS[reflector] else f"{SYSTEM}\n\n{prompt_text}"
    return _run(words, prompt, settings.wait_s, _READERS[reflector])


def _run(words: Sequence[str], prompt: str, wait_s: float, read: Callable[[str], Answer]) -> Answer:
    """Run a command with the prompt on its standard input; return its answer."""
    environment = {**os.environ, "FLEET_DISABLED": "1"}
    until, trouble = time.monotonic() + wait_s, ""
    try:
        with (
            tempfile.TemporaryDirectory(prefix="fleet-reflect-", ignore_cleanup_errors=True) as folder,
            tempfile.TemporaryFile() as file,
        ):
            file.write(prompt.encode())
            file.seek(0)
            done = process.run(
                words,
                folder=Path(folder),
                env=environment,
                until=until,
                out_max=OUTPUT_BYTES_MAX,
                stdin=file,
                is_alone=True,
            )
    except process.StoppedError as why:
        done = process.Done(0, why.out, "")
        late, much = f"gave no answer within {wait_s:g} s", f"printed more than {OUTPUT_BYTES_MAX:,} bytes"
        trouble = f"{late if why.is_late else much}, and was stopped"
    except (OSError, ValueError) as why:
        return Answer(trouble=f"{words[0]} could not be started from an empty folder: {why}", usd=0.0)
    out = " ".join(done.out.decode("utf-8", "replace").split())
    answer = read(done.out.decode("utf-8", "replace"))
    if not trouble and done.code:
        message = " ".join(done.err.split())[-300:]
        trouble = f"{words[0]} ended with exit code {done.code}{f': {message}' if message else ''}"
    if not answer.text and (out or not trouble):
        reason = answer.trouble or out[-300:] or "nothing"
        trouble = "; ".join(filter(None, [trouble, f"{words[0]} gave no answer: {reason}"]))
    # An object that breaks off may still be parsed: the text is kept beside the trouble.
    return answer._replace(trouble=trouble)


# --- output of clients ----------------------------------------------------------------------------------------------


def _read_claude(out: str) -> Answer:
    output = _json(out)
    usage, text = _dict(output.get("usage")), output.get("result")
    answer = Answer(
        text=text if isinstance(text, str) else "",
        usd=_number(output.get("total_cost_usd")),
        tokens_in=sum(_count(tokens) for name, tokens in usage.items() if name.endswith("input_tokens")),
        tokens_out=_count(usage.get("output_tokens")),
        model=next(iter(_dict(output.get("modelUsage"))), ""),
    )
    if answer.text and output.get("is_error") is not True:
        return answer
    return answer._replace(text="", trouble=(answer.text or str(output.get("subtype", "")))[:300])


def _read_codex(out: str) -> Answer:
    text, usage = "", dict[str, Any]()
    for line in out.splitlines():
        event = _json(line)
        item = _dict(event.get("item"))
        if event.get("type") == "item.completed" and item.get("type") == "agent_message":
            text = str(item.get("text", ""))
        usage = _dict(event.get("usage")) or usage
    return Answer(text, tokens_in=_count(usage.get("input_tokens")), tokens_out=_count(usage.get("output_tokens")))


def _read_gemini(out: str) -> Answer:
    output = _json(out)
    text = output.get("response") if output else out
    models = _dict(_dict(output.get("stats")).get("models"))
    used = [_dict(_dict(each).get("tokens")) for each in models.values()]
    read, written = (sum(_count(each.get(name)) for each in used) for name in ("prompt", "candidates"))
    return Answer(text if isinstance(text, str) else "", "", None, read, written, next(iter(models), ""))


_READERS = {"claude": _read_claude, "codex": _read_codex, "gemini": _read_gemini}


def _plain(out: str) -> Answer:
    """Return the output of a command as an answer, with the cost_usd, model and tokens that it reports."""
    output = _json(out)
    return Answer(
        out.strip(),
        usd=_number(output.get("cost_usd", output.get("total_cost_usd"))),
        tokens_in=_count(output.get("tokens_in")),
        tokens_out=_count(output.get("tokens_out")),
        model=str(output.get("model", ""))[:100],
    )


def _priced(answer: Answer, settings: Reflect) -> Answer:
    """Return an answer with its cost, where the prices are known and it has none."""
    prices = (settings.usd_per_million_in, settings.usd_per_million_out)
    if answer.usd is not None or not any(prices) or not answer.tokens_in:
        return answer
    return answer._replace(usd=(answer.tokens_in * prices[0] + answer.tokens_out * prices[1]) / 1_000_000)


# --- endpoints ------------------------------------------------------------------------------------------------------


def _from_endpoint(settings: Reflect, prompt: str) -> Answer:
    ask_it, key = _anthropic if settings.api == "anthropic" else _openai, consent.variable(settings.key_env)
    try:
        consent.Endpoint(settings.url).check()
        answer = _priced(_called(lambda: ask_it(settings, key, prompt), settings.wait_s), settings)
    except ImportError as why:
        name = why.name or "its package"
        return Answer(trouble=f"{name} is not installed: `uv tool install 'fleet-learnings[{name}]'`", usd=0.0)
    except Exception as why:  # noqa: BLE001 - an SDK raises what it likes
        return Answer(trouble=f"{settings.url} gave no answer: {_without_key(why, key)}")
    if len(answer.text) > OUTPUT_BYTES_MAX:
        return answer._replace(text="", trouble=f"an answer of more than {OUTPUT_BYTES_MAX:,} characters")
    return answer if answer.text else answer._replace(trouble="an answer without words")


def _called(act: Callable[[], _Result], wait_s: float) -> _Result:
    """Return what a call of an SDK returns, or raise what it raises; ``TimeoutError`` after ``wait_s``.

    An SDK limits each read and not their sum: an endpoint that drips would be waited for without end.
    """
    result = Future[_Result]()

    def call() -> None:
        try:
            result.set_result(act())
        except Exception as why:  # noqa: BLE001 - raised by ``result``
            result.set_exception(why)

    Thread(target=call, daemon=True).start()
    with suppress(TimeoutError):
        return result.result(wait_s)
    raise TimeoutError(f"it took more than {wait_s:g} s")


def _without_key(why: Exception, key: str) -> str:
    """Return an SDK's error in a sentence, without the key, which a server may repeat."""
    message = f"{type(why).__name__}: {why}"
    return (message.replace(key, "[key]") if key else message)[:240]


def _connection(settings: Reflect, key: str) -> dict[str, Any]:
    return {"base_url": settings.url, "api_key": key or "none", "timeout": settings.wait_s, "max_retries": 1}


def _anthropic(settings: Reflect, key: str, prompt: str) -> Answer:
    import anthropic

    # A redirect would send the session to an address that nobody agreed to; another key, to an account of that kind.
    client = anthropic.Anthropic(
        **_connection(settings, key),
        http_client=anthropic.DefaultHttpxClient(follow_redirects=False),
        default_headers={"Authorization": f"Bearer {key or 'none'}"},
    )
    response = client.messages.create(
        model=settings.model,
        max_tokens=_TOKENS_OUT_MAX,
        system=SYSTEM,
        messages=[{"role": "user", "content": prompt}],
    )
    text = "".join(block.text for block in response.content if block.type == "text")
    usage = response.usage
    return Answer(text, "", None, _count(usage.input_tokens), _count(usage.output_tokens), str(response.model))


def _openai(settings: Reflect, key: str, prompt: str) -> Answer:
    import openai

    client = openai.OpenAI(
        **_connection(settings, key),
        http_client=openai.DefaultHttpxClient(follow_redirects=False),
        default_headers={"OpenAI-Organization": openai.Omit(), "OpenAI-Project": openai.Omit()},
    )
    response = client.chat.completions.create(
        model=settings.model,
        max_tokens=_TOKENS_OUT_MAX,
        messages=[{"role": "system", "content": SYSTEM}, {"role": "user", "content": prompt}],
    )
    text = response.choices[0].message.content if response.choices else ""
    usage = response.usage
    read, written = (_count(usage.prompt_tokens), _count(usage.completion_tokens)) if usage is not None else (0, 0)
    return Answer(text if isinstance(text, str) else "", "", None, read, written, str(response.model or ""))


def tell_honcho(settings: Reflect, agent: str, updates: Mapping[str, Sequence[str]]) -> str:
    """Send observations of people to Honcho, as conclusions of the agent about each; return what failed, or ""."""
    key = consent.variable(settings.honcho_key_env)

    def send() -> None:
        import honcho

        server = {"base_url": settings.honcho_url} if settings.honcho_url else {}
        client = honcho.Honcho(api_key=key or None, workspace_id=settings.honcho, timeout=30.0, **server)
        for peer, texts in updates.items():
            client.peer(agent).conclusions_of(peer).create([{"content": each} for each in texts])

    try:
        _called(send, settings.wait_s)
    except ImportError:
        return "honcho is not installed: `uv tool install 'fleet-learnings[honcho]'`"
    except Exception as why:  # noqa: BLE001 - an SDK raises what it likes
        return f"Honcho was not told: {_without_key(why, key)}"
    return ""


def _json(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _number(value: Any) -> float | None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1_000_000
    return float(value) if is_number else None


def _count(value: Any) -> int:
    return value if type(value) is int and 0 <= value < 10**12 else 0
