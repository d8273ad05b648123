"""Detection of secrets by their name or by their provider's form: ``fooToken = "…"``, ``API_KEY=…``, ``glsa_…``.

``screening`` imports this module only for a text with a hint of a secret. Providers' forms and the words of innocent
values are data files, read for the first such text; expressions are strings, which ``re`` compiles at the first use. A
token with a provider's prefix is *certain*; a value with the name of a secret is *doubtful*. Cost is linear: each name
and each prefix is matched once, and a value is judged by its first 128 characters.
"""

import hashlib
import math
import re
from collections.abc import Iterator
from functools import cache, partial
from itertools import groupby
from operator import itemgetter

from fleet.text import sections

VALUE_PEEK_CHARS = 128  # a value is judged by this prefix; all of it is redacted
_DIGIT = re.compile("[0-9]")
_NAMED = "env-secret"
"""Kind of a value that is a secret only by its name."""

_Span = tuple[int, int, str]
"""Start and end of a secret, and its kind."""

# --- by the provider's form -------------------------------------------------------------------------------------------


@cache
def _forms(section: str) -> list[list[str]]:
    """Return the kind, the prefix (or infix) and the expression of each provider's tokens."""
    return [row.split(None, 2) for row in _sections("providers.txt")[section]]


_sections = cache(sections)
# Compiled with the first text that has the prefix: all 180 take 15 ms.
_compiled = cache(partial(re.compile, flags=re.ASCII))
_LONG_WORD = re.compile(r"[A-Za-z0-9_+/=~.:|!%?&$,-]{16,}+")
"""Words that may contain a token: only these are searched, and prose and code have hardly any."""


def provided(text: str) -> Iterator[_Span]:
    """Yield the spans of tokens of a known form, unordered."""
    words = "\n".join(_LONG_WORD.findall(text))
    for kind, prefix, tail in _forms(""):
        start = text.find(prefix) if prefix in words else -1
        while start >= 0:
            end = start + len(prefix)
            match = _compiled(tail).match(text, end) if _is_border(text[max(0, start - 3) : start], prefix) else None
            stop = match.end() if match else 0
            if stop and not text[stop : stop + 1].isalnum() and not _is_sample(text[start:stop]):
                yield start, stop, kind
                end = stop
            start = text.find(prefix, end)
    for kind, infix, form in _forms("amid"):
        for word in _LONG_WORD.finditer(text) if infix in words else ():
            for match in _compiled(form).finditer(text, *word.span()):
                if not _is_sample(match[0]):
                    yield *match.span(), kind


def _is_border(before: str, prefix: str) -> bool:
    """Return whether a token may begin after three characters: not within a word, base64 or a dotted name."""
    last = before[-1:]
    if last in ("+", ".") and before[-2:-1].isalnum():
        return False
    return before[:1] == "%" or not (last.isalnum() and prefix[0].isalnum())  # `token%3Dghp_...`, of a query


@cache
def _expression(name: str) -> re.Pattern[str]:
    return re.compile("\n".join(_sections("expressions.txt")[name]))


@cache
def _words(name: str) -> tuple[str, ...]:
    return tuple(" ".join(_sections("secrets.txt")[name]).split())


_PUBLISHED_CHARS_MIN = 30  # no hash of the table is that of a shorter token


def _is_example(value: str) -> bool:
    """Return whether a value is an example: one character repeated, or a sample of a token."""
    peek = value[:VALUE_PEEK_CHARS]
    return (_expression("repeated").search(peek) is not None and len(set(peek.lower())) < 8) or _is_sample(value)


def _is_sample(token: str) -> bool:
    """Return whether a token is a sample of its form: ``EXAMPLE``, crosses, one that a vendor publishes."""
    low = token[:VALUE_PEEK_CHARS].lower()
    if "example" in low or "xxxxxx" in low:
        return True
    if len(token) < _PUBLISHED_CHARS_MIN:
        return False
    return hashlib.blake2b(token.encode("utf-8", "replace"), digest_size=8).hexdigest() in _words("published")


# --- NAME=value -------------------------------------------------------------------------------------------------------

_IN_NAMES = ("SECRET", "TOKEN", "PASS", "PWD", "KEY")
"""Parts of names of secrets; most texts have none of them."""


def is_placeholder(value: str) -> bool:
    """Return whether a value is a placeholder: a variable, a word for it, a path, ``...``."""
    return len(value) <= 2 * VALUE_PEEK_CHARS and _expression("placeholder").match(value) is not None


_AFTER_VALUE = ".,;:)}>\"'\\"


def _assigned(text: str) -> Iterator[_Span]:
    """Yield the values of names such as ``GITHUB_TOKEN``."""
    if not any(part in text for part in _IN_NAMES):
        return
    name, position = _expression("named"), 0
    while named := name.search(text, position):
        position = named.end()
        if _is_secret(named, text):
            start, position = _value_span(text, position, len(text))
            yield start, position, _NAMED


def _value_span(text: str, start: int, limit: int) -> tuple[int, int]:
    """Return the span of a value: within its quotes, or up to the next blank, without closing punctuation."""
    if text.startswith(("'", '"', "\\"), start):
        quoted = _expression("quoted").match(text, start, limit)
        if quoted and quoted.lastgroup:
            return quoted.span(quoted.lastgroup)
    bare = _expression("bare").match(text, start, limit)
    start, end = bare.span(1) if bare else (start, start)
    return start, start + len(text[start:end].rstrip(_AFTER_VALUE))


def _is_secret(named: re.Match[str], text: str) -> bool:
    """Return whether a value is a secret, by its name, the sign between them and its first characters."""
    name, position = named["name"], named.end()
    if name == "KEY" or name.removesuffix("_KEY").lower().endswith(_words("no_secret")):
        return False
    start, end = _value_span(text, position, position + VALUE_PEEK_CHARS)
    value = text[start:end]
    # A redacted part weighs nothing: else a second pass would find more than the first.
    core = _expression("redacted").sub("", value).strip(_AFTER_VALUE + "[]") if "[" in value else value
    bare = start == position
    if not core or _is_example(core) or (bare and named["blank"] and _expression("call").match(value)):
        return False
    if bare and named["sign"] == ":" and not (len(core) >= 6 and _DIGIT.search(core)):
        return core == value and _is_yaml_line(text, named, end) and not _expression("placeholder").match(value)
    return _is_plausible(name, core) and not _expression("placeholder").match(value.strip("'\""))


def _is_plausible(name: str, core: str) -> bool:
    """Return whether a value may be the secret of a name: ``TOKEN=token`` and ``MAX_TOKEN=4096`` are none."""
    word = core.upper().replace("-", "_")
    if name == word or name.endswith("_" + word):
        return False
    if _expression("password-name").search(name):
        return True
    return len(core) >= 6 and not (core.isdigit() and len(core) <= 6) and not _ODD_FOR_TOKEN.search(core)


# Characters that no token has; at an operator of a shell or a URL the value ends.
_ODD_FOR_TOKEN = re.compile(r"^[^&;|]{0,12}[?@%$^*!#\[\]{}]|^[^&;|]*[?@%^*!#\[\]{}]|^\w+=[^&]+&")


def _is_yaml_line(text: str, named: re.Match[str], end: int) -> bool:
    """Return whether ``DB_PASSWORD: correcthorse`` is alone on its line, and no prose with a colon."""
    if "_" not in named["name"] or text[end : end + 24].partition("\n")[0].strip():
        return False
    start = named.start()
    return text[max(0, start - 24) : start].rpartition("\n")[2].strip() in {"", "-"}


# --- any name, any quoting --------------------------------------------------------------------------------------------

_STRONG = ("secret", "pass", "pw", "cred")
_DIGITS_MIN = 4
_AFTER_ODD = ",;'\"`"
_TOKEN_LIKE = re.compile(r"[\w.+/=~-]+$", re.ASCII)
_PASSWORD_LIKE = re.compile(r"[!-~]+$")
_CHANGES_MIN = 5


_HEAD_CHARS = 4  # of an innocent word; none is shorter


@cache
def _innocent_by_head() -> dict[str, tuple[str, ...]]:
    grouped = groupby(sorted(_words("innocent")), key=itemgetter(slice(_HEAD_CHARS)))
    return {head: tuple(words) for head, words in grouped}


def _has_innocent_word(low: str) -> bool:
    """Return whether a value has one of 400 words: each head in it is looked up, since a search for each is slow."""
    by_head = _innocent_by_head()
    return any(low.startswith(by_head.get(low[at : at + _HEAD_CHARS], ()), at) for at in range(len(low)))


def _loose(text: str) -> Iterator[_Span]:
    """Yield random values after names of secrets in any case and quoting."""
    done = position = 0
    while named := _expression("loose").search(text, position):
        position = named.end("word")
        spans = () if _is_innocent_name(text, named) else _loose_values(text, named)
        for start, end in spans:
            peek = text[start : min(end, start + VALUE_PEEK_CHARS)]
            if start >= done and _is_random(named, peek, text[start - 1 : start]):
                rest = None if text[start - 1] in "\"'" else _expression("rest").match(text, end)
                done = position = rest.end() if rest else end
                yield start, position, _NAMED
                break


def _compared(text: str) -> Iterator[_Span]:
    for match in _expression("compared").finditer(text) if "=" in text else ():
        if _is_odd(match["value"], "'") and not _is_example(match["value"]):
            yield *match.span("value"), _NAMED


def _is_innocent_name(text: str, named: re.Match[str]) -> bool:
    start = named.start()
    before = text[max(0, start - 16) : start].lower()
    word = named["word"]
    if word == "PASS" and named["sign"].strip() == ":" and before[-1:] != "_":  # a test did
        return True
    if word.lower() in ("key", "pass", "auth") and not (word[0].isupper() and word[1:].islower()):
        is_key = word.lower() == "key" and before.endswith(_words("before_key"))
        if (before[-1:].isalpha() and not is_key) or (word.lower() == "pass" and named["tail"][:1].isalpha()):
            return True
    has_tail = named["tail"] and _expression("no-tail").search(named["tail"])
    return bool(has_tail) or before.rstrip(" _-").endswith(_words("no_secret"))


def _loose_values(text: str, named: re.Match[str]) -> Iterator[tuple[int, int]]:
    """Yield the spans that may be the value of a name."""
    start = named.end()
    if (
        not named["sign"].strip()
        and text[start : start + 1].isalnum()
        and not _expression("flag").search(text[max(0, named.start() - 32) : start])
        and not (_is_machine_made(text, start) and (named["word"].lower() != "key" or _is_strong(named)))
    ):
        return
    if named["sign"].strip() == "," and not (
        text[named.start("sign") - 1] in "\"'" and text[start : start + 1] in ("'", '"')
    ):
        return
    if text.startswith(("'", '"', "\\"), start):
        quoted = _expression("quoted").match(text, start, start + 1024)
        if quoted and quoted.lastgroup:
            yield quoted.span(quoted.lastgroup)
            return
    if named["sign"].lstrip().startswith(">"):
        # An XML element: any of its words.
        close = text.find("<", start, start + 1024)
        if text[close + 1 : close + 2] == "/":
            yield from (match.span() for match in _expression("run").finditer(text, start, close))
        return
    start += text[start : start + 1] in "\"'`\\("
    if _is_strong(named) and (odd := _expression("word").match(text, start)):
        yield start, start + len(odd[0].rstrip(_AFTER_ODD))
    bare = _expression("run").match(text, start)
    if bare:
        yield start, start + len(bare[0].rstrip(_AFTER_VALUE))


def _is_machine_made(text: str, start: int) -> bool:
    """Return whether a word is too long and mixed for prose: the only kind of value that may follow a blank alone."""
    word = _expression("machine-made").match(text, start)
    return word is not None and sum(map(str.isdigit, word[0])) >= _DIGITS_MIN


def _is_strong(named: re.Match[str]) -> bool:
    """Return whether the name is that of a password, which may have any character."""
    before, word = named.string[max(0, named.start() - 8) : named.start()], named["word"].lower()
    return word.startswith(_STRONG) or (word == "key" and _expression("key-prefix").search(before) is not None)


def _is_random(named: re.Match[str], value: str, before: str) -> bool:
    """Return whether a value is random, by its length, its characters, its entropy and the words in it."""
    if len(value) < 8 or (len(value) < 16 and value.isalpha()) or "[REDACTED:" in value:
        return False
    if _expression("placeholder").match(value) or _is_example(value):
        return False
    word = named["word"].lower()
    if _is_strong(named) and _is_odd(value, before):
        return True
    if not _TOKEN_LIKE.match(value) or _expression("path").match(value) or _expression("date").match(value):
        return False
    digits, letters = sum(map(str.isdigit, value)), sum(map(str.isalpha, value))
    if not letters:
        return digits >= 16 and len(set(value)) >= 6
    least = 16 if not digits else 10 if word == "key" or not _is_strong(named) else 8
    if len(value) < least:
        return False
    if _expression("uuid").match(value):
        return word != "key" or _is_strong(named)
    if len(value) < 40 and _has_innocent_word(value.lower()):
        return False
    if digits and len(value) >= 12 and word.startswith("p"):
        return True
    return _entropy(value) >= (3.0 if len(value) >= 16 else 2.8) and (
        digits >= 2 or len(_expression("change").findall(value)) >= _CHANGES_MIN
    )


def _is_odd(value: str, before: str) -> bool:
    """Return whether a value is a password with many symbols; code, with balanced brackets, and calls are none."""
    symbols = set(_expression("symbol-of-code").findall(value))
    if len(symbols) < 3 or len(value) < 10 or not _PASSWORD_LIKE.match(value) or _expression("call").match(value):
        return False
    balanced = all(value.count(a) == value.count(b) for a, b in ("()", "[]", "{}", "<>"))
    return not balanced or (before in "\"'`" and bool(_DIGIT.search(value)))


# --- passwords with symbols, and those on a command line -------------------------------------------------------------

_TYPING = ("sshpass", "mysql", "mariadb", "curl", "identified", "IDENTIFIED", "login", "LOGIN", "redis-cli", "mongo")


def _signed(text: str) -> Iterator[_Span]:
    """Yield values with a symbol among letters and digits, or of mixed case, after the whole name of a password."""
    for match in _expression("signed").finditer(text):
        group = match.lastgroup or ""
        value = match[group]
        is_odd = _expression("symbol").search(value) or (match["word"][0] in "Pp" and _is_mixed_up(value))
        if is_odd and not _expression("code").search(value) and _is_chosen(value) and _is_long(match, value):
            yield *match.span(group), _NAMED


def _typed(text: str) -> Iterator[_Span]:
    """Yield passwords in options: ``mysql -p…``, ``sshpass -p …``, ``curl -u user:…``."""
    for match in _expression("typed").finditer(text) if any(name in text for name in _TYPING) else ():
        group = match.lastgroup or ""
        if _is_chosen(match[group]):
            yield *match.span(group), _NAMED


def _translated(text: str) -> Iterator[_Span]:
    """Yield the values after the name of a password in another language than English."""
    for match in _expression("translated").finditer(text):
        value = match["value"].rstrip(_AFTER_ODD)
        if _is_chosen(value):
            yield match.start("value"), match.start("value") + len(value), _NAMED


def _is_mixed_up(value: str) -> bool:
    return len(_expression("change").findall(value)) >= _CHANGES_MIN and not _has_innocent_word(value.lower())


def _is_chosen(value: str) -> bool:
    """Return whether a value is a password, and no word, number or placeholder."""
    mixed = any(map(str.isalpha, value)) and any(map(str.isdigit, value))
    return mixed and not (_expression("placeholder").match(value) or _is_example(value))


def _is_long(named: re.Match[str], value: str) -> bool:
    """Return whether a value is long and mixed enough for its name: tokens are random, passwords need not be."""
    if named["word"].lower() not in ("token", "secret"):
        return True
    before = named.string[max(0, named.start() - 16) : named.start()].lower()
    if before.rstrip(" _-").endswith(_words("no_secret")):
        return False
    # One symbol in a token is a typing error: two are not.
    return len(value) >= 16 and _entropy(value) >= 3.3 and len(_expression("symbol").findall(value)) >= 2


def _entropy(text: str) -> float:
    """Return the Shannon entropy of a text in bits a character."""
    return -sum(n / len(text) * math.log2(n / len(text)) for n in map(text.count, set(text)))


FINDERS = (_assigned, _loose, _compared, _signed, _typed, _translated)
"""Finders of values that are secrets by their name. Each searches the text that the one before has redacted."""
