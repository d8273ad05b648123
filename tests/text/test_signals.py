"""Trigger detection: what is taken for a correction, what is not, and that nothing makes it slow."""

import subprocess
import sys
import time
import tomllib
from pathlib import Path

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from benchmarks.triggers import report
from fleet.store import config
from fleet.store.config import _Triggers as Triggers
from fleet.text import prompts, signals
from tests.pace import is_within

ROOT = Path(__file__).resolve().parents[2]
WEAKEST = Triggers(minimum="weak")


def heard(message: str, settings: Triggers | None = None) -> str:
    """Return the kind of correction, "" for none."""
    signal = signals.detect(message, settings)
    return "" if signal is None else signal.kind


# Phrases, their kinds and weights.


@pytest.mark.parametrize(
    "message",
    [
        "No, use the other port",
        "that's wrong",
        "Actually, the port is 8443",
        "Stop adding comments",
        "Don't touch the lock file",
        "That should be a tuple",
    ],
)
def test_each_word_of_the_seed_opens_the_loop(message):
    assert heard(message) == "correction" or heard(message) == "frustration"


@pytest.mark.parametrize(
    ("message", "kind"),
    [
        ("How many times must I say it? From now on use uv, that's wrong. Great work.", "frustration"),
        ("From now on use uv, that's wrong. Great work.", "knowledge"),
        ("Great work, but that's wrong.", "correction"),
        ("Great work.", ""),
    ],
)
def test_frustration_goes_before_knowledge_before_correction_and_praise_is_none(message, kind):
    assert heard(message) == kind


@pytest.mark.parametrize(
    ("message", "confidence"), [("you forgot the tests", "strong"), ("you changed the title", "medium")]
)
def test_strong_and_medium_phrases_count_alone(message, confidence):
    assert signals.detect(message).confidence == confidence


def test_a_weak_phrase_counts_together_with_another():
    assert heard("the title: incorrect") == ""
    assert heard("the title: incorrect again") == "correction"


def test_a_weak_phrase_alone_is_a_weak_signal_at_the_start_of_a_short_message_only():
    assert signals.detect("mistake in the title", WEAKEST).confidence == "weak"
    assert signals.detect("the title has a mistake", WEAKEST) is None
    assert signals.detect("mistake in the title " + "of the page " * 20, WEAKEST) is None


def test_a_phrase_for_the_opening_counts_nowhere_else():
    assert heard("instead of tabs take spaces") == "correction"
    assert heard("the editor writes tabs, instead of which it may write spaces") == ""


def test_a_phrase_counts_as_whole_words():
    assert heard("that's wrongly named? no idea") == ""
    assert heard("noble and stop_words are files") == ""


def test_a_second_person_past_needs_no_other_word():
    assert heard("you deleted the wrong folder") == "correction"


# What makes a phrase count less.


@pytest.mark.parametrize(
    "message",
    ["that is not what is wrong: this is wrong", "no, that's wrong", "No that's wrong", "not good, wrong file"],
)
def test_a_negation_of_something_else_changes_nothing(message):
    assert heard(message) == "correction"


@pytest.mark.parametrize(
    "message",
    [
        "nothing there was wrong",
        "I never said you forgot it",
        "I don't think you forgot it",
        "Das war keineswegs so, das ist nicht ganz falsch",
        "没有说这不对",
        "間違っていません",
        "テストは忘れていません",
    ],
)
def test_a_negated_phrase_is_none(message):
    assert heard(message) == ""


def test_the_guard_looks_back_25_characters_and_no_further():
    assert signals._NEGATION_CHARS == 25
    near, far = "x" * (25 - 5), "x" * (25 - 3)
    assert heard(f"not {near} you forgot it") == ""
    assert heard(f"not {far} you forgot it") == "correction"


def test_the_guard_stays_within_its_clause():
    assert heard("I did not ask, you forgot it") == "correction"


def test_a_task_that_forbids_something_is_no_correction():
    assert heard("Add a parser for dates, don't use regular expressions in the new module") == ""
    assert heard("don't use regular expressions in the new module") == "correction"
    assert heard("Add a hint to the form: this should be red") == ""
    assert heard("The hint on the form: this should be red") == "correction"


def test_a_question_is_no_correction_and_a_reproach_is():
    assert heard("is it true that you changed the title?") == ""
    assert heard("did you change the title") == ""
    assert heard("why did you change the title?") == "correction"


def test_a_case_that_is_described_is_no_correction():
    assert heard("the page shows a hint if the date is wrong") == ""
    assert heard("the date is wrong") == "correction"


def test_a_bare_no_is_an_answer():
    assert heard("no") == ""
    assert heard("No.") == ""
    assert heard("Nein!") == ""


# Exclusions and look-alikes.


@pytest.mark.parametrize(
    "message",
    [
        *("no problem", "No worries!", "don't worry", "actually good", "no thanks", "stop here, great work"),
        *("kein Problem", "no hay problema", "pas de problème", "没问题", "問題ありません"),
        "No problem, don't stop",
    ],
)
def test_an_excluded_message_is_none(message):
    assert heard(message) == ""


def test_a_strong_phrase_after_an_exclusion_counts():
    assert heard("no problem, but you forgot the tests") == "correction"


@pytest.mark.parametrize("message", ["no longer needed, again", "对称和不对称加密", "what's wrong here again"])
def test_what_only_looks_like_a_phrase_is_none(message):
    assert heard(message) == ""


# Own words.

MASKED = [
    "> No, that's wrong.\n> you forgot it",
    "  > you forgot it",
    "```\nno, that's wrong\n```",
    "```python\nno, that's wrong",
    "~~~\nno, that's wrong\n~~~",
    "    no, that's wrong",
    "`that's wrong`",
    '"that\'s wrong"',
    "“that's wrong”",
    "„das ist falsch“",
    "« c'est faux »",
    "「違います、忘れています」",
    "<system-reminder>\nyou forgot it\n\nthat's wrong</system-reminder>",
    "<local-command-stdout>that's wrong</local-command-stdout>",
    "<command-name>/undo</command-name><command-args>you forgot it</command-args>",
    "<system-reminder>you forgot it",
    "<b>that's wrong</b>",
    "ERROR: that's wrong",
    "ValueError: that's wrong",
    "2026-01-31T12:00:00 that's wrong",
    "12:00:01 that's wrong",
    "src/a.py:12:5: that's wrong",
    "$ echo that's wrong",
    "This session is being continued from a previous conversation. You forgot it.",
    "Stop hook feedback:\nyou forgot it",
]


@pytest.mark.parametrize("message", MASKED)
def test_what_the_person_did_not_write_is_masked(message):
    assert signals.detect(message, WEAKEST) is None
    assert (
        signals.detect(f"please look at this:\n\n{message}", WEAKEST) is None
        or "hook" in message
        or "session" in message
    )


@pytest.mark.parametrize("message", [text for text in MASKED if "hook" not in text and "session" not in text])
def test_own_words_beside_masked_ones_count(message):
    assert heard(f"That's wrong, look:\n\n{message}") == "correction"


def test_words_on_either_side_of_what_is_masked_are_no_neighbours():
    assert heard("that `x` 's wrong-headed") == ""
    assert prompts.Prompt('you "quietly" forgot').own_words() == ("", "you · forgot")


def test_typographic_apostrophes_and_emphasis_change_nothing():
    assert heard("that’s wrong") == "correction"
    assert heard("that's **wrong**") == "correction"


def test_an_unpaired_quotation_mark_hides_nothing():
    assert heard("a 3\" screen: that's wrong") == "correction"
    assert heard('a 3" screen, ' + "a long story, " * 50 + 'you forgot the other one of 4"') == "correction"


def test_the_excerpt_is_the_sentence_in_the_persons_own_spelling():
    signal = signals.detect("Thanks. No, You FORGOT the *Ärger* in `a.py`! Go on.")
    assert signal.excerpt == "No, You FORGOT the Ärger in … !"
    assert signal.phrase == "you forgot"


@pytest.mark.parametrize(
    ("message", "excerpt"),
    [
        ("no, again: use pnpm, not npm!", "no, again: use pnpm, not npm!"),
        ("Stop. Read the README first, then the tests. Go on.", "Stop. Read the README first, then the tests."),
        ("No: we deploy with make deploy", "No: we deploy with make deploy"),
        ("Well. You forgot it. Thanks", "You forgot it. Thanks"),
        ("不对，应该用 pnpm。谢谢", "不对，应该用 pnpm。"),
        (
            "You forgot what I said before: see http://a.b:80/c. Go",
            "You forgot what I said before: see http://a.b:80/c.",
        ),
    ],
)
def test_an_excerpt_says_what_was_asked_and_not_only_that_something_is_wrong(message, excerpt):
    assert signals.detect(message).excerpt == excerpt


@pytest.mark.parametrize(
    "message",
    [
        "actually it should be main.go",
        "in main.go you forgot the port",
        "You forgot it in v1.2.3",
        "no, use ./a and ../b",
        "You forgot ... the port",
    ],
)
def test_a_dot_within_a_word_ends_no_excerpt(message):
    assert signals.detect(message).excerpt == message


@pytest.mark.parametrize("letter", ["İ", "ŉ", "ß", "ǰ"])
def test_letters_that_grow_in_lower_case_do_not_shift_the_excerpt(letter):
    assert signals.detect(f"{letter * 30}. You forgot it.").excerpt == "You forgot it."


def test_a_long_excerpt_is_cut():
    assert len(signals.detect("x " * 200 + "you forgot " + "y " * 200).excerpt) <= signals.EXCERPT_CHARS_MAX


# Messages of other agents.


@pytest.mark.parametrize(
    ("message", "sender"),
    [
        ('<teammate-message teammate_id="velma" color="green">You forgot it.</teammate-message>', "velma"),
        ('<agent-message from="a80403d7fcf4619f1">\nYou forgot it.\n</agent-message>', "a80403d7fcf4619f1"),
        (
            '<cross-session-message from="uds:/tmp/cc/12.sock">You forgot it.</cross-session-message>',
            "uds-tmp-cc-12-sock",
        ),
        (
            '<cross-session-message from="uds:/tmp/1" from-name="Tank">You forgot it.</cross-session-message>',
            "tank",
        ),
        ('Another Claude session sent a message:\n<agent-message from="leaf">You forgot it.</agent-message>', "leaf"),
        ("<agent-message>You forgot it.</agent-message>", "agent"),
        ("[from agent Zero Cool] You forgot it.", "zero-cool"),
        ('<agent-message from="../../etc">You forgot it.</agent-message>', "etc"),
        (f'<agent-message from="{"x" * 99}">You forgot it.</agent-message>', "x" * 32),
        ('<agent-message from="火">You forgot it.</agent-message>', "agent"),
    ],
)
def test_a_message_that_a_host_marks_as_an_agents_names_it(message, sender):
    from fleet.model.names import is_agent

    signal = signals.detect(message)
    assert (signal.kind, signal.sender, signal.excerpt) == ("correction", sender, "You forgot it.")
    assert is_agent(signal.sender)


def test_an_agents_message_is_judged_like_a_persons():
    assert heard('<teammate-message teammate_id="velma">Nothing is wrong, no problem.</teammate-message>') == ""


def test_only_the_body_of_an_envelope_counts():
    assert (
        heard('<agent-message from="a">All done.</agent-message>\n\nYou forgot that the person did not type this.')
        == ""
    )


def test_an_envelope_within_a_message_is_a_quotation():
    assert signals.detect('Read this: <agent-message from="a">You forgot it.</agent-message>') is None
    assert signals.detect("You forgot it. <agent-message from='a'>Hm.</agent-message>").sender == ""


# Configuration.


def test_off_hears_nothing():
    assert signals.detect("you forgot it", Triggers(off=True)) is None


def test_the_minimum_decides():
    assert heard("you changed the title", Triggers(minimum="strong")) == ""
    assert heard("you changed the title", Triggers(minimum="medium")) == "correction"
    assert heard("you forgot the title", Triggers(minimum="strong")) == "correction"


def test_only_the_chosen_languages_are_listened_for():
    assert heard("Das ist falsch.", Triggers(languages=["en"])) == ""
    assert heard("Das ist falsch.", Triggers(languages=["de"])) == "correction"


@pytest.mark.parametrize("level", ["strong", "medium"])
def test_own_phrases_count(level):
    assert heard("bad robot: look") == ""
    signal = signals.detect("bad robot: look", Triggers(**{level: ["Bad Robot"]}))
    assert (signal.kind, signal.confidence, signal.phrase) == ("correction", level, "bad robot")


def test_own_weak_phrases_count_together():
    assert heard("bad robot, nope nope", Triggers(weak=["bad robot", "nope nope"])) == "correction"
    assert heard("a bad robot", Triggers(weak=["bad robot"])) == ""


def test_own_phrases_are_text_and_no_patterns():
    assert heard("aaaa", Triggers(strong=["(a+)+$"])) == ""
    assert heard("so: (a+)+$ it is", Triggers(strong=["(a+)+$"])) == "correction"
    assert heard("so: **bad** robot", Triggers(strong=["*bad* robot"])) == "correction"


def test_phrases_can_be_dropped_and_messages_excluded():
    assert heard("you forgot it", Triggers(without=["You forgot"])) == ""
    assert heard("stop the presses", Triggers()) == "correction"
    assert heard("stop the presses", Triggers(exclusions=["Stop the presses"])) == ""


def test_the_configuration_shows_and_takes_every_default():
    text = config.render("", "fleet")
    section = text.partition("[triggers]\n")[2].partition("\n[")[0]
    shown = "\n".join(line.removeprefix("# ") for line in section.splitlines())
    assert msgspec.convert(tomllib.loads(shown), Triggers) == Triggers()
    assert set(tomllib.loads(shown)) == set(Triggers.__struct_fields__)


def test_an_unknown_language_is_a_problem_and_the_others_are_listened_for(tmp_path):
    (tmp_path / "fleet.toml").write_text('[triggers]\nlanguages = ["tlh"]\n')
    found = config.load(tmp_path / "fleet.toml")
    assert found.triggers == Triggers()
    assert "languages" in " ".join(found.problems)


# Signs.


@pytest.mark.parametrize(
    "message",
    [
        "we should be using the typed client here",
        "isn't the cache filled twice now?",
        "hmm, the second page is not sorted the way the first one is",
        "but the lock is taken before that line",
        "why are we still reading the old file?",
        "I would have expected two rows in that table",
        "is there no function in the library for this?",
        "it does not keep the order of the rows, somehow",
        "please revert the last change to the parser",
    ],
)
def test_signs_together_make_a_medium_signal(message):
    signal = signals.detect(message)
    assert (signal.kind, signal.confidence) == ("correction", "medium")
    assert heard(message, Triggers(without=["signs"])) == ""


@pytest.mark.parametrize(
    "message",
    [
        "can we use a tuple instead of a list there?",
        "add a column that should not be sorted",
        "what is the difference between the two readers?",
        "why is the port 8443 in that example?",
        "hmm, can you run the tests of the parser?",
        "yes, and commit it when the tests are green",
        "the report is missing a heading for the second table",
        "but how large is that file then, and is it read at once?",
        "hmm why not",
        "hmm, " + "and the second page of the report " * 10,
        "isn't the new page great, I love it",
        "no problem, isn't the cache filled now?",
    ],
)
def test_signs_that_are_not_enough_make_none(message):
    assert heard(message) == ""


def test_signs_are_told_by_the_sentence_of_the_one_that_says_most():
    signal = signals.detect("The first page is there. Isn't the second one read twice now? I looked at it.")
    assert signal.excerpt == "Isn't the second one read twice now?"


def test_weak_phrases_and_signs_together_are_no_strong_signal():
    assert signals.detect("still, isn't the cache filled twice?").confidence == "medium"


def test_signs_are_those_of_the_chosen_languages():
    assert heard("hmm, the pages are not sorted", Triggers(languages=["en"])) == "correction"
    assert heard("hmm, the pages are not sorted", Triggers(languages=["de"])) == ""


# Apostrophes.


@pytest.mark.parametrize("message", sorted({m.text for m in report.messages() if "'" in m.text and m.lang == "en"}))
def test_a_message_without_its_apostrophes_is_heard_as_with_them(message):
    for word, plain in (("n't", "nt"), ("that's", "thats"), ("you're", "youre"), ("That's", "Thats")):
        bare = message.replace(word, plain)
        assert heard(bare) == heard(message)
        assert prompts.Prompt(bare).might_signal() == prompts.Prompt(message).might_signal()


@pytest.mark.parametrize("phrase", ["thats odd", "that's odd", "that’s odd"])
@pytest.mark.parametrize("message", ["thats odd", "that's odd", "that’s odd"])
def test_a_persons_own_phrase_may_lack_its_apostrophe_too(phrase, message):
    assert heard(message, Triggers(strong=[phrase])) == "correction"


# The prefilter.


def test_signs_without_a_cue_are_never_enough():
    for signs in signals._table_of(None).signs:
        plain = [
            worth
            for worth, wordings in signs.weighted
            if any(
                all(any(not prompts.Prompt(word).might_signal() for word in slot) for slot in wording)
                for wording in wordings
            )
        ]
        assert sum(worth for worth in plain if worth > 0) < signs.enough


def test_every_default_phrase_holds_a_cue():
    for phrase in signals._table_of(None).phrases:
        text = phrase.text + "testing" * phrase.is_gerund
        assert prompts.Prompt(text).might_signal(), phrase
        assert prompts.Prompt(text.upper()).might_signal(), phrase


_TEXTS = sorted({p.text + "doing" * p.is_gerund for p in signals._table_of(None).phrases})
_PIECES = st.one_of(
    st.sampled_from(_TEXTS),
    st.sampled_from(
        [" ", "  ", "\n", ". ", ", ", "*", "**", "· ", "hmm ", "the file ", "不", "`x` ", '"x" ', "\u00a0"]
    ),
)


@settings(max_examples=160, deadline=None)
@given(st.lists(_PIECES, min_size=1, max_size=8), st.booleans(), st.booleans())
@example(["n*o", ", use b"], False, False)
@example(["i don't want", " it"], True, True)
def test_the_prefilter_lets_everything_through_that_is_heard(pieces, is_upper, is_curly):
    message = "".join(pieces)
    message = message.upper() if is_upper else message
    message = message.replace("'", "’") if is_curly else message
    if signals.detect(message, WEAKEST) is not None:
        assert prompts.Prompt(message).might_signal()


def test_the_prefilter_lets_everything_of_the_labelled_set_through():
    assert all(prompts.Prompt(m.text).might_signal() for m in report.messages() if signals.detect(m.text) is not None)


def test_the_prefilter_stops_a_plain_task():
    assert not prompts.Prompt("Add a table of contents to the manual, with links").might_signal()


def test_the_prefilter_sees_the_end_of_a_long_message():
    assert prompts.Prompt("x" * 100_000 + " you forgot it").might_signal()


def test_importing_the_prefilter_imports_nothing_that_parsing_a_payload_does_not():
    code = (
        f"import json, sys; sys.path.insert(0, {str(ROOT)!r}); known = set(sys.modules)\n"
        "import fleet.text.prompts as t; t.Prompt('you forgot it').might_signal()\n"
        "print(*sorted(set(sys.modules) - known - {*sys.builtin_module_names}))"  # those are loaded from no file
    )
    done = subprocess.run([sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["fleet", "fleet.text", "fleet.text.prompts"]


def test_detection_with_the_defaults_reads_no_configuration():
    code = f"import sys; sys.path.insert(0, {str(ROOT)!r})\n"
    code += "import fleet.text.signals as t\nassert t.detect('you forgot it')\n"
    code += "print(*{'msgspec', 'json', 'fleet.store'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


# Caps and time.


def test_a_long_message_is_heard_at_both_ends_and_not_in_the_middle():
    filling = "the report grows\n" * 6_000
    assert heard(f"you forgot it\n{filling}") == "correction"
    assert heard(f"{filling}\nyou forgot it") == "correction"
    assert heard(f"{filling}\nyou forgot it\n{filling}") == ""


def test_a_fence_that_opens_in_the_middle_masks_the_end():
    filling = "the report grows\n" * 3_000
    assert heard(f"{filling}```\n{filling}\nyou forgot it\n```\n") == ""
    assert heard(f"{filling}```\n{filling}\n```\nyou forgot it\n") == "correction"


NASTY = [
    *("a", "no ", "no, ", "wrong ", "you're ", "not you forgot ", ".", "\n", "> ", "不", "また"),
    *(
        '"',
        "“",
        "“x",
        "`",
        "<",
        "<a>",
        "<a ",
        "<a-b>",
        "```\n",
        "don't know ",
        "stop ",
        "*",
        "[from agent ",
        "what's wrong ",
    ),
]


def seconds(message: str) -> float:
    """Return the processor time of one detection."""
    began = time.process_time()
    signals.detect(message, WEAKEST)
    return time.process_time() - began


def is_below(limit_s: float, message: str) -> bool:
    """Return whether the best of five is below a limit: the first that is, is enough."""
    return any(is_within(seconds(message), limit_s) for _ in range(5))


@pytest.mark.parametrize("piece", NASTY)
def test_time_is_linear_in_the_message(piece):
    small = min(seconds((piece * 4_000)[:4_000]) for _ in range(3))
    assert is_below(8 * small * 2.5 + 0.005, (piece * 32_000)[:32_000])


def test_time_is_linear_in_quotation_marks_without_a_partner():
    small = min(seconds("”" + "“" * 4_000) for _ in range(3))
    assert is_below(8 * small * 2.5 + 0.005, "”" + "“" * 32_000)


@pytest.mark.parametrize("piece", ["a", "no "])
def test_64_kib_take_less_than_50_ms(piece):
    assert is_below(0.05, (piece * 65_536)[:65_536])


def test_a_message_of_10_mb_costs_no_more_than_one_of_64_kib():
    small = min(seconds(("you wrong " * 7_000)[:65_536]) for _ in range(3))
    assert is_below(3 * small + 0.02, "you wrong " * 1_000_000)


# The tables and the labelled set.


def test_no_phrase_is_listed_twice_and_all_are_lower_case():
    for language in prompts.LANGUAGES:
        kinds = [signals._phrase_lists()[language][kind] for kind in signals.PRECEDENCE]
        listed = [text for levels in kinds for texts in levels.values() for text in texts]
        assert len(listed) == len(set(listed)), language
        assert all(text and text == text.lower() for text in listed)


def test_every_language_has_every_list():
    known = signals._phrase_lists()
    assert set(known) - {"fillers"} == set(prompts.LANGUAGES)
    lists = {"exclusions", "lookalikes", "negators", "tasks", "asking", "supposing", *signals.PRECEDENCE}
    assert all(lists <= set(known[language]) for language in prompts.LANGUAGES)


def test_the_labelled_set_is_what_it_should_be():
    messages = report.messages()
    assert len(messages) >= 240
    assert len({m.id for m in messages}) == len(messages) == len({m.text for m in messages})
    assert {m.label for m in messages} == {"correction", "none"}
    assert sum(m.label == "none" for m in messages) * 2 >= len(messages)
    assert sum(m.is_public for m in messages) * 3 >= len(messages)
    assert all(m.source.startswith("https://github.com/") for m in messages if m.is_public)
    assert {m.lang for m in messages} >= set(prompts.LANGUAGES)
    assert all(m.half == report.half_of(m.id) for m in messages)


def test_the_half_reported_reaches_its_aims():
    found = report.figures(m for m in report.messages() if m.half == "report")
    assert found.precision >= report.PRECISION_AIM
    assert found.recall >= report.RECALL_AIM


def test_the_report_lists_no_error_of_the_half_reported():
    held = {m.id for m in report.messages() if m.half == "report"}
    lines = report.lines()
    assert any(line.startswith("| report |") for line in lines)
    assert not [line for line in lines if line.split()[:1] and line.split()[0] in held]
