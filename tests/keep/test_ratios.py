"""Our ratios are rapidfuzz's."""

import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rapidfuzz import fuzz

from fleet.keep import ratios

TEXTS = st.one_of(
    st.text(st.characters(exclude_categories=["Cc", "Cs"]), max_size=40),  # control characters are stripped before
    st.text("ab ", max_size=90),
    st.lists(st.sampled_from(["cli", "check", "version", "sql", "a", "ab", "日本", "x" * 40]), max_size=9).map(
        " ".join
    ),
)


@pytest.fixture(autouse=True)
def _few(monkeypatch):
    monkeypatch.setattr(ratios, "FEW_MAX", float("inf"))
    monkeypatch.setattr(ratios, "_rapidfuzz", None)


@given(TEXTS, TEXTS)
@settings(max_examples=2000, deadline=None)
def test_both_ratios_are_those_of_rapidfuzz_to_the_last_bit(one, other):
    assert ratios.ratio(one, other) == fuzz.ratio(one, other)
    assert ratios.token_set_ratio(one, other) == fuzz.token_set_ratio(one, other)


def test_many_comparisons_are_left_to_rapidfuzz():
    asked = (
        "import sys; from fleet.keep import ratios; "
        "[ratios.ratio('ab', 'ac') for _ in range(ratios.FEW_MAX)]; few = 'rapidfuzz' in sys.modules; "
        "print(few, ratios.ratio('ab', 'ac'), 'rapidfuzz' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "50.0", "True"]
