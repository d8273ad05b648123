"""The quick reader of TOML says what ``tomllib`` says, or nothing."""

import tomllib

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from fleet.keep import config, plain_toml
from fleet.keep.replica import Register, Replica

WORDS = st.sampled_from(
    [
        *(
            "[",
            "]",
            "[[",
            "]]",
            "=",
            " = ",
            '"',
            '""',
            '"""',
            "'",
            "\\",
            "#",
            ",",
            ".",
            "-",
            "_",
            " ",
            "\t",
            "\n",
            "\r",
        ),
        *("key", "a.b", "name", "remote", "true", "false", "True", "0", "00", "1", "1_0", "15", "0.25", "1.", "1e5"),
        *(
            "+1",
            "inf",
            "é",
            "🎯",
            "\u200d",
            "\x7f",
            "\u2028",
            "[share]\n",
            "[[replica]]\n",
            'key = "v"\n',
            "n = 1 # c\n",
        ),
    ]
)


@given(st.lists(WORDS, max_size=14).map("".join))
@settings(max_examples=3000, deadline=None)
@example("[a]\n[[a]]\n")
@example("[[a]]\n[a]\n")
@example('a = "x"\n[a]\n')
@example("[a]\nk = 1\nk = 2\n")
@example("# a \x01 control character in a comment\n")
@example('a = "x" b\n')
@example("a = 1 2\n")
def test_what_is_read_quickly_is_what_tomllib_reads(text):
    found = plain_toml.plain(text)
    if found is not None:
        expected = tomllib.loads(text)
        assert found == expected
        assert repr(found) == repr(expected)  # 1 is not true, and not 1.0


@pytest.mark.parametrize("text", ["a = ", "[a", "a = 1\na = 2\n", "= 1", 'a = "\n"'])
def test_what_is_wrong_is_told_by_tomllib(text):
    with pytest.raises(tomllib.TOMLDecodeError):
        plain_toml.loads(text)


@pytest.mark.parametrize("text", ['a = "\\u00e9"', "a = [1,\n 2]", "a = 1979-05-27", "a = 'x'", '"a b" = 1', "a.b = 1"])
def test_what_is_not_plain_is_read_all_the_same(text):
    assert plain_toml.plain(text) is None
    assert plain_toml.loads(text) == tomllib.loads(text)


def test_what_fleet_writes_is_plain():
    register = Register("velma", (Replica("velma.0a1b2c3d", "m", "f", "2026-11-20T22:30:00.123Z-0000"),) * 2)
    for text in (config.render("git@example.org:team/l.git", "fleet"), register.render().decode()):
        assert plain_toml.plain(text) == tomllib.loads(text) != {}
