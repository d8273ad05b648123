"""The tables of stems are what the vocabulary and the rules give."""

from pathlib import Path

from fleet.keep import stemming, stems


def test_the_tables_are_due_to_the_vocabulary_as_it_is():
    assert Path(stems.__file__).read_text() == stemming.render(stemming.tables()), (
        "python -m fleet.keep.stemming > fleet/keep/stems.py"
    )


def test_a_table_holds_what_was_worked_out():
    for name, (_, value) in stemming.tables().items():
        assert getattr(stems, name) == value
        assert value
