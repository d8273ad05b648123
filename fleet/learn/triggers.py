"""Trigger detection: does this prompt correct the agent? A table of phrases and a few features, nothing learned.

Only the sender's own words count (:mod:`fleet.learn.ownwords`), and within them the phrases of
:mod:`fleet.learn.phrases`. A phrase is worth 3 (strong), 2 (medium) or 1 (weak) points, and

* nothing, when it is negated in its clause (25 characters back: "not wrong");
* 1 less, when it is not strong and its sentence asks, or describes a case ("if it is wrong"), or the message opens with
  a task's word ("add", "can you").

Weak phrases count in a short message only, and there only together with another or as its first words. Points of
different phrases add up: 3 make a strong signal, 2 a medium one, 1 a weak one. A message that opens with an exclusion
("no problem") is none, unless a strong phrase follows. The kind is the first of frustration, knowledge, correction that
was heard; only where these together miss the minimum does praise come back, as ``validation``, which corrects nothing.

Everything is plain text search, so time is linear in the message and no phrase of a configuration can change that.
Importing this module is cheap, so it imports nothing: tables and search load with the first message to be looked at.
"""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from fleet.keep.config import Triggers
    from fleet.learn.hearing import Signal

__all__ = [
    "CUES",
    "CUES_UNSPACED",
    "LANGUAGES",
    "LEVELS",
    "PRAISE",
    "Signal",
    "detect",
    "has_own_phrases",
    "might_signal",
]

LANGUAGES = ("en", "de", "es", "fr", "zh", "ja")
LEVELS = ("weak", "medium", "strong")
PRAISE = "validation"
PREFILTER_CHARS = 16 * 1024
"""Of a longer message only its first and last so many characters are looked at: `ownwords.PIECE_CHARS`."""

_CUES = (
    "ab actually again always annoying annule anstatt aren around arrête asked así attends awesome back bien "
    "borraste buen cambiaste changed come convention correct correcto danke das de debería debías decir deshaz "
    "devrait did didn dije don dorénavant du dude désormais dû echt eigentlich en encore endlich equivocado "
    "erreur error eso espera excelente excellent falsch falsche falschen falscher faux fehler ffs fixed forward "
    "funcionó future garbage gave genau genial gesagt give good gracias great grundsätzlich gut gute hagas hold "
    "hör ich ignored ignores ignorierst ignoring il immer incorrect incorrecto instead isn jamais je job just "
    "keeps künftig la lgtm literally looks love makes mal many mauvais mean meant mensch merci merk mistake "
    "mistaken mistakes moment muss must nah nee nein never nice nicht niemals nimm no non nope not nous now "
    "nunca oh olvidado olvidaste omg para parfait pas passt pay pedí perfect perfecto perfekt plutôt problem "
    "project puedes que quite qué rather refería remember repeat repo result revert revierte ridiculous right "
    "roll rompiste rule rückgängig said say seem seriously should shouldn siempre sigh sigue sollte statt still "
    "stop stopp ständig suggested super supposed sérieusement te thanks thought time todavía told toques "
    "toujours travail true tu ugh unacceptable undo uns usamos usaste useless uses utilise valid veces vez von "
    "wait wanted warte well why wie wieder wir works wrong wtf you youre zukunft à"
)
CUES = frozenset(_CUES.split())
"""Each default phrase holds one of these words: a message without any of them need not be looked at."""

_CUES_UNSPACED = (
    "いい いや して だめ って てい で なぜ はず べき また ゃな やめ りが りま れか ダメ 一律 不 不对 不是 不行 "
    "不要 什么 今後 以后 你 别 别再 勝手 又 可以 同じ 完璧 完美 常に 应该 很好 很棒 後は 得好 必ず 总是 恢复 "
    "我们 我说 挺好 撤销 改回 方が 永远 没 没有 现在 的 等等 素晴 言 记住 说了 请勿 谢谢 过多 还是 違 错 错了"
)
CUES_UNSPACED = tuple(_CUES_UNSPACED.split())
"""The same, as parts of phrases, for the languages that put no spaces between words."""

_UNSPACED_FROM = 0x2E80  # scripts from here on are written without spaces


class _Spaces(dict[int, str]):
    """For ``str.translate``: whatever is no letter becomes a space; learns each character once."""

    def __missing__(self, code: int) -> str:
        kept = self[code] = chr(code) if is_letter(chr(code)) else " "
        return kept


_SPACES = _Spaces({ord("*"): ""})  # Markdown's emphasis may stand within a word


def might_signal(message: str) -> bool:
    """Tell whether :func:`detect` could hear something, with the default phrases; when in doubt, True.

    Whoever adds phrases in ``fleet.toml`` must be heard too: see :func:`has_own_phrases`.
    """
    if len(message) > 2 * PREFILTER_CHARS:
        message = f"{message[:PREFILTER_CHARS]}\n{message[-PREFILTER_CHARS:]}"
    lower = message.lower()
    if not CUES.isdisjoint(words_of(lower)):
        return True
    return not lower.isascii() and any(cue in lower for cue in CUES_UNSPACED)


def has_own_phrases(toml: str) -> bool:
    """Tell whether the text of a ``fleet.toml`` may add phrases, which :func:`might_signal` does not know."""
    lines = [line.partition("#")[0] for line in toml.splitlines() if "=" in line]
    return any(level in line for line in lines for level in LEVELS)


def words_of(text: str) -> list[str]:
    """Return the words of a text, for the languages that put spaces between them."""
    return text.translate(_SPACES).split()


def is_letter(char: str) -> bool:
    """Tell whether a character is part of a word that spaces set apart."""
    return ord(char) < _UNSPACED_FROM and (char.isalnum() or char == "_")


def __getattr__(name: str) -> object:
    """``Signal`` is at hand here, too, and costs nothing before it is asked for."""
    if name == "Signal":
        from fleet.learn.hearing import Signal

        return Signal
    raise AttributeError(name)


def detect(message: str, settings: "Triggers | None" = None) -> "Signal | None":
    """Return what a message tells the agent about its work, or None.

    Args:
        message: a prompt as the host gives it, without what fleet itself put in.
        settings: ``[triggers]`` of ``fleet.toml``; None means the defaults.
    """
    if settings is not None and settings.off:
        return None
    from fleet.learn.hearing import hear

    return hear(message, settings)
