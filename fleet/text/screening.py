"""Screening of text for secrets, hidden characters, terminal escapes and live Markdown.

All this is one module, because each step depends on the one before: secrets are searched only after hidden characters
that could split them are removed, and both outputs (a terminal, a page) must agree with the input on what is hidden.
Every pattern is linear: at most one start for each run of a class, possessive or bounded repetition, and no condition
after an unbounded one. Expressions that need a hint are strings, which ``re`` compiles at the first hint and caches.

Token formats: the vendors' pages, and the rules of gitleaks. GitHub's ``ghs_`` tokens are, since April 2026, about 520
characters of ``[A-Za-z0-9._-]``.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from operator import itemgetter
from types import ModuleType
from typing import NamedTuple

from fleet.text import sections

HOMES = ("/home/", "/Users/")
KEY_BLOCK_CHARS_MAX = 32 * 1024
_LISTED_MAX = 5
ROUNDS_MAX = 4  # one round is enough by design; more are insurance, so that no gate finds what the input passed


class ScreenedText(NamedTuple):  # no dataclass: a hook that logs a failure has no 8 ms for that import
    """Clean text, with what was removed from it."""

    text: str
    secrets: tuple[str, ...]
    """The kinds found, sorted, each once; never the values."""


def screen(text: str, *, home: str | None = None) -> ScreenedText:
    r"""Return the text, cleaned for input, and the kinds of the secrets that were removed. Idempotent.

    Lines stay lines (``\r\n`` becomes ``\n``). A whole ``ESC [ ... m`` is removed, since grep and git colour the middle
    of a token; of any other escape only the ESC. ``home``, when it is under ``/home/`` or ``/Users/``, becomes ``~``.
    """
    if is_harmless(text):
        return ScreenedText(text, ())
    clean, kinds = _redacted(_visible(text), home)
    return ScreenedText(clean, tuple(sorted(kinds)))


def is_harmless(text: str) -> bool:
    """Return whether screening changes neither the text nor any part of it: no hint of a secret, a home, a control."""
    return not _hints_at_something(text) and strip_controls(text) == text


def one_line(text: str) -> str:
    """Return the text with each run of white space, line ends included, as one blank, and none around it."""
    return " ".join(text.split())


def counted(number: int, one: str, many: str = "") -> str:
    """Return a number with its noun: ``1 lesson``, ``1,200 discoveries``; ``many`` for any other plural."""
    many = many or (f"{one[:-1]}ies" if one.endswith("ry") else f"{one}s")
    return f"{number:,} {one if number == 1 else many}"


def listed(texts: Sequence[str]) -> str:
    """Return the first few texts, separated by commas, and how many more there are."""
    more = f" and {len(texts) - _LISTED_MAX:,} more" if len(texts) > _LISTED_MAX else ""
    return ", ".join(texts[:_LISTED_MAX]) + more


def shortened(text: str, chars_max: int) -> str:
    """Return the text in at most so many characters, a longer one with an ellipsis. Screen it before."""
    return text if len(text) <= chars_max else f"{text[: chars_max - 1].rstrip()}…"


def screened(value: object) -> str:
    """Return a field as one screened line; "" for a value of another type, as a peer may send it."""
    if not isinstance(value, str):
        return ""
    if is_harmless(value):
        return one_line(value)  # no hint contains a blank, so joining the lines makes no new one
    # Redacted once more as one line: a line end may have stood between a name and its secret.
    return redact(one_line(screen(value).text))


def texts_in(value: object) -> Iterator[str]:
    """Yield the texts in a value of JSON, keys too."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list | tuple):
        for part in (*value, *value.values()) if isinstance(value, dict) else value:
            yield from texts_in(part)


def readable(value: object) -> str:
    """Return a field as one line for a terminal or an agent, "" for a value of another type."""
    return for_terminal(inert(screened(value)))


def certain(text: str) -> list[str]:
    """Return the unmistakable kinds of secrets in a text, sorted: a token of a provider's form, a key block.

    The other kinds are doubtful: a password is known only by its name, and a JWT may give no access.
    """
    kinds = set() if is_harmless(text) else _redacted(_visible(text), None, with_named=False)[1]
    return sorted(kind for kind in kinds if kind not in _DOUBTFUL and not kind.endswith("-like"))


def redact(text: str) -> str:
    """Return the text with ``[REDACTED:kind]`` for each secret that no hidden character splits. Idempotent."""
    return _redacted(text, None)[0] if _hints_at_something(text) else text


def _redacted(text: str, home: str | None, *, with_named: bool = True) -> tuple[str, set[str]]:
    """Return the text without secrets, and the kinds that were found; all, or without what a name alone makes one."""
    kinds: set[str] = set()
    for _ in range(ROUNDS_MAX):
        shorter = _redact_once(_without_home(text, home), kinds, with_named=with_named)
        if shorter == text:
            break
        text = shorter
    return text, kinds


# --- hidden characters ----------------------------------------------------------------------------------------------

# Unicode's Default_Ignorable_Code_Point (but the two joiners), the controls, the interlinear marks, the deprecated
# format characters, the surrogates and the noncharacters.
_HIDDEN = (
    r"\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b\u200e\u200f"
    r"\u202a-\u202e\u2060-\u206f\u3164\ud800-\udfff\ufdd0-\ufdef\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\ufffe\uffff"
    r"\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
    + "".join(rf"\U{plane:04x}fffe\U{plane:04x}ffff" for plane in range(1, 17))
)
# Arabic, Syriac, N'Ko, Mandaic, the scripts of India, Sinhala, Myanmar, Khmer, Balinese and their neighbours: there a
# joiner tells words apart. Nothing of _HIDDEN is in here: else its removal could move a joiner to another letter.
_JOINING = (
    r"\u0620-\u0dff\u1000-\u109f\u1780-\u17b3\u17b6-\u17df\u1b00-\u1bff\ua8e0-\ua8ff\ua980-\ua9df\uabc0-\uabff"
    r"\ufb50-\ufdcf\ufdf0-\ufdff\ufe70-\ufefc\U00011000-\U00011a9f\U0001e900-\U0001e95f"
)
# What emoji are made of: a joiner between two, and one selector after one, belong to them.
_EMOJI = r"\u2190-\u2bff\u3030\u303d\u3297\u3299\U0001f000-\U0001faff"
_HIDDEN_MARK = (
    rf"[{_HIDDEN}](?<![{_EMOJI}]\ufe0f)"
    rf"|[\u200c\u200d](?:(?![{_JOINING}])|(?<![{_JOINING}].))(?:(?![{_EMOJI}])|(?<![{_EMOJI}]\u200d)(?<![{_EMOJI}]\ufe0f\u200d))"
)
_BREAK = r"[\u2028\u2029]"
_CSI = r"\x1b\[[0-9;:?]{0,32}[A-Za-z]"


def _visible(text: str) -> str:
    """Return the text as it is screened: with Unix line ends, and without colours and invisible characters."""
    return strip_controls(re.sub(_CSI, "", text.replace("\r\n", "\n")))


def strip_controls(text: str) -> str:
    r"""Return the text without invisible characters. Idempotent.

    Removed are C0 and C1 controls but ``\n`` and ``\t``, so ESC and 0x9b; bidi controls, zero-width and tag characters,
    variation selectors, fillers, interlinear annotation, lone surrogates, noncharacters. U+2028 and U+2029 become
    ``\n``. The joiners U+200C and U+200D stay between two letters of a script that spells with them (Arabic, Hindi,
    ...), and U+200D between two emoji, with one U+FE0F after each.
    """
    if _is_plain(text):
        return text
    return re.sub(_BREAK, "\n", re.sub(_HIDDEN_MARK, "", text))


def _is_plain(text: str) -> bool:
    """Return whether a text is visible ASCII, blanks, tabs and line ends included: most are."""
    return text.isascii() and text.replace("\n", "").replace("\t", "").isprintable()


def for_terminal(text: str) -> str:
    r"""Return the text safe to print, with ``\x1b`` or ``\u202e`` for a hidden character other than ``\n`` and ``\t``.

    Surrogates too: a stream with ``surrogateescape`` would print U+DC9B as the raw byte 0x9b. Idempotent.
    """
    if _is_plain(text):
        return text
    return re.sub(_BREAK, _shown, re.sub(_HIDDEN_MARK, _shown, text))


def _shown(mark: re.Match[str]) -> str:
    code = ord(mark[0])
    if code <= 0xFF:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"


def _without_home(text: str, home: str | None) -> str:
    folder = (home or "").rstrip("/")
    if not folder.startswith(HOMES) or folder not in text:
        return text
    return re.sub(re.escape(folder) + r"(?!\w)", "~", text)


# --- secrets --------------------------------------------------------------------------------------------------------

# Lower-case prefixes of tokens that may be letters alone. Any other token has a digit, and is a long word.
_TOKEN_HINTS = (
    *("xox", "xapp-", "xwfp-", "slack.com/", "github_pat_", "ghp_", "gho_", "ghs_", "ghu_", "ghr_", "sk-", "hch-"),
    *("akia", "asia", "abia", "acca", "a3t", "npm_", "pypi-", "hf_", "k_live_", "k_test_", "whsec_", "eyj"),
)
_AWS_KEY_ID = r"(?<![A-Za-z0-9])(?:AKIA|ASIA)[A-Z0-9]{16}"
_AWS_SECRETS = (
    r"""(?i:secret_?access_?key|aws_?secret(?:_?key)?)\\?["']?[ \t]{0,4}[=:][ \t]{0,4}\\?["']?"""
    r"(?P<secret>(?![A-Za-z0-9/+]{0,40}EXAMPLE)[A-Za-z0-9/+]{40,})"
)
_AWS_SECRETS_ALONE = r"(?<![A-Za-z0-9/+=])(?P<secret>[A-Za-z0-9/+]{40})(?![A-Za-z0-9/+=])"
# The user may be an address of mail; git@github.com:repo is none.
_URL_PASSWORDS = r"""(?x)://(?P<user>[^\s/:@?\#|"'`()\[\]\\]{0,128}+(?:(?<!//git)@[\w-]{1,64}+\.[\w.-]{1,64}+)?+):
    (?!\$\{|\$[A-Z_]+@|<[^\s<>]*>@|\{+[^\s{}]*\}+@|[*.]+@|\[REDACTED:[a-z-]+\]@|[0-9]{1,5}[?\#,'";)])
    (?P<secret>[^\s/"`]{1,256})@"""
_URL_TOKENS = r"://(?P<secret>(?=[A-Za-z_-]{0,128}[0-9])(?=[0-9_-]{0,128}[A-Za-z])[A-Za-z0-9_-]{20,128})@"
_DOUBTFUL = frozenset({"env-secret", "jwt", "bearer-token", "url-credentials", "aws-secret-key"})
_BEARER = r"""(?ix)(?<![a-z0-9])(?P<header>authorization\\?["']?[ \t]{0,4}[:=][ \t]{0,4}\\?["']?)?
    (?P<scheme>bearer|basic|token|(?(header)[a-z][a-z0-9-]{2,11}|(?!)))[ \t]{1,4}
    (?P<secret>[a-z0-9._~+/=-]{5,}[a-z0-9=])"""
_KEY_BEGIN = r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----|Private-Lines: [0-9]{1,3}"  # PuTTY's
_KEY_END = r"-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----"
_KEY_BODY = r"[A-Za-z0-9+/=]{16}"
_KEY_BODY_CUT_OFF = r"""(?:(?:\s|\\[nr]|["',+>|]){0,8}+[A-Za-z0-9+/=]{16,}+)++"""
_DIGIT = re.compile("[0-9]")
_MIXED = re.compile(r"(?=.*[0-9])(?=.*[A-Za-z]).{8,128}\Z")
_ECHOES_MAX = 16  # values that are also searched without a name before them; the limit keeps the cost linear

_Span = tuple[int, int, str]
"""Start and end of a secret, and its kind."""


def _redact_once(text: str, kinds: set[str], *, with_named: bool) -> str:
    """Redact each kind in turn. No step depends on the result of a later one."""
    low = text.lower()
    if "-----begin" in low or "private-lines" in low:
        text = _without(text, _key_blocks(text), kinds)
    if "secret" in low:
        text = _without(text, _spans(_AWS_SECRETS, "aws-secret-key", text), kinds)
    if ("akia" in low or "asia" in low) and re.search(_AWS_KEY_ID, text):
        text = _without(text, _spans(_AWS_SECRETS_ALONE, "aws-secret-key", text, _is_mixed), kinds)
    is_named = any(hint in low for hint in _NAME_HINTS) and _may_hold_value(text, low)
    if is_named or _has_token_run(text):
        text = _without(text, _credentials().provided(text), kinds)
    if "://" in low and "@" in low:
        text = _without(text, _spans(_URL_PASSWORDS, "url-credentials", text, _is_password), kinds)
        text = _without(text, _spans(_URL_TOKENS, "url-credentials", text), kinds)
    if "bearer" in low or "authorization" in low:
        text = _without(text, _spans(_BEARER, "bearer-token", text, _is_bearer), kinds)
    if is_named and with_named:
        text = _redact_named(text, kinds)
    return text


_TOKEN_RUN = re.compile(r"[A-Za-z0-9_+/=~.:|!%-]{16,}+")
_OURS = re.compile(
    r"[a-z]-[0-9a-f]{16}[.:]?|\d{4}-\d\d-\d\dT[\d:.]{8,12}Z(?:-[0-9a-f]{4})?|[a-z_-]{1,32}\.[0-9a-f]{8}", re.ASCII
)
"""An id, a stamp, or a replica: all output has some, and no token looks like them."""
_NAME_HINTS = tuple(
    str.split(
        "secret token passw passphrase _pass pwd _pw key cred auth sig= api_org_ pw: pw= psw pssw pasw pass: pass= "
        "identified sshpass mysql mariadb curl redis-cli mongo login sessid sessionid= connect.sid kennwort contrase "
        "passe senha wachtwoord hasło haslo пароль 密码 密碼 口令 パスワード 暗証番号 비밀번호"
    )
)


def _has_token_run(text: str) -> bool:
    """Return whether a word may be a token: a long one with a digit that is no id of ours, or with a known prefix."""
    return any(
        not _OURS.fullmatch(run) if _DIGIT.search(run) else any(map(run.lower().__contains__, _TOKEN_HINTS))
        for run in _TOKEN_RUN.findall(text)
    )


def _may_hold_value(text: str, low: str) -> bool:
    """Return whether a text may have a secret beside a name: plain words and our ids are none, and prose has no others.

    ``low``: the text in lower case. A colon after a name may join a value to it.
    """
    if "=" in text or any(_NO_WORD.search(word) and not _OURS.fullmatch(word) for word in _VALUE.findall(text)):
        return True
    return ":" in low[min(at for name in _NAMES if (at := low.find(name)) >= 0) :]


_NAMES = (*_NAME_HINTS, "pass", "pw")
_VALUE = re.compile(r"\S{6,}", re.ASCII)
_NO_WORD = re.compile(r"[^A-Za-z.,;'()-]|[a-z][A-Z]")
_HINTS = {
    *("-----begin", "private-lines", "://", "bearer", "authorization"),
    *(*_NAME_HINTS, *(home.lower() for home in HOMES)),
}
"""The hints of ``_redact_once`` and ``_without_home``, in lower case."""


def _hints_at_something(text: str) -> bool:
    low = text.lower()
    return any(hint in low for hint in _HINTS) or _has_token_run(text)


def _redact_named(text: str, kinds: set[str]) -> str:
    """Return the text without values that a name makes secret, also elsewhere in it; add their kinds. Names stay."""
    values: dict[str, str] = {}
    for find in _credentials().FINDERS:
        spans = [*find(text)]
        values |= {text[start:end]: kind for start, end, kind in spans}
        text = _without(text, spans, kinds)  # each on the result of the last: redacted values weigh nothing
    for value in sorted(filter(_MIXED.match, values))[:_ECHOES_MAX]:
        text = re.sub(rf"(?<![\w-]){re.escape(value)}(?![\w-])", f"[REDACTED:{values[value]}]", text)
    return text


def _without(text: str, spans: Iterable[_Span], kinds: set[str]) -> str:
    """Return the text with some spans redacted, and add their kinds; of overlapping ones the first, then longest."""
    out: list[str] = []
    position = 0
    for start, end, kind in sorted(spans, key=lambda span: (span[0], -span[1])):
        if start >= position:
            out += (text[position:start], f"[REDACTED:{kind}]")
            kinds.add(kind)
            position = end
    return "".join((*out, text[position:])) if out else text


def _spans(
    pattern: str, kind: str, text: str, probable: Callable[[re.Match[str]], bool] | None = None
) -> Iterator[_Span]:
    """Yield the group ``secret`` of each probable match."""
    for match in re.finditer(pattern, text):
        if probable is None or probable(match):
            yield *match.span("secret"), kind


def _is_mixed(match: re.Match[str]) -> bool:
    """Return whether a value is random, and no hash or path: capitals, small letters and digits, and no hex."""
    value = match["secret"]
    return all(re.search(letters, value) for letters in ("[A-Z]", "[g-z]", "[0-9]")) and value.count("/") < 4


def _is_password(match: re.Match[str]) -> bool:
    """Return whether a password is neither a placeholder nor the user's own name."""
    return match["secret"] != match["user"] and not _credentials().is_placeholder(match["secret"])


def _is_bearer(match: re.Match[str]) -> bool:
    """Return whether a value is a token, and no word of prose: "Authorization: Bearer authentication is ..."."""
    value, scheme = match["secret"], match["scheme"].lower()
    if not match["header"] or scheme not in ("bearer", "basic", "token"):
        return bool((match["header"] or scheme == "bearer") and len(value) >= 20 and _DIGIT.search(value))
    is_token = len(value) >= 16 or bool(re.search("[0-9]|[a-z][A-Z]", value))
    return is_token and not _credentials().is_placeholder(value)


def _credentials() -> ModuleType:
    """Return the module with the tables: 5 ms to load, and most texts have no hint."""
    from fleet.text import credentials

    return credentials


def _key_blocks(text: str) -> Iterator[_Span]:
    """Yield private keys, truncated ones too; a header without a key is none."""
    ends = [match.span() for match in re.finditer(_KEY_END, text)]
    done = number = 0
    for begin in re.finditer(_KEY_BEGIN, text):
        if begin.start() < done:
            continue  # within the block before
        while number < len(ends) and ends[number][0] < begin.end():
            number += 1
        stop = _key_stop(text, begin.end(), ends[number] if number < len(ends) else None)
        if stop:
            yield begin.start(), stop, "private-key"
            done = stop


def _key_stop(text: str, start: int, end: tuple[int, int] | None) -> int:
    """Return the end of the block from ``start`` on, 0 if it has no key."""
    if end and end[0] - start <= KEY_BLOCK_CHARS_MAX and re.compile(_KEY_BODY).search(text, start, end[0]):
        return end[1]
    body = re.compile(_KEY_BODY_CUT_OFF).match(text, start)
    return body.end() if body else 0


# --- frames ---------------------------------------------------------------------------------------------------------

_MAY_FRAME = frozenset("<＜﹤[")
_MARKS_OF_TEMPLATES = (
    r"[<＜﹤][|｜][^<>\n]{1,64}[|｜][>＞﹥]?|[<＜﹤]{2}/?SYS[>＞﹥]{2}|\[/?(?:INST|SYSTEM_PROMPT|TOOL_CALLS|TOOL_RESULTS"
    r"|AVAILABLE_TOOLS)\]"
)
_COMBINING = (
    r"\u0300-\u036f\u0483-\u0489\u0591-\u05bd\u0610-\u061a\u064b-\u065f\u06d6-\u06dc\u0e31\u0e34-\u0e3a\u0e47-\u0e4e"
    r"\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20ff\ufe20-\ufe2f"
)
COMBINING_MAX = 4
"""Greatest number of marks on one letter in any written language; a flood of them covers the lines around it."""
_FLOOD = rf"([{_COMBINING}]{{{COMBINING_MAX}}})[{_COMBINING}]+"


def inert(text: str) -> str:
    """Return the text as data for a model: nothing in it opens or ends a frame of a host's, or a turn. Idempotent.

    Tags with the names of ``data/frames.txt``, in any case, and the marks of chat templates get other brackets, so that
    they stay readable. Letters lose combining marks beyond ``COMBINING_MAX``. Every record for an agent is made inert:
    a lesson with ``</system-reminder>`` in it must not end the frame around it.
    """
    if not text.isascii():
        text = re.sub(_FLOOD, r"\1", text)
    if _MAY_FRAME.isdisjoint(text):
        return text
    return re.sub(_MARKS_OF_TEMPLATES, lambda mark: mark[0].translate(_OTHER_BRACKETS), _frames().sub("‹", text))


@cache
def _frames() -> re.Pattern[str]:
    """Return the expression of the start of a tag: a bracket before one of the names."""
    rows = sections("frames.txt")[""]
    tags = sorted({name for row in rows for name in row.split()}, key=lambda name: (-len(name), name))
    spelt = ["[-_ ]?".join(map(re.escape, name.replace("_", "-").split("-"))) for name in tags]
    # By their first letter: all names would be tried at each of a flood of brackets.
    heads = (
        f"{head}(?:{'|'.join(name[1:] for name in spelt if name[0] == head)})" for head in {*map(itemgetter(0), spelt)}
    )
    return re.compile(rf"[<＜﹤](?=[\s/\\]{{0,4}}+(?=[a-z])(?:{'|'.join(heads)})(?![A-Za-z0-9]))", re.IGNORECASE)


_OTHER_BRACKETS = str.maketrans("<>＜＞﹤﹥[]", "‹›‹›‹›⟦⟧")


# --- Markdown -------------------------------------------------------------------------------------------------------

# A pipe splits a table's cell even within a code span: the result is for paragraphs and lists alone.
_PIECE = r"(?<!`)(?P<ticks>`{1,2})(?!`)(?P<code>[^`]{2,}|[^`\s])(?P=ticks)(?!`)|(?P<word>[^\s|`]+)|[|`]"
_LINK = r"(?i)://|www\.|mailto:|xmpp:|\w@\w"
_BEFORE_LINK = "([<{\"'*_~"
_AFTER_LINK = ")]>}\"'*_~.,;:!?"
_LIVE = r"[\\*\[\]<]+|_+|~+|&(?=#?[A-Za-z0-9]{1,40};)"
_MAY_BE_LIVE = r"[`|\\*\[\]<_~&@]"
_LINK_MARKS = ("://", "www.", "mailto:", "xmpp:")
_BLOCK_START = r"[0-9]{1,9}(?=[.)](?:\s|$))|(?=#{1,6}(?:\s|$)|>|[-+](?:\s|$)|[-+=:\s]+$)"


def markdown_escape(text: str) -> str:
    """Return the text as one line without live Markdown or HTML, with each word readable.

    Code spans stay code spans. Words that a renderer would make a link (``https://x``, ``www.x``, ``a@b.c``) become
    code spans, the one form that no renderer links. ``snake_case``, ``--json``, ``C#`` and ``~/path`` need no escape.
    Not idempotent: escape once, on the way out, and after ``redact``, since an escape could split a secret.
    """
    line = one_line(strip_controls(text))
    if re.search(_MAY_BE_LIVE, line) or any(map(line.lower().__contains__, _LINK_MARKS)):  # most lines have none
        line = re.sub(_PIECE, _inert, line)
    start = re.match(_BLOCK_START, line)
    return f"{line[: start.end()]}\\{line[start.end() :]}" if start else line


def _inert(piece: re.Match[str]) -> str:
    if piece["code"]:
        return f"`{piece['code']}`"
    word, (start, end) = piece[0], piece.span()
    before, after = piece.string[max(0, start - 1) : start], piece.string[end : end + 1]
    if re.search(_LINK, word):
        # Two code spans side by side would read as one longer fence, and open what is between them.
        return " " * (before == "`") + _link_as_code(word) + " " * (after == "`")
    if word.startswith("~/") and before in {"", " "}:
        return "~" + _escaped(word[1:])  # with a blank before it, it cannot close a strike-through
    return f"\\{word}" if word in {"|", "`"} else _escaped(word)


def _link_as_code(word: str) -> str:
    """Return a word with code marks around each address in it; of a Markdown link, only around the address."""
    parts = word.split("](")
    return _escaped("](").join(_as_code(each) if re.search(_LINK, each) else _escaped(each) for each in parts)


def _as_code(word: str) -> str:
    opened = word.lstrip(_BEFORE_LINK)
    link = opened.rstrip(_AFTER_LINK)
    return f"{_escaped(word[: len(word) - len(opened)])}`{link}`{_escaped(opened[len(link) :])}"


def _escaped(word: str) -> str:
    return re.sub(_LIVE, _escaped_mark, word)


def _escaped_mark(mark: re.Match[str]) -> str:
    word, (start, end) = mark.string, mark.span()
    if mark[0][0] == "_" and word[max(0, start - 1) : start].isalnum() and word[end : end + 1].isalnum():
        return mark[0]  # within a word CommonMark gives an underscore no meaning
    return "\\" + "\\".join(mark[0])


# --- text that fleet injected ----------------------------------------------------------------------------------------

_FRAME = r"(?<![A-Za-z0-9_-])fleet-[0-9a-f]{16}(?![A-Za-z0-9_-])"
_BETWEEN = "between this mark and its repetition"
_HOST_OPENS = r"(?i)<hook_context\b[^<>]{0,200}>"
_HOST_CLOSES = r"(?i)</hook_context\s{0,8}>"
_EVIDENCE = r"\((?:[^()\n]{1,200}; ?)?(?P<id>[pd]-[0-9a-f]{6,16})\)"
_AFTER = " \t\r\"'`*_.,;:!?»”’)]|>"


def strip_injected(text: str) -> str:
    """Return a message without the text that fleet, or a host, injected."""
    return _without_lines(_without_frames(_without_host_frames(text)))


def _without_host_frames(text: str) -> str:
    """Remove ``<hook_context>`` blocks. A block may contain the end mark itself: so the last one counts."""
    first, *blocks = re.split(_HOST_OPENS, text)
    behind = (re.split(_HOST_CLOSES, block) for block in blocks)
    return "".join([first, *(parts[-1] for parts in behind if len(parts) > 1)])


def _without_frames(text: str) -> str:
    """Remove the text between two equal marks; after a mark whose repetition was cut off, remove the rest."""
    marks = list(re.finditer(_FRAME, text))
    ends: dict[int, int] = {}
    later: dict[str, int] = {}
    for mark in reversed(marks):
        is_cut_off = _BETWEEN in text[mark.end() : mark.end() + 200].lower()
        ends[mark.start()] = later.get(mark[0], len(text) if is_cut_off else mark.end())
        later[mark[0]] = mark.end()
    pieces: list[str] = []
    done = 0
    for mark in marks:
        if mark.start() >= done:
            pieces.append(text[done : mark.start()])
            done = ends[mark.start()]
    return "".join([*pieces, text[done:]])


def _without_lines(text: str) -> str:
    """Remove from each line the text up to its last evidence, and the whole line if nothing follows."""
    if "-" not in text:
        return text
    rows = ((re.split(_EVIDENCE, row), row) for row in text.split("\n"))
    return "\n".join(parts[-1] for parts, row in rows if parts[-1] == row or parts[-1].strip(_AFTER))


def injected_id(text: str) -> str:
    """Return the id at the end of a copy of a shown lesson; "" for any other text."""
    ids = re.findall(_EVIDENCE, text) if "-" in text else []
    return str(ids[-1]) if ids and not strip_injected(text).strip(_AFTER + "\n") else ""
