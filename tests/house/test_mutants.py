"""Each bug that ``tests/mutants/run.py`` puts back still finds its place: else it would put back nothing."""

import importlib.util
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def mutants() -> list:
    name = "fleet_tests_mutants"
    spec = importlib.util.spec_from_file_location(name, ROOT / "tests/mutants/run.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # a NamedTuple with annotations looks its module up
    spec.loader.exec_module(module)
    return module.MUTANTS


@pytest.mark.parametrize("mutant", mutants(), ids=lambda mutant: mutant.name)
def test_a_mutant_stands_for_one_place(mutant):
    text = (ROOT / mutant.path).read_text("utf-8")
    assert text.count(mutant.right) == 1
    assert mutant.wrong != mutant.right
    assert all((ROOT / path).exists() for path in mutant.tests)
