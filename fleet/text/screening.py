"""Screening of text: no secret, no hidden mark, no terminal escape, no live Markdown.

One module, because each step leans on the one before: a secret is looked for only after the hidden marks that could
split it are gone, and the two ways of showing a text (a terminal, a page) must agree with the border on what is hidden.
Screening runs where text enters and, as a gate, at every way out. Every pattern is linear: at most one start for each
run of a class, possessive or bounded repetition, and nothing asked of what follows an unbounded one.

What stands behind a hint is text, which ``re`` compiles when something hints at it, and keeps: to compile all took a
twentieth of a correction.

Token formats: the vendors' pages, and the rules of gitleaks. GitHub's ``ghs_`` tokens are, since April 2026, about 520
characters of ``[A-Za-z0-9._-]``.
"""

import binascii
import re
from collections.abc import Callable, Iterator
from functools import cache
from types import ModuleType
from typing import NamedTuple

from fleet.text import sections

HOMES = ("/home/", "/Users/")
KEY_BLOCK_CHARS_MAX = 32 * 1024
ROUNDS_MAX = 4  # one round is enough by design; more are insurance, so that no gate finds what the border passed


class Screened(NamedTuple):  # no dataclass: a hook that logs a failure has no 8 ms for that import
    """A clean text, and what was taken out of it."""

    text: str
    secrets: tuple[str, ...]
    """The kinds found, sorted, each once; never the values."""
    stripped: int
    """Number of code points that went; the ``\\r`` of ``\\r\\n`` is not counted."""


def screen(text: str, *, home: str | None = None) -> Screened:
    r"""Return the text without secrets and hidden marks, for text that enters. Idempotent.

    Lines stay lines (``\r\n`` becomes ``\n``). A whole ``ESC [ ... m`` goes, since grep and git colour the middle of a
    token; of any other escape only the ESC. ``home``, when it lies under ``/home/`` or ``/Users/``, becomes ``~``. An
    emoji may lose its joiner and its variation selector (a family comes apart, a heart turns plain): see
    ``strip_controls``.
    """
    if is_harmless(text):
        return Screened(text, (), 0)
    lines = text.replace("\r\n", "\n")
    clean = strip_controls(re.sub(_CSI, "", lines))
    stripped = len(lines) - len(clean)
    clean, kinds = _redacted(clean, home)
    return Screened(clean, tuple(sorted(kinds)), stripped)


def is_harmless(text: str) -> bool:
    """Tell at a glance that no screening would change the text, nor any part of it: most texts hint at nothing.

    The same for a secret and for a home folder: neither can be there without one of its hints.
    """
    return not _hints_at_something(text) and strip_controls(text) == text


def one_line(text: str) -> str:
    """Return the text with each run of white space, line ends included, as one blank, and none around it."""
    return " ".join(text.split())


def counted(number: int, one: str, many: str = "") -> str:
    """Return a number with its noun: ``1 lesson``, ``1,200 lessons``; ``many`` where it is more than an ``s`` more."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def shortened(text: str, chars_max: int) -> str:
    """Return the text in at most so many characters; one that was longer ends in an ellipsis. Screen it before."""
    return text if len(text) <= chars_max else f"{text[: chars_max - 1].rstrip()}…"


def screened(value: object) -> str:
    """Return a field as one line that is fit to leave; what is no text, as a peer may send it, is empty."""
    if not isinstance(value, str):
        return ""
    if is_harmless(value):
        return one_line(value)  # no hint has a blank in it, so none comes up where a line ended
    # Redacted once more as one line: a line end may have stood between a name and its secret.
    return redact(one_line(screen(value).text))


def texts_in(value: object) -> Iterator[str]:
    """Yield the texts in a value of JSON, keys too."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list | tuple):
        for each in (*value, *value.values()) if isinstance(value, dict) else value:
            yield from texts_in(each)


def readable(value: object) -> str:
    """Return a field as one line for a terminal or an agent, "" for what is no text."""
    return for_terminal(inert(screened(value)))


def certain(text: str) -> list[str]:
    """Return the kinds of secrets in a text that nothing else looks like, sorted: a token of a provider's, a key block.

    The others are doubtful: of a password it is the name that says so, of a JWT nobody knows what it opens.
    """
    return [kind for kind in screen(text).secrets if kind not in _DOUBTFUL and not kind.endswith("-like")]


def redact(text: str) -> str:
    """Return the text with each secret as ``[REDACTED:kind]``. Idempotent; a secret that marks split is not found."""
    return _redacted(text, None)[0] if _hints_at_something(text) else text


def _redacted(text: str, home: str | None) -> tuple[str, set[str]]:
    """Return the text without secrets, and the kinds that were found."""
    kinds: set[str] = set()
    for _ in range(ROUNDS_MAX):
        shorter = _redact_once(_without_home(text, home), kinds)
        if shorter == text:
            break
        text = shorter
    return text, kinds


# --- hidden marks ---------------------------------------------------------------------------------------------------

# Unicode's Default_Ignorable_Code_Point (but the two joiners), the controls, the interlinear marks, the deprecated
# format characters, the surrogates and the noncharacters.
_HIDDEN = (
    r"\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b\u200e\u200f"
    r"\u202a-\u202e\u2060-\u206f\u3164\ud800-\udfff\ufdd0-\ufdef\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\ufffe\uffff"
    r"\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
    + "".join(rf"\U{plane:04x}fffe\U{plane:04x}ffff" for plane in range(1, 17))
)
# Arabic, Syriac, N'Ko, Mandaic, the scripts of India, Sinhala, Myanmar, Khmer, Balinese and their neighbours: there a
# joiner tells words apart. Nothing of _HIDDEN is in here, or a kept joiner could come to stand beside another letter.
_JOINING = (
    r"\u0620-\u0dff\u1000-\u109f\u1780-\u17b3\u17b6-\u17df\u1b00-\u1bff\ua8e0-\ua8ff\ua980-\ua9df\uabc0-\uabff"
    r"\ufb50-\ufdcf\ufdf0-\ufdff\ufe70-\ufefc\U00011000-\U00011a9f\U0001e900-\U0001e95f"
)
# What emoji are made of: a joiner between two, and one selector behind one, belong to them.
_EMOJI = r"\u2190-\u2bff\u3030\u303d\u3297\u3299\U0001f000-\U0001faff"
_HIDDEN_MARK = (
    rf"[{_HIDDEN}](?<![{_EMOJI}]\ufe0f)"
    rf"|[\u200c\u200d](?:(?![{_JOINING}])|(?<![{_JOINING}].))(?:(?![{_EMOJI}])|(?<![{_EMOJI}]\u200d)(?<![{_EMOJI}]\ufe0f\u200d))"
)
_BREAK = r"[\u2028\u2029]"
_CSI = r"\x1b\[[0-9;:?]{0,32}[A-Za-z]"


def strip_controls(text: str) -> str:
    r"""Return the text without what a reader cannot see. Idempotent.

    Gone: C0 and C1 controls but ``\n`` and ``\t``, so ESC and 0x9b; bidi controls, zero-width and tag characters,
    variation selectors, fillers, interlinear annotation, lone surrogates, noncharacters. U+2028 and U+2029 become
    ``\n``. The joiners U+200C and U+200D stay between two letters or vowel signs of a script that spells with them
    (Arabic, Persian, Hindi, ...), and U+200D between two emoji, with one U+FE0F behind each; elsewhere they go, as do
    flags made of tags.
    """
    if _is_plain(text):
        return text
    return re.sub(_BREAK, "\n", re.sub(_HIDDEN_MARK, "", text))


def _is_plain(text: str) -> bool:
    """Tell whether a text is ASCII that a reader can see, blanks, tabs and line ends included: most are."""
    return text.isascii() and text.replace("\n", "").replace("\t", "").isprintable()


def for_terminal(text: str) -> str:
    r"""Return the text safe to print: ``\n`` and ``\t`` stay, any other hidden mark is shown as ``\x1b`` or ``\u202e``.

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

# In small letters: what a token of letters alone begins with. Any other one has a digit, and is a long word.
_TOKEN_HINTS = (
    *("xox", "xapp-", "xwfp-", "slack.com/", "github_pat_", "ghp_", "gho_", "ghs_", "ghu_", "ghr_", "sk-", "hch-"),
    *("akia", "asia", "abia", "acca", "a3t", "npm_", "pypi-", "hf_", "k_live_", "k_test_", "whsec_", "eyj"),
)
_AWS_KEY_ID = r"(?<![A-Za-z0-9])(?:AKIA|ASIA)[A-Z0-9]{16}"
_AWS_SECRETS = (
    r"""(?i:secret_?access_?key|aws_?secret(?:_?key)?)\\?["']?[ \t]{0,4}[=:][ \t]{0,4}\\?["']?"""
    r"(?P<secret>[A-Za-z0-9/+]{40,})"
)
_AWS_SECRETS_ALONE = r"(?<![A-Za-z0-9/+=])(?P<secret>[A-Za-z0-9/+]{40})(?![A-Za-z0-9/+=])"
_URL_PASSWORDS = r"""(?x)://(?P<user>[^\s/:@?\#|"'`()\[\]\\]{0,128}+):
    (?!\$\{|\$[A-Z_]+@|<[^\s<>]*>@|\{+[^\s{}]*\}+@|[*.]+@|\[REDACTED:[a-z-]+\]@|[0-9]{1,5}[?\#,'";)])
    (?P<secret>[^\s/"`]{1,256})@"""
_DOUBTFUL = frozenset({"env-secret", "jwt", "bearer-token", "url-credentials", "aws-secret-key"})
_BEARER = r"""(?ix)(?<![a-z0-9])(?P<header>authorization\\?["']?[ \t]{0,4}[:=][ \t]{0,4}\\?["']?)?
    (?P<scheme>bearer|basic|token|(?(header)[a-z][a-z0-9-]{2,11}|(?!)))[ \t]{1,4}
    (?P<secret>[a-z0-9._~+/=-]{5,}[a-z0-9=])"""
_KEY_BEGIN = r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----|Private-Lines: [0-9]{1,3}"  # PuTTY's
_KEY_END = r"-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----"
_KEY_BODY = r"[A-Za-z0-9+/=]{16}"
_KEY_BODY_CUT_OFF = r"""(?:(?:\s|\\[nr]|["',+>|]){0,8}+[A-Za-z0-9+/=]{16,}+)++"""
_DIGIT = re.compile("[0-9]")


def _redact_once(text: str, kinds: set[str]) -> str:
    """Redact each kind in turn. An earlier step never needs what a later one leaves behind."""
    low = text.lower()
    if "-----begin" in low or "private-lines" in low:
        text = _redact_key_blocks(text, kinds)
    if "secret" in low:
        text = _redact_each(_AWS_SECRETS, "aws-secret-key", text, kinds)
    if ("akia" in low or "asia" in low) and re.search(_AWS_KEY_ID, text):
        text = _redact_each(_AWS_SECRETS_ALONE, "aws-secret-key", text, kinds, _is_mixed)
    is_named = any(hint in low for hint in _NAME_HINTS) and _may_hold_value(text)
    if is_named or _has_token_run(text):
        text = _credentials().redact_tokens(text, kinds)
    if "://" in low and "@" in low:
        text = _redact_each(_URL_PASSWORDS, "url-credentials", text, kinds, _is_password)
    if "bearer" in low or "authorization" in low:
        text = _redact_each(_BEARER, "bearer-token", text, kinds, _is_bearer)
    if is_named:
        text = _credentials().redact_named(text, kinds)
    return text


_TOKEN_RUN = re.compile(r"[A-Za-z0-9_+/=~.:|!%-]{16,}+")
_OURS = re.compile(
    r"[a-z]-[0-9a-f]{16}[.:]?|\d{4}-\d\d-\d\dT[\d:.]{8,12}Z(?:-[0-9a-f]{4})?|[a-z_-]{1,32}\.[0-9a-f]{8}", re.ASCII
)
"""An id, a stamp, or a replica: all that is printed has some, and no token looks like them."""
_NAME_HINTS = (
    *("secret", "token", "passw", "passphrase", "_pass", "pwd", "_pw", "key", "cred", "auth", "sig=", "api_org_"),
    *("pw:", "pw=", "psw", "pssw", "pasw", "pass:", "pass=", "identified", "sshpass", "mysql", "mariadb", "curl"),
)


def _has_token_run(text: str) -> bool:
    """Tell whether something is long and mixed enough to be a token: most words are not, nor is an id of ours."""
    return any(map(_may_be_token, _TOKEN_RUN.findall(text)))


def _may_be_token(run: str) -> bool:
    """Tell it of one word: one without a digit begins as a token does."""
    if _DIGIT.search(run):
        return not _OURS.fullmatch(run)
    low = run.lower()
    return any(hint in low for hint in _TOKEN_HINTS)


def _may_hold_value(text: str) -> bool:
    """Tell whether a name may have a secret beside it: no value of one is a plain word, and prose has no other."""
    return ":" in text or "=" in text or any(map(_NO_WORD.search, _VALUE.findall(text)))


_VALUE = re.compile(r"\S{6,}", re.ASCII)
_NO_WORD = re.compile(r"[^A-Za-z.,;'()-]|[a-z][A-Z]")
_HINTS = {
    *("-----begin", "private-lines", "://", "bearer", "authorization"),
    *(*_NAME_HINTS, *(home.lower() for home in HOMES)),
}
"""Whatever ``_redact_once`` and ``_without_home`` look for before they look closer, in small letters."""


def _hints_at_something(text: str) -> bool:
    low = text.lower()
    return any(hint in low for hint in _HINTS) or _has_token_run(text)


def _redact_each(
    pattern: str,
    kind: str,
    text: str,
    kinds: set[str],
    probable: Callable[[re.Match[str]], bool] | None = None,
) -> str:
    """Redact the group ``secret`` of each probable match."""

    def marked(found: re.Match[str]) -> str:
        if probable and not probable(found):
            return found[0]
        kinds.add(kind)
        start, end = found.span("secret")
        return f"{text[found.start() : start]}[REDACTED:{kind}]{text[end : found.end()]}"

    return re.sub(pattern, marked, text)


def _is_mixed(found: re.Match[str]) -> bool:
    """Tell a random secret from a hash or a path: capitals, small letters and digits, and no hex."""
    value = found["secret"]
    return all(re.search(letters, value) for letters in ("[A-Z]", "[g-z]", "[0-9]")) and value.count("/") < 4


def _is_password(found: re.Match[str]) -> bool:
    """Tell a password from one that everybody has: the user's own name, or the word for it."""
    return found["secret"] != found["user"] and not _is_placeholder(found["secret"])


def _is_bearer(found: re.Match[str]) -> bool:
    """Tell a token from a word of prose: "Authorization: Bearer authentication is ..."."""
    value, scheme = found["secret"], found["scheme"].lower()
    if scheme == "basic" and _is_open(value):
        return False
    if not found["header"] or scheme not in ("bearer", "basic", "token"):
        is_usual = found["header"] or scheme == "bearer"
        return bool(is_usual and len(value) >= 20 and _DIGIT.search(value))
    return not _is_placeholder(value) and (len(value) >= 16 or bool(re.search("[0-9]|[a-z][A-Z]", value)))


def _is_open(value: str) -> bool:
    """Tell whether a basic authorization names a user, and no password that is one."""
    try:
        password = binascii.a2b_base64(value).partition(b":")[2].decode("utf-8", "replace").strip()
    except binascii.Error:
        return value.upper() == "BASE64"
    return not password or _is_placeholder(password)


def _is_placeholder(value: str) -> bool:
    return bool(_credentials().is_placeholder(value))


def _credentials() -> ModuleType:
    """Return the module with the tables: 5 ms to load, and most texts hint at nothing in it."""
    from fleet.text import credentials

    return credentials


def _redact_key_blocks(text: str, kinds: set[str]) -> str:
    """Redact private keys, also cut-off ones; a header that is only mentioned stays."""
    ends = [found.span() for found in re.finditer(_KEY_END, text)]
    out: list[str] = []
    done = at = 0
    for begin in re.finditer(_KEY_BEGIN, text):
        if begin.start() < done:
            continue  # within the block just redacted
        while at < len(ends) and ends[at][0] < begin.end():
            at += 1
        stop = _key_stop(text, begin.end(), ends[at] if at < len(ends) else None)
        if stop:
            out += (text[done : begin.start()], "[REDACTED:private-key]")
            done = stop
            kinds.add("private-key")
    return "".join((*out, text[done:]))


def _key_stop(text: str, start: int, end: tuple[int, int] | None) -> int:
    """Return where the block that starts here stops, 0 if there is no key in it."""
    if end and end[0] - start <= KEY_BLOCK_CHARS_MAX and re.compile(_KEY_BODY).search(text, start, end[0]):
        return end[1]
    body = re.compile(_KEY_BODY_CUT_OFF).match(text, start)
    return body.end() if body else 0


# --- frames ---------------------------------------------------------------------------------------------------------

_MAY_FRAME = frozenset("<＜﹤[")
_MARKS_OF_TEMPLATES = (
    r"[<＜﹤](?P<bar>[|｜][^<>\n]{1,64}[|｜])[>＞﹥]?|[<＜﹤]{2}/?SYS[>＞﹥]{2}|\[/?(?:INST|SYSTEM_PROMPT|TOOL_CALLS|TOOL_RESULTS"
    r"|AVAILABLE_TOOLS)\]"
)
_COMBINING = (
    r"\u0300-\u036f\u0483-\u0489\u0591-\u05bd\u0610-\u061a\u064b-\u065f\u06d6-\u06dc\u0e31\u0e34-\u0e3a\u0e47-\u0e4e"
    r"\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20ff\ufe20-\ufe2f"
)
COMBINING_MAX = 4
"""So many marks stand on one letter in any language that is written; a flood of them covers the lines around it."""
_FLOOD = rf"([{_COMBINING}]{{{COMBINING_MAX}}})[{_COMBINING}]+"


def inert(text: str) -> str:
    """Return the text as data for a model: nothing in it opens or ends a frame of a host's, or a turn. Idempotent.

    Tags with the names of ``data/frames.txt``, whatever their case, and the marks of chat templates get other brackets,
    so that a reader still sees what stood there. Letters lose combining marks beyond ``COMBINING_MAX``. Whatever shows
    a record to an agent goes through here: a lesson that says ``</system-reminder>`` must not end what it stands in.
    """
    if not text.isascii():
        text = re.sub(_FLOOD, r"\1", text)
    if _MAY_FRAME.isdisjoint(text):
        return text
    return re.sub(_MARKS_OF_TEMPLATES, _mark_inert, _frames().sub("‹", text))


@cache
def _frames() -> re.Pattern[str]:
    """Return the expression of a tag's beginning: a bracket before one of the names."""
    rows = sections("frames.txt")[""]
    known = sorted({name for row in rows for name in row.split()}, key=lambda name: (-len(name), name))
    names = "|".join("[-_ ]?".join(map(re.escape, name.replace("_", "-").split("-"))) for name in known)
    return re.compile(rf"[<＜﹤](?=[\s/\\]{{0,4}}(?:{names})(?![A-Za-z0-9]))", re.IGNORECASE)


def _mark_inert(mark: re.Match[str]) -> str:
    if mark["bar"]:
        return f"‹{mark['bar']}›"
    return mark[0].translate(_OTHER_BRACKETS)


_OTHER_BRACKETS = str.maketrans("<>＜＞﹤﹥[]", "‹›‹›‹›⟦⟧")


# --- Markdown -------------------------------------------------------------------------------------------------------

# A pipe splits a table's cell even within a code span: what is escaped here goes into paragraphs and lists alone.
_PIECE = r"(?<!`)(?P<ticks>`{1,2})(?!`)(?P<code>[^`]{2,}|[^`\s])(?P=ticks)(?!`)|(?P<word>[^\s|`]+)|[|`]"
_LINK = r"(?i)://|www\.|mailto:|xmpp:|\w@\w"
_BEFORE_LINK = "([<{\"'*_~"
_AFTER_LINK = ")]>}\"'*_~.,;:!?"
_LIVE = r"[\\*\[\]<]|_+|~+|&(?=#?[A-Za-z0-9]{1,40};)"
_BLOCK_START = r"[0-9]{1,9}(?=[.)](?:\s|$))|(?=#{1,6}(?:\s|$)|>|[-+](?:\s|$)|[-+=:\s]+$)"


def markdown_escape(text: str) -> str:
    """Return the text as one line in which nothing is Markdown or HTML any more, and each word can still be read.

    Code spans stay code spans. Words that a renderer would make a link (``https://x``, ``www.x``, ``a@b.c``) become
    code spans, the one form that no renderer links. ``snake_case``, ``--json``, ``C#`` and ``~/path`` need no escape.
    Not idempotent: escape once, on the way out, and after ``redact``, since an escape could split a secret.
    """
    line = one_line(strip_controls(text))
    if "`" in line or "|" in line or re.search(_LIVE, line) or re.search(_LINK, line):  # most lines have nothing of it
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
    opened = word.lstrip(_BEFORE_LINK)
    link = opened.rstrip(_AFTER_LINK)
    return f"{_escaped(word[: len(word) - len(opened)])}`{link}`{_escaped(opened[len(link) :])}"


def _escaped(word: str) -> str:
    return re.sub(_LIVE, _escaped_mark, word)


def _escaped_mark(mark: re.Match[str]) -> str:
    word, (start, end) = mark.string, mark.span()
    if mark[0][0] == "_" and word[max(0, start - 1) : start].isalnum() and word[end : end + 1].isalnum():
        return mark[0]  # within a word CommonMark gives an underscore no meaning
    return "".join("\\" + letter for letter in mark[0])


# --- what fleet itself showed ----------------------------------------------------------------------------------------

_FRAME = r"(?<![A-Za-z0-9_-])fleet-[0-9a-f]{16}(?![A-Za-z0-9_-])"
_STANDS_BETWEEN = "stands between this mark and its repetition"
_HOST_OPENS = r"(?i)<hook_context\b[^<>]{0,200}>"
_HOST_CLOSES = r"(?i)</hook_context\s{0,8}>"
_EVIDENCE = r"\((?:[^()\n]{1,200}; ?)?(?P<id>[pd]-[0-9a-f]{6,16})\)"
_AFTER = " \t\r\"'`*_.,;:!?»”’)]|>"


def strip_injected(said: str) -> str:
    """Return what somebody said without what fleet, or a host, had put into it."""
    return _without_lines(_without_frames(_without_host_frames(said)))


def _without_host_frames(said: str) -> str:
    """Take out ``<hook_context>`` blocks. What is inside may itself say where it ends: so its last end counts."""
    first, *blocks = re.split(_HOST_OPENS, said)
    kept = [first]
    for block in blocks:
        ends = [found.end() for found in re.finditer(_HOST_CLOSES, block)]
        kept.append(block[ends[-1] :] if ends else "")
    return "".join(kept)


def _without_frames(said: str) -> str:
    """Take out what stands between two equal marks; of one that was cut off, all that follows."""
    marks = list(re.finditer(_FRAME, said))
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
    ends = [found.end() for found in re.finditer(_EVIDENCE, row)]
    if not ends:
        return row
    rest = row[ends[-1] :]
    return rest if rest.strip(_AFTER) else None


def injected_id(said: str) -> str:
    """Return the id at the end of a text that is a shown lesson, copied; "" for any other text."""
    if "-" not in said or "(" not in said:
        return ""  # no id, no evidence: so are most
    rows = [row for row in said.strip().split("\n") if row.strip()]
    found = [hits[-1] for row in rows if (hits := list(re.finditer(_EVIDENCE, row)))]
    return str(found[-1]["id"]) if found and not strip_injected(said).strip(_AFTER + "\n") else ""
