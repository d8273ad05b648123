"""The laws of screening: what is found, what is left alone, and that a second look changes nothing.

No literal here looks like a real secret: each is put together at run time.
"""

import json
import re
import time
from pathlib import Path
from unittest import mock

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from fleet.text import screening, sections
from fleet.text.screening import certain, inert, markdown_escape, one_line, redact, screen, strip_controls
from tests.pace import is_within

SHARED = Path(__file__).resolve().parents[3] / "shared"
MIXED = "a1B2c3D4e5F6g7H8i9J0"
CAPS = "ABCDEFGH23456777"


def _letters(count: int) -> str:
    return (MIXED * 30)[:count]


def _block(name: str) -> str:
    dashes = "-" * 5
    body = "\n".join([_letters(64)] * 3)
    return f"{dashes}BEGIN {name}{dashes}\n{body}\n{dashes}END {name}{dashes}"


JWT = ".".join(("ey" + "J" + _letters(20), "ey" + "J" + _letters(40), _letters(43)))
AWS_SECRET = "wJalr" + "XUtnFEMI/K7MDENG/" + "bPxRfiCYzzzzzzzzKY"

TOKENS = [
    ("slack-bot", "xox" + "b-123456789012-123456789012-" + _letters(24)),
    ("slack-user", "xox" + "p-123456789012-123456789012-123456789012-" + _letters(32)),
    ("slack-user", "xox" + "c-123456789012-" + _letters(32)),
    ("slack-app", "xap" + "p-1-A0123456789-1234567890123-" + _letters(64)),
    ("slack-config", "xox" + "e.xoxp-1-" + _letters(120)),
    ("slack-config", "xox" + "e-1-" + _letters(120)),
    ("slack-config", "xox" + "e.xoxb-1-" + _letters(120)),
    ("slack-webhook", "hooks.sl" + "ack.com/services/T01234567/B01234567/" + _letters(24)),
    ("github-fine-grained", "github" + "_pat_" + _letters(22) + "_" + _letters(59)),
    ("github-classic", "gh" + "p_" + _letters(36)),
    ("github-classic", "gh" + "p_" + "a1B2" * 9),
    ("github-oauth", "gh" + "o_" + _letters(36)),
    ("github-app", "gh" + "u_" + _letters(36)),
    ("github-app", "gh" + "s_" + _letters(36)),
    ("github-app", "gh" + "s_12345_" + JWT),
    ("github-app", "gh" + "r_" + _letters(76)),
    ("anthropic-key", "sk-" + "ant-api03-" + _letters(93) + "AA"),
    ("openrouter-key", "sk-" + "or-v1-" + "0123456789abcdef" * 4),
    ("openai-key", "sk-" + _letters(48)),
    ("openai-key", "sk-" + "proj-" + _letters(60) + "-_" + _letters(60)),
    ("openai-key", "sk-" + "svcacct-" + _letters(60)),
    ("honcho-key", "hch" + "-v3-" + _letters(40)),
    ("honcho-key", "hch" + "-" + _letters(40)),
    ("google-oauth-token", "1/" + "/0" + _letters(90)),
    ("private-key", "LS0tLS1C" + "RUdJTiBPUEVOU1NIIFBSSVZBVEUg" + _letters(80)),
    ("aws-access-key", "AK" + "IA" + CAPS),
    ("aws-access-key", "AS" + "IA" + CAPS),
    ("google-key", "AI" + "za" + _letters(33) + "-_"),
    ("gitlab-token", "gl" + "pat-" + _letters(20)),
    ("gitlab-token", "gl" + "pat-" + _letters(27) + ".01." + _letters(9)),
    ("npm-token", "np" + "m_" + _letters(36)),
    ("pypi-token", "py" + "pi-AgEIcHlwaS5vcmc" + _letters(60)),
    ("huggingface-token", "h" + "f_" + _letters(34)),
    ("stripe-key", "sk" + "_live_" + _letters(24)),
    ("stripe-key", "rk" + "_test_" + _letters(24)),
    ("jwt", JWT),
    ("private-key", _block("RSA " + "PRIVATE KEY")),
    ("private-key", _block("PRIVATE KEY")),
    ("private-key", _block("OPENSSH " + "PRIVATE KEY")),
    ("private-key", _block("PGP " + "PRIVATE KEY BLOCK")),
]

SIGNED = "kX9$" + "mPq2!vLz"

# (kind, before, the secret, after)
IN_CONTEXT = [
    ("aws-secret-key", "aws_" + "secret_access_key = ", AWS_SECRET, ""),
    ("aws-secret-key", '"SecretAccess' + 'Key": "', AWS_SECRET, '"'),
    ("aws-secret-key", "export AWS_" + "SECRET_ACCESS_KEY=", AWS_SECRET, " && ls"),
    ("url-credentials", "https://user:", "pa55", "@host/x"),
    ("url-credentials", "postgres://app:", "p@ss:w0rd", "@db.internal:5432/x"),
    ("url-credentials", "redis://:", "hunter2", "@cache:6379"),
    ("bearer-token", "Authorization: Bearer ", "abc123.def-456", ""),
    ("bearer-token", "curl -H 'authorization: bearer ", "abcdefghijklmnopqrst", "' x"),
    ("bearer-token", '"Authorization": "Basic ', "dXNlcjpwYTU1", '"'),
    ("bearer-token", "sent Bearer ", _letters(32), " to it"),
    ("env-secret", "SENTRY_API_KEY=", "q8w7e6r5", ""),
    ("env-secret", "export DB_PASSWORD=", "hunter2", "; ls"),
    ("env-secret", "export DB_PASSWORD='", "two words", "'"),
    ("env-secret", 'SLACK_SIGNING_SECRET = "', 'with \\" quote', '"'),
    ("env-secret", '{"CLIENT_SECRET": "', "shhhhhh", '", "a": 1}'),
    ("env-secret", '{\\"CLIENT_SECRET\\": \\"', "shhhhhh", '\\", 1}'),
    ("env-secret", "env:\n  DB_PASSWORD: ", "correcthorse", "\n  PORT: 80"),
    ("env-secret", "GITHUB_TOKEN: ", "abc123def", " and more"),
    ("env-secret", "docker run -e PGPASSWORD=", "x", " img"),
    ("env-secret", "`MY_TOKEN=", "abcdef", "`"),
    ("env-secret", "SECRET_KEY_BASE=", "0123456789abcdef" * 4, ""),
    ("env-secret", "(NPM_TOKEN=", "0123456789abcdef0123456789abcdef01234567", ")"),
    ("env-secret", 'api_key: "', "q8w7e6r5t4y3", '"'),
    ("env-secret", "password=", "q8w7e6r5t4y3", ""),
    ("env-secret", "TOKEN=$TOKEN;API_KEY=", "abcdef", ""),
    ("env-secret", "password=", SIGNED, ""),
    ("env-secret", 'password="', SIGNED, '"'),
    ("env-secret", '{\\"password\\": \\"', SIGNED, '\\", 1}'),
    ("env-secret", "PGPASSWORD=", SIGNED, ""),
    ("env-secret", "DB_PASS=", SIGNED, " ./run"),
    ("env-secret", "password: ", "kX9@mPq2vLz", ""),
    ("env-secret", "password=", "Tr0ub4dor&3zZ", "\nuser=x"),
    ("env-secret", "db_password = '", "Winter2025!", "'"),
    ("env-secret", "token=", f"{SIGNED}55aaBq", ""),
    ("env-secret", "mysql -p", "X9kQ2mZ7vT", ""),
    ("env-secret", "mysqldump -u root -p", "X9kQ2mZ7vT", " app > x.sql"),
    ("env-secret", "sshpass -p ", "X9kQ2mZ7vT", " ssh host"),
    ("env-secret", "redis-cli -h db -a ", "X9kQ2mZ7vT", " ping"),
    ("env-secret", "docker login -u me -p ", "X9kQ2mZ7vT", " reg.example.org"),
    ("env-secret", "mongosh -u a -p ", "X9kQ2mZ7vT", ""),
    ("env-secret", "machine git.example.org login me password ", "X9kQ2mZ7vT", ""),
    ("env-secret", "DB_PASSWORT=", "Tr0ub4dor&3", ""),
    ("env-secret", "Kennwort: ", "Tr0ub4dor&3", ""),
    ("env-secret", "mot de passe : ", "Tr0ub4dor&3", ""),
    ("env-secret", "contraseña: ", "Tr0ub4dor&3", ""),
    ("env-secret", "密码：", "Tr0ub4dor&3", ""),
    ("env-secret", "パスワード: ", "Tr0ub4dor&3", "。"),
    ("env-secret", "password＝", "Tr0ub4dor&3", ""),
    ("env-secret", "Cookie: JSESSIONID=", "A1B2C3D4E5F60718293A4B5C6D7E8F90", "; x"),
    ("url-credentials", "git clone https://", "k3Jx9Qv2LmT8wZ4bN7pR", "@github.com/a/b"),
    ("url-credentials", "smtp://mailer@example.org:", "X9kQ2mZ7vT", "@smtp.example.org:587"),
    ("env-secret", "GET https://example.org/v1/items?page=2&api_key=", "q8w7e6r5t4y3u2i1", "&order=name"),
    ("github-classic", "?next=x%26token%3D", "gh" + "p_" + "a1B2" * 9, "%26x"),
    ("env-secret", "curl -s -u admin:", "X9kQ2mZ7vT", " https://host/"),
    ("env-secret", "curl --user 'admin:", "X9kQ2mZ7vT", "'"),
    ("env-secret", "id:root,pw:", "kX9mPq2vL", ""),
    ("env-secret", "10.0.0.7 (pass:", "kX9mPq2vL", ")"),
    ("env-secret", "PSSWORD:=", "kX9mPq2vL", ""),
    ("env-secret", "-Password '", "kx9mpq2v!", "'"),
    ("env-secret", "CREATE USER x IDENTIFIED BY '", "kX9mPq2vL", "';"),
    ("env-secret", "<b>DB_PASSWORD=", "kX9mPq2vL", "</b>"),
    ("env-secret", "the deploy secret ", "0f1e2d3c4b5a69788796a5b4c3d2e1f0", " is on the page"),
    ("bearer-token", "Authorization: SSWS ", "00QCjAl4MlV-WPXM-0HmjFx-vbGua", ""),
    ("password-hash-like", "root:", "$6$rounds=5000$ab1Cd2Ef3$" + "aB3./" * 16, ":19000:"),
]

NO_SECRETS = [
    "aws_secret_access_key = " + "wJalrXUtnFEMI/K7MDENG/" + "bPxRfiCYEXAMPLEKEY",
    "tokenizer: cl100k_base",
    "author: ann.smith2024",
    "pip install git+ssh://git@github.com:lib.git@v1.2",
    "certificate-authority-data: LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0tCk1JSUQ4",
    "3f786850e387550fdab836ed7e6dc881de23001b",
    "commit 3f786850e387550fdab836ed7e6dc881de23001b fixes it",
    "550e8400-e29b-41d4-a716-446655440000",
    "sha256:" + "0123456789abcdef" * 4,
    "/home/runner/work/fleet/fleet/keep/screening.py:120",
    "API_KEY=<your key>",
    "API_KEY=<your-key>",
    "TOKEN=$TOKEN",
    "TOKEN=${TOKEN}",
    "TOKEN: ${{ secrets.TOKEN }}",
    "TOKEN=$(cat token.txt)",
    "PASSWORD=...",
    "PASSWORD=***",
    "PASSWORD=",
    'PASSWORD=""',
    "KEY=[REDACTED:x]",
    "A_KEY=[REDACTED:env-secret].",
    "API_KEY=your_api_key",
    "API_KEY=changeme",
    "--set state=x",
    "primary_key=id",
    "PRIMARY_KEY=true",
    "CACHE_KEY=user_profile",
    "Use KEY=VALUE pairs, key=value in prose, and MONKEY=banana99",
    "MAX_TOKEN=4096",
    "if TOKEN == other_token1: pass",
    'API_KEY = os.environ["API_KEY"]',
    "API_KEY = load_key(path1)",
    "API_KEY=process.env.API_KEY",
    "SSH_KEY=~/.ssh/id_ed25519",
    "TLS_KEY=/etc/ssl/private/server1.key",
    "API_KEY: str = Field()",
    "SECRET: never commit one to the repository",
    "the TOKEN: what you send with each call",
    "Authorization: Bearer authentication is needed",
    "Authorization: Bearer <token>",
    "Authorization: Bearer $TOKEN",
    "a bearer of news",
    "https://example.com:8080/a@b",
    "https://user@host/x",
    "git@github.com:owner/repo.git",
    "https://user:${PASS}@host",
    "https://user:<password>@host",
    "https://user:[REDACTED:url-credentials]@host",
    "the header -----BEGIN PRIVATE " + "KEY----- marks a key, -----END PRIVATE " + "KEY----- its end",
    "-----BEGIN CERTIFICATE-----\n" + _letters(64) + "\n-----END CERTIFICATE-----",
    "sk-learn, disk-usage-of-a-very-long-folder-name, task-abcdefghijklmnopqrstuvwxyz",
    "tokens begin with gh" + "p_ or xox" + "b- or sk-" + "ant-",
    "npm_config_registry and github_pat_ as prefixes",
    "eyJ is how a JWT begins",
    "AKIA is the prefix of a key id",
    "ran with max_tokens=4096 and temperature=0.7",
    '{"key": "value", "token_type": "bearer", "primary_key": "id"}',
    "password=$DB_PASSWORD1",
    "password=args.password1!",
    "password = hash(pw1!)",
    'password: "at least 8 chars!"',
    "password: user1@example.com",
    'if password == "Winter2025!"',
    '"password-strength": "^1.7.0-beta!"',
    "/login?password=&token=a1b2&next=/home9",
    "https://api.example.com?token=sk%2Dlive%5F1234",
    "arn:aws:secretsmanager:*:*:secret:rds-beta-us-east-1!*",
    "npmtoken = '3aAcac6c?9847-23d9-ce65-917590b81cf0'",
    "mysql -p3306, mysql -p, mysql -pPASSWORD, mysql -p$PW1",
    'sshpass -p "$PASS1" ssh host',
    "curl -u user:password https://host1",
    "curl -u $USER:$PASS1 https://host1",
    "docker run -p 8080:80 -u 1000:1000a",
    "docker login, then docker run -p 127.0.0.1:8080:80a",
    "das Passwort: mindestens 8 Zeichen",
    "mot de passe : demander à l'équipe2",
    "密码：至少8位",
    "ssh://git-codecommit-user-of-team@host.example.org/x",
    "--- PASS: TestLoadSessionState_PackageLevel_NonExistent (0.01s), api_key unused",
    "gpg: using RSA key B2570A9DA3E2A537781501B11A8656918A8D016B",
    "input=../../../etc/passwd generated_id=2026-01-27-da8007e2-27a0-4475-a6ea-81cc7e5bd7f1",
    "password: generateV4Token, pwd:Base64Encoded, password=oldPassword2",
    "GITHUB_TOKEN=" + "a" * 36,
    "<environment>DB_PASSWORD=DB_PASSWORD</environment>",
    "export DATABASE_PASSWORD=\"'$PRECOMPILE_PASSWORD'\"",
    "Authorization: see documentation-of-the-service",
]


@pytest.mark.parametrize(("kind", "token"), TOKENS)
def test_a_token_of_each_kind_goes_and_its_kind_is_named(kind: str, token: str) -> None:
    for around in ("{}", "the key is {}.", '"{}"', "x={},y", "`{}`", "({})", "a\n{}\nb"):
        screened = screen(around.format(token))
        assert kind in screened.secrets, around
        assert token not in screened.text, around
        assert f"[REDACTED:{kind}]" in screened.text, around
        assert not any(token[at : at + 16] in screened.text for at in range(len(token) - 16)), around
        assert screen(around.format(token)).secrets == screened.secrets, around


@pytest.mark.parametrize(("kind", "before", "secret", "after"), IN_CONTEXT)
def test_a_value_goes_and_its_name_stays(kind: str, before: str, secret: str, after: str) -> None:
    screened = screen(before + secret + after)
    assert screened.text == f"{before}[REDACTED:{kind}]{after}"
    assert screened.secrets == (kind,)


@pytest.mark.parametrize("text", NO_SECRETS)
def test_what_only_looks_like_a_secret_stays(text: str) -> None:
    assert screen(text) == type(screen(""))(text, ())


def test_an_aws_secret_beside_its_key_id_is_found_without_a_name() -> None:
    text = f"{'AK' + 'IA' + CAPS} {AWS_SECRET[:38]}9z"
    assert screen(text).text == "[REDACTED:aws-access-key] [REDACTED:aws-secret-key]"


def test_a_private_key_that_was_cut_off_goes_as_far_as_it_reaches() -> None:
    cut = _block("RSA " + "PRIVATE KEY").partition("\n" + "-" * 5 + "END")[0]
    assert screen(f"log: {cut}\nthen it stopped").text == "log: [REDACTED:private-key]\nthen it stopped"
    assert screen(f"log: {one_line(cut)} then it stopped").text == "log: [REDACTED:private-key] then it stopped"


def test_kinds_are_sorted_and_named_once() -> None:
    two = "gh" + "p_" + "a1B2" * 9
    assert screen(f"{two} {two} AWS_TOKEN=abcdef").secrets == ("env-secret", "github-classic")


def test_a_lesson_about_real_life_is_left_as_it_is() -> None:
    path = SHARED / "corpora" / "lessons" / "lessons.jsonl"
    if not path.is_file():
        pytest.skip(f"no corpus at {path}")
    for line in path.read_text(encoding="utf-8").splitlines():
        lesson = json.loads(line)
        assert screen(lesson["title"]).secrets == screen(lesson["description"]).secrets == ()


# --- a second look changes nothing ----------------------------------------------------------------------------------

FRAGMENTS = st.sampled_from(
    [
        *(token for _, token in TOKENS),
        *(before + secret + after for _, before, secret, after in IN_CONTEXT),
        *(before for _, before, _, _ in IN_CONTEXT),
        *NO_SECRETS,
        *(
            "A_KEY=",
            "A_TOKEN: ",
            "PASSWORD=",
            "KEY=",
            "password=",
            "api_key: ",
            'B_SECRET="',
            "C_TOKEN='",
            '\\"',
            '"',
            "'",
        ),
        *(
            "[REDACTED:",
            "[REDACTED:jwt]",
            "]",
            "://",
            "@",
            ":",
            "/",
            "<",
            ">",
            "${",
            "}",
            "(",
            ")",
            ";",
            ",",
            ".",
            "=",
            "-",
        ),
        *(
            "_",
            " ",
            "\n",
            "\t",
            "\\",
            "`",
            "x",
            "abc",
            "abc123",
            "9",
            "\u200b",
            "\u200c",
            "\x1b[31m",
            "\x9b",
            "eyJ",
            "sk-",
        ),
        *(
            "-" * 5 + "BEGIN PRIVATE KEY" + "-" * 5,
            "-" * 5 + "END PRIVATE KEY" + "-" * 5,
            _letters(16),
            "x" * 120,
            "AKIA",
        ),
        *("/home/ann", "/home/ann_", "~", "ن", "क", "्", "\u202e", "\U000e0041", "\r", "\r\n", "\u2028", "\ud800"),
    ]
)
PIECES = st.lists(FRAGMENTS | st.text(max_size=6), max_size=12).map("".join)


@given(PIECES | st.text())
@settings(max_examples=100, deadline=None)
def test_screening_twice_is_screening_once(text: str) -> None:
    once = screen(text, home="/home/ann")
    twice = screen(once.text, home="/home/ann")
    assert twice == type(once)(once.text, ())
    assert screen(once.text).secrets == ()


@given(PIECES | st.text())
@settings(max_examples=100, deadline=None)
def test_redacting_twice_is_redacting_once(text: str) -> None:
    once = redact(text)
    assert redact(once) == once


@given(st.text(alphabet=st.characters(categories=["L", "M", "N", "Zs"])), st.sampled_from(TOKENS))
@settings(max_examples=100, deadline=None)
def test_a_token_is_found_whatever_stands_around_it(around: str, kind_and_token: tuple[str, str]) -> None:
    kind, token = kind_and_token
    screened = screen(f"{around} {token} {around}")
    assert kind in screened.secrets
    assert token not in screened.text


@given(st.text())
@settings(max_examples=100, deadline=None)
def test_stripping_twice_is_stripping_once(text: str) -> None:
    once = strip_controls(text)
    assert strip_controls(once) == once


# --- the home folder ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "home", "seen"),
    [
        ("/home/ann/x and /home/ann", "/home/ann", "~/x and ~"),
        ("/home/anna/x", "/home/ann", "/home/anna/x"),
        ("/home/ann: no", "/home/ann/", "~: no"),
        ("-I/Users/ann/include", "/Users/ann", "-I~/include"),
        ("file:///home/ann/x", "/home/ann", "file://~/x"),
        ("/root/x", "/root", "/root/x"),
        ("/home/x", "/home/", "/home/x"),
        ("/home/a.n/x /home/abn/x", "/home/a.n", "~/x /home/abn/x"),
        ("/home/ann/x", None, "/home/ann/x"),
    ],
)
def test_the_home_folder_becomes_a_tilde(text: str, home: str | None, seen: str) -> None:
    assert screen(text, home=home).text == seen


# --- lines ----------------------------------------------------------------------------------------------------------


def test_lines_stay_lines_and_one_line_is_one() -> None:
    assert screen("a\r\n\tb\u2028c\rd").text == "a\n\tb\ncd"
    assert one_line(" a\r\n\t b\u2029\u00a0c ") == "a b c"


@given(st.text())
@settings(max_examples=100, deadline=None)
def test_one_line_never_breaks(text: str) -> None:
    line = one_line(text)
    assert len(line.splitlines()) <= 1
    assert line == line.strip()
    assert not re.search(r"\s\s", line)


@pytest.mark.parametrize(
    "text",
    [
        "中文的教训：不要在生产环境直接运行脚本。",
        "דוגמה בעברית",
        "مثال بالعربية، ١٢٣",
        "می\u200cخواهم",  # Persian: the non-joiner is how the word is spelt
        "क्\u200dष और र्\u200dय",  # Hindi: half letters
        "ശ്\u200cര",
        "한국어 교훈",
        "café, naïve, Ünïcödé — “quotes” … ✓ →",
        "👍 done",
    ],
)
def test_ordinary_text_of_any_script_stays(text: str) -> None:
    assert screen(text) == type(screen(""))(text, ())


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        ("a\u200db", "ab"),
        ("क\u200d", "क"),
        ("\u200cم", "م"),
        ("م\u200c\u200cم", "مم"),
        ("م\u200c\u202eم", "مم"),
        ("👨\u200d👩\u200d👧 🏳\ufe0f\u200d🌈", "👨\u200d👩\u200d👧 🏳\ufe0f\u200d🌈"),
        ("❤\ufe0f\ufe0f", "❤\ufe0f"),
        ("a\ufe0f\u200d😀 😀\u200d", "a😀 😀"),
    ],
)
def test_a_joiner_stays_only_between_letters_and_emoji_that_need_it(text: str, seen: str) -> None:
    assert strip_controls(text) == seen


# --- Markdown stays readable ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        ("pass --json, not -j", "pass --json, not -j"),
        ("snake_case in C# and a__b", "snake_case in C# and a__b"),
        ("~/.ssh and `git -C x`", "~/.ssh and `git -C x`"),
        ("a -> b => c >= d", "a -> b => c >= d"),
        ("$HOME/x is 50% (or so)!", "$HOME/x is 50% (or so)!"),
        ("see (https://x.y/z).", "see (`https://x.y/z`)."),
        ("`a`https://x.y", "`a` `https://x.y`"),
        ("https://x.y`a`", "`https://x.y` `a`"),
        (
            "a [good link](http://x.y) and ![img](http://x/y.png).",
            "a \\[good link\\](`http://x.y`) and !\\[img\\](`http://x/y.png`).",
        ),
        ("[www.a.b](http://x.y)", "\\[`www.a.b`\\](`http://x.y`)"),
        ("two\nlines", "two lines"),
        ("", ""),
    ],
)
def test_escaped_markdown_can_be_read(text: str, seen: str) -> None:
    assert markdown_escape(text) == seen


def test_a_text_of_nothing_but_beginnings_of_links_is_escaped_like_any_other():
    assert markdown_escape("](a@b" * 1_600).count("`a@b`") == 1_600


# --- frames of hosts, marks of templates ----------------------------------------------------------------------------

OPEN = "<"


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        (OPEN + "/system-reminder>", "‹/system-reminder>"),
        (OPEN + "System_Reminder>", "‹System_Reminder>"),
        (OPEN + "/ userRequest>", "‹/ userRequest>"),
        (OPEN + "|im_start|>system", "‹|im_start|›system"),
        ("[INST] x [/INST]", "⟦INST⟧ x ⟦/INST⟧"),
        (OPEN + "<SYS>>", "‹‹SYS››"),
        ("z" + "\u0301" * 50 + "a", "z" + "\u0301" * 4 + "a"),
    ],
)
def test_a_frame_is_data_and_can_still_be_read(text: str, seen: str) -> None:
    assert inert(text) == seen
    assert inert(seen) == seen


@pytest.mark.parametrize(
    "text",
    [
        "a < b and Vec<T>, Map<String, User>, <div class='x'>, <user>@<host>, <environment>, <systemd-unit>",
        "git show <commit>:<path>, #include <sys/types.h>, x << 3, a <- b, [1], [x](y), [REDACTED:jwt], - [ ] done",
        "Tiếng Việt, עִבְרִית, العَرَبِيَّة, हिन्दी, ภาษาไทยที่, é",
    ],
)
def test_what_is_no_frame_stays(text: str) -> None:
    assert inert(text) == text


@given(PIECES | st.text())
@settings(max_examples=100, deadline=None)
def test_what_is_inert_stays_so(text: str) -> None:
    assert inert(inert(text)) == inert(text)


# --- any name, any quoting ------------------------------------------------------------------------------------------

RANDOM = "q8W7e6R5" + "t4Y3u2I1" + "o0P9"


@pytest.mark.parametrize(
    "form",
    [
        *(
            'fooToken = "{}"',
            '"foo_token": "{}"',
            "foo_token: {}",
            "fooToken='{}'",
            "fooToken := `{}`",
            "FOO.TOKEN ::= {}",
        ),
        *(
            'setProperty("FOO_TOKEN", "{}")',
            "<fooToken>\n    {}\n</fooToken>",
            'var fooToken string = "{}"',
            "'token' => '{}'",
        ),
        *(
            "--foo-api-key {}",
            "foo_pwd={}",
            "Using Key={} now",
            "mySecret -> '{}'",
            '{{\\"apiKey\\": \\"{}\\"}}',
            "$token .= '{}';",
        ),
    ],
)
def test_a_random_value_goes_whatever_its_name_is_written_like(form: str) -> None:
    screened = screen(form.format(RANDOM))
    assert RANDOM not in screened.text
    assert screened.secrets == ("env-secret",)


@pytest.mark.parametrize(
    "text",
    [
        "token: the one that you were given, key = value, secret: ask somebody",
        "next_page_token = 'CAUQAA1234567890ab'",
        "cache_key = 'user:1234:profile:5678abcd'",
        'api_key = "test_key_for_the_example_1"',
        "apiKey: process.env.API_KEY_2",
        "token = response.json()['token1']",
        "max_tokens: 16384000, tokens_used = 123456789012",
        "key: sha256-1f3a5b7c9d",
        "password = 'changeme'",
        "monkey = 'a1B2c3D4e5F6g7H8'",
        "Token expires at 2026-01-02T03:04:05Z",
        "postgres://postgres:postgres@localhost/x",
        "AKIAIOSFODNN7" + "EXAMPLE",
    ],
)
def test_what_only_bears_such_a_name_stays(text: str) -> None:
    assert screen(text).secrets == ()


@pytest.mark.parametrize(
    ("kind", "token"),
    [
        ("grafana-token", "gl" + "sa_" + _letters(32) + "_0a1b2c3d"),
        ("digitalocean-token", "do" + "p_v1_" + "0123456789abcdef" * 4),
        ("sendgrid-key", "SG" + "." + _letters(22) + "." + _letters(43)),
        ("shopify-token", "shp" + "at_" + "0123456789abcdef" * 2),
        ("vault-token", "hv" + "s." + _letters(90)),
        ("postman-key", "PM" + "AK-" + "0123456789abcdef01234567-" + "0123456789abcdef0123456789abcdef01"),
        ("databricks-token", "da" + "pi" + "0123456789abcdef" * 2),
        ("telegram-token-like", "123456789:A" + "A" + _letters(33)),
    ],
)
def test_a_providers_form_is_known_without_a_name(kind: str, token: str) -> None:
    assert screen(f"use {token} here") == (f"use [REDACTED:{kind}] here", (kind,))
    assert certain(f"use {token} here") == ([] if kind.endswith("-like") else [kind])
    assert screen(f"use {token[: len(token) // 4]} here").secrets == (), "a beginning is none"


IN_ORDER = "abcdefghijklmnopqrstuvwxyz" + "0123456789"


@pytest.mark.parametrize(
    ("kind", "token"),
    [
        ("github-classic", "gh" + "p_" + IN_ORDER),
        ("github-classic", "gh" + "p_" + "1234567890" * 3 + "123456"),
        ("anthropic-key", "sk-" + "ant-api03-" + IN_ORDER),
        ("openai-key", "sk-" + "proj-" + IN_ORDER),
        ("slack-bot", "xo" + "xb-1234567890-" + IN_ORDER),
        ("aws-access-key", "AK" + "IA" + IN_ORDER[:16].upper()),
    ],
)
def test_a_token_of_a_known_form_is_one_whatever_its_order(kind: str, token: str) -> None:
    """Who makes one up to try what is done with it means what it stands for."""
    assert screen(f"use {token} here") == (f"use [REDACTED:{kind}] here", (kind,))


def test_an_id_is_no_hint_at_a_token(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is printed has one, and the tables of tokens take longer to load than most answers to make."""
    monkeypatch.setattr(screening, "_credentials", None)
    text = '{"id":"p-0123456789abcdef"} close to c-fedcba9876543210: d-0123456789abcdef.'
    assert screen(text).text == text


def test_prose_with_the_name_of_a_secret_is_no_hint_at_its_value(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(screening, "_credentials", None)
    text = "Check the build's cache key before a deploy, and the author's Password, 3 times (it is kept)."
    assert screen(text).text == text


NAMES = (
    *("token", "DB_PASSWORD", "apiKey", "SECRET", "mysql", "sshpass", "curl", "identified by", "passwd"),
    *("passwort", "mongo"),
)
SIGNS = (
    *(" ", "=", ": ", ":", " = ", " = '", '"', "'", "->", ", "),
    *(" -p", " -u u:", " >", "</", "(", "\n", "\u00a0"),
)
VALUES = ("correcthorse", "correctHorse", "pa55word", "a1!b2?c3#d4", "hunter2", "9f8e7d6c5b4a39281706", "x")


@settings(max_examples=200)
@given(st.lists(st.sampled_from((*NAMES, *SIGNS, *VALUES)), max_size=8).map("".join))
@example("SECRET = correcthorse")
@example("identified by pa55wd")
@example("the token 'correctHorseBatteryStaple'")
def test_the_first_look_misses_nothing_that_a_name_tells(text: str) -> None:
    if screening._redact_named(text, set()) != text:
        assert redact(text) != text


def test_a_value_with_any_word_of_the_list_in_it_is_no_secret() -> None:
    words = " ".join(sections("secrets.txt")["innocent"]).split()
    assert [word for word in words if screen(f"x_token=8f3k9q{word}2z7").secrets] == []
    assert screen("x_token=8f3k9q4vbw2z7h1").secrets == ("env-secret",)


def test_what_is_doubtful_is_not_certain() -> None:
    assert certain(f"password = '{RANDOM}', {JWT}, https://u:{RANDOM}@h/") == []
    assert certain(_block("PRIVATE KEY")) == ["private-key"]


@pytest.mark.parametrize(
    "unit",
    [
        "key=",
        "A_KEY:",
        "passwd(",
        "password=",
        "password=a1!",
        "mysql -p",
        "docker login ",
        "passwort: ",
        "://a1b2c3d4",
        "curl -u a:",
        f"_pw={SIGNED} ",
        'token="',
        "glsa_",
        "<|",
        "<secret>{a ",
        "a1|",
        "'x1' == pass",
        "_",
        "-eyJ",
        "A_KEY=<",
        "://a",
        "ghs_.",
        "-----",
    ],
)
def test_the_cost_grows_with_the_text_and_not_faster(unit: str) -> None:
    def cost(size: int) -> float:
        text = (unit * size)[:size]
        began = time.process_time()
        screen(text)
        inert(text)
        return time.process_time() - began

    cost(1_000)
    small = min(cost(16_384) for _ in range(2))
    large = next((cost_s for _ in range(3) if (cost_s := cost(65_536)) < 12 * small + 0.05), None)
    assert large is not None, "four times the text costs over twelve times as much, three times in a row"
    assert is_within(large, 1.0)


@pytest.mark.parametrize("ours", ["2026-11-20T22:30:00.123Z-00ff", "2026-11-20T22:30:00.123Z", "zero-cool.7f3a91c2"])
def test_what_every_line_of_ours_has_is_told_from_a_token_at_a_glance(ours):
    assert screening.is_harmless(ours)
    assert screening.is_harmless(f"by {ours}, and p-3f9c1a2b7d4e5f60")
    assert not screening.is_harmless(f"{ours}{MIXED}")


_NEAR_A_NAME = (
    *(
        "p-9f16b6b51887c053 seen 1 time:",
        "  close to c-3f9c1a2b7d4e5f60:",
        "note:",
        "the cache key",
        "my token",
        "PASSWORD",
    ),
    *(
        "password",
        "pass",
        "pw",
        "a_pw",
        "Secret",
        "auth",
        ":",
        "=",
        "->",
        ",",
        "(",
        "before a deploy",
        "9001",
        "hunter",
    ),
    *("correct-horse", "hunter2xyz9", '"Tr0ub4dor&3x"', "'Horse9Staple!'", "curl -u me:hunter22", "mysql -phunter22"),
    *(f"{before}{secret}{after}" for _, before, secret, after in IN_CONTEXT),
)


@settings(max_examples=200)
@given(st.lists(st.sampled_from(_NEAR_A_NAME), max_size=5).map(" ".join))
@example("p-9f16b6b51887c053 seen 1 time: the password is hunter")
@example('pass "Horse9Staple!" : the key')
def test_a_text_that_no_value_stands_beside_a_name_in_is_what_every_expression_leaves(text):
    glanced = screen(text)
    with mock.patch.object(screening, "_may_hold_value", return_value=True):
        assert screen(text) == glanced


def test_a_row_of_a_lesson_that_names_a_key_needs_no_expression_of_secrets():
    row = "  close to p-feb7a1305e53c041: Check the build cache key before a deploy 2 (differs in number)"
    with mock.patch.object(screening, "_credentials", side_effect=AssertionError):
        assert screen(row).text == row


_SIGNS = ("a", "1", " ", "\n", "\r", "\u200d", "\ufe0f", "\u0301", "\x07", "क", "👩", "key", "AKIA")
_PARTS = st.lists(st.sampled_from(_SIGNS), max_size=8).map("".join)


@given(st.lists(_PARTS, min_size=1, max_size=4))
def test_what_is_harmless_together_is_harmless_in_each_part(parts):
    if screening.is_harmless("\n".join(parts)):
        assert all(map(screening.is_harmless, parts))


def _mixed(chars: int) -> str:
    """Return letters and digits that nobody publishes, made anew so that no scanner takes them for somebody's."""
    return "".join("Qw7Er2Ty9Ui4Op6As1Df8Gh3Jk5Lz0Xc"[(number * 7 + number // 32) % 32] for number in range(chars))


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        (f"?token=apify_api_{_mixed(36)}&other=value", "apify-token"),
        (f"glpat-{_mixed(32)}.01.0w1l5e7up", "gitlab-token"),
        (f'KEY_DER = "MIIEvIBAAKCAQEA{_mixed(160)}"', "private-key"),
        (f"der: MIIEvQIBADANBgkqhkiG9w0BAQEFAASC{_mixed(160)}", "private-key"),
        (f"Public-Lines: 1\n{_mixed(64)}\nPrivate-Lines: 2\n{_mixed(64)}\n{_mixed(64)}\nPrivate-MAC: 1", "private-key"),
        (f"Authorization: aivenv1 {_mixed(60)}", "bearer-token"),
    ],
)
def test_a_form_that_more_scanners_know_is_found(text: str, kind: str) -> None:
    clean = screen(text)
    assert clean.secrets == (kind,)
    assert clean.text.count("[REDACTED:") == 1


@pytest.mark.parametrize("value", ["%s", "$env{admin_pwd}", "••••••••"])
def test_what_stands_for_the_password_of_an_address_stays(value: str) -> None:
    assert screen(f"redis://admin:{value}@host:5672").secrets == ()


def test_a_value_that_a_name_makes_secret_is_hidden_wherever_it_stands_in_the_text() -> None:
    value = _mixed(16)
    clean = screen(f"no, {value} opens prod, and {value}x nothing\n(Refused Bash: DB_PASSWORD={value} mysql)")
    assert clean.secrets == ("env-secret",)
    assert clean.text.count("[REDACTED:env-secret]") == 2
    assert f"{value}x" in clean.text
    assert screen(clean.text).text == clean.text


def test_a_text_of_many_secrets_costs_time_in_proportion() -> None:
    text = "\n".join(f"DB_PASSWORD={_mixed(16)}{number}" for number in range(2_000))
    start = time.process_time()
    assert "[REDACTED:env-secret]" in screen(text).text
    assert time.process_time() - start < 5
