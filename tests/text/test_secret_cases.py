"""The reader of three scanners' own cases: it parses what they tell in their sources, and runs nothing of theirs."""

import re

from benchmarks.secrets import cases

GO = """
package rules

var known = []string{
	`foo_key = "literal"`, // a comment with a "quote"
}

func Foo() *config.Rule {
	r := config.Rule{
		Regex: utils.GenerateUniqueTokenRegex(`foo_(?i)[a-z0-9]{8}`, false),
	}
	tps := utils.GenerateSampleSecrets("foo", "foo_"+secrets.NewSecret(utils.Hex("8")))
	tps = append(tps, known...)
	fps := []string{"too " + "short\\n"}
	return utils.Validate(r, tps, fps)
}

func Bar() *config.Rule {
	return utils.Validate(r, unknown(1), nil)
}
"""
FORMS = (
    'samples := map[string]string{\n"ini": "{i}Token={s}",\n// "no": "x",\n"env": `{I}_TOKEN={s}`,\n}\nreplacer := 1\n'
)
DETECTOR = """
var (
	valid = "abc" + "123"
)
var tests = []struct{ input string }{
	{ name: "valid", input: fmt.Sprintf("%s token = '%s'", "bar", valid), want: []string{valid} },
	{ name: "none", input: `bar
token`, want: nil },
	{ name: "unreadable", input: made(), want: nil },
}
"""
PLUGIN = """
import pytest
KEY = 'k' * 3

class TestKey:
    @pytest.mark.parametrize(
        'payload, should_flag',
        [('key: {k}'.format(k=KEY), True), ('no ' 'key', False)],
    )
    def test_analyze(self, payload, should_flag):
        assert len(KeyDetector().analyze_line('f', payload)) == int(should_flag)
"""


def put(folder, path, text):
    file = folder / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


def test_gitleaks_samples_are_drawn_alike_each_time(tmp_path):
    put(tmp_path, "cmd/generate/config/rules/foo.go", GO)
    put(tmp_path, "cmd/generate/config/utils/generate.go", FORMS)
    told = list(cases.gitleaks(tmp_path))
    assert told == list(cases.gitleaks(tmp_path))
    assert [(case.rule, case.is_secret) for case in told] == [("foo", True)] * 3 + [("foo", False)]
    one, two, three, no = (case.text for case in told)
    assert re.fullmatch("fooToken=foo_[a-f0-9]{8}", one)
    assert two == f"FOO_TOKEN={one.partition('=')[2]}"
    assert (three, no) == ('foo_key = "literal"', "too short\n")


def test_the_others_tell_theirs_in_tables(tmp_path):
    put(tmp_path, "pkg/detectors/bar/v1/bar_test.go", DETECTOR)
    put(tmp_path, "pkg/detectors/bar/v1/bar_integration_test.go", DETECTOR)
    put(tmp_path, "tests/plugins/key_test.py", PLUGIN)
    assert list(cases.trufflehog(tmp_path)) == [
        cases.Case("trufflehog", "bar/v1", "bar token = 'abc123'", True, ("abc123",)),
        cases.Case("trufflehog", "bar/v1", "bar\ntoken", False),
    ]
    assert list(cases.detect_secrets(tmp_path)) == [
        cases.Case("detect-secrets", "key_test", "key: kkk", True),
        cases.Case("detect-secrets", "key_test", "no key", False),
    ]


def test_flags_amid_an_expression_hold_to_the_end_of_their_group():
    made = cases.python_expression(r"a(b(?i)c[)]|d)e[[:alnum:]](?i)f\z")
    assert made == r"a(b(?i:c[)]|d))e[A-Za-z0-9](?i:f\Z)"
    assert re.fullmatch(made, "abC)eZF")
    assert not re.fullmatch(made, "aBc)eZF")
