"""Pages of notes in the wild: whatever they hold, they cost time in proportion, and raise nothing."""

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleet.learn import notes
from fleet.learn.notes import Note, SkippedPiece, read_notes


def seconds(line: str, count: int) -> float:
    """How long a page takes, in CPU time."""
    start = time.process_time()
    list(read_notes(line * count, "lessons.md"))
    return time.process_time() - start


@pytest.mark.parametrize(
    "line", ["#\n", "- a\n", "# a\n## Fix\nx\n", "**a**: b\n", "- **Mistake:** a **Rule:** b\n", "[ "]
)
def test_time_grows_with_the_page_and_not_faster(line):
    small = min(seconds(line, 200) for _ in range(3))
    assert any(seconds(line, 2_000) < 30 * small + 0.02 for _ in range(3))


def test_lists_within_lists_without_end_are_read():
    page = "".join("  " * depth + "- Always look one level deeper\n" for depth in range(3_000))
    assert any(isinstance(each, Note) for each in read_notes(page, "lessons.md"))


def test_nothing_is_dropped_without_a_word():
    page = "# Lessons\n\nIntro.\n\n## Format\n- x\n\n## A\n- Always pin the image\n- short\n- [ ] todo\n" + "y" * 9_000
    found = list(read_notes(page, "lessons.md"))
    assert [each.line for each in found if isinstance(each, Note)] == [9]
    assert {each.line for each in found if isinstance(each, SkippedPiece)} == {3, 6, 10, 11, 12}


def test_what_stands_above_labelled_lines_is_taken_too_or_named():
    page = (
        "## Week 12\n\nA long week.\n\n- Never force-push to a shared branch\n\n"
        "❌ git add . → ✅ git add the files you changed\n\n"
        "Mistake: I deployed on a Friday\nFix: deploy from Monday to Thursday\n"
    )
    found = list(read_notes(page, "corrections.md"))
    assert {each.text for each in found if isinstance(each, Note)} == {
        "Week 12: deploy from Monday to Thursday",
        "Never force-push to a shared branch",
        "git add the files you changed",
    }
    assert [(each.line, each.text) for each in found if isinstance(each, SkippedPiece)] == [(3, "A long week.")]


def test_what_leads_in_a_pair_stands_before_it():
    page = "# L\n\n- Use the retry wrapper for calls:\n  - ❌ requests.get(url)\n  - ✅ retrying.get(url)\n"
    [found] = [each for each in read_notes(page, "lessons.md") if isinstance(each, Note)]
    assert found.text == "Use the retry wrapper for calls: retrying.get(url), not requests.get(url)"


@pytest.mark.parametrize(
    ("item", "reason"),
    [
        ("Added finite-value guards and clamping in the audio view", notes.DONE),
        ("Sensor layer (watch and fallback): in progress; quality states active", notes.STORY),
        ("`do_while:` fully implemented (section 27): validation, loop, variables", notes.STORY),
        ("When the same issue repeats three times without progress", notes.NO_SENTENCE),
        ("Telegram keyboard buttons (fixed collection vs JSON)", notes.NO_SENTENCE),
        ("Full rules: `docs/ARCHITECTURE.md`", notes.NO_ADVICE),
        ("After every correction: add one line here.", notes.ABOUT),
        ("Areas: frontend | backend | infra | tests", notes.TEMPLATE),
        ("Should we pin the image by its digest?", notes.QUESTION),
        ("TODO: look at this", notes.TASK),
        ("FIXME (velma) - never finished the retry of the upload", notes.TASK),
    ],
)
def test_what_is_no_lesson_is_named_with_its_reason(item, reason):
    (left,) = read_notes(f"# Lessons\n\n## Deploying\n- {item}\n", "lessons.md")
    assert isinstance(left, SkippedPiece)
    assert left.reason == reason


@pytest.mark.parametrize(
    "item",
    [
        "Added fields are ignored by the old parser",
        "Deployed images must carry a digest",
        "TODO comments must name an owner",
        "When it hangs, restart the daemon",
        "`make lint` before every push",
        "Imports from the shared package fail with the old loader",
    ],
)
def test_what_only_looks_like_a_changelog_or_half_a_sentence_is_taken(item):
    (note,) = read_notes(f"# Lessons\n\n## Deploying\n- {item}\n", "lessons.md")
    assert isinstance(note, Note), note
    assert note.text.endswith(item)


def test_a_task_under_a_heading_that_is_an_order_is_no_lesson_of_that_heading():
    (left,) = read_notes("# Lessons\n\n### Check the cache first\n\n- TODO: write more\n", "lessons.md")
    assert isinstance(left, SkippedPiece)
    assert left.reason == notes.TASK


def test_a_heading_that_only_names_its_entry_gives_way_to_what_its_fields_say():
    page = "# Lessons\n\n### 2026-03-04 Missing parameters in tools\n**Fix:** Pass the user id to every tool\n"
    (note,) = read_notes(page, "lessons.md")
    assert note.text == "Missing parameters in tools: Pass the user id to every tool"


@pytest.mark.parametrize("above", ["### Never\n", "Do not:\n\n", "### Anti-patterns\n"])
def test_an_order_under_a_heading_that_forbids_keeps_it(above):
    page = f"# Lessons\n\n## Maps\n{above}- Skip the change tracking of the map\n- Write to the store without a lock\n"
    said = [each.text for each in read_notes(page, "lessons.md") if isinstance(each, Note)]
    assert said
    assert all(each.startswith(above.strip("# :\n")) for each in said), said


def test_a_story_is_no_lesson():
    page = "# Lessons\n\n- This is how the release broke the shop: a migration without its journal entry\n"
    (left,) = read_notes(page, "lessons.md")
    assert isinstance(left, SkippedPiece)
    assert left.reason == notes.STORY


def test_a_fence_that_never_closes_hides_nothing():
    page = "# Lessons\n\n- Always pin the image\n\n```\nx\n\n- Never push on a Friday\n"
    assert [each.line for each in read_notes(page, "lessons.md") if isinstance(each, Note)] == [3, 8]


def test_an_order_beside_labelled_items_is_a_lesson_of_its_own():
    page = (
        "## Tools\n- Never push to main without a review\n- Fix: run `make clean` before building\n"
        "- since the cache goes stale\n- Always run the tests before pushing\n"
    )
    lessons = [(each.line, each.text) for each in read_notes(page, "lessons.md") if isinstance(each, Note)]
    assert sorted(lessons)[1:] == [
        (2, "Never push to main without a review"),
        (5, "Always run the tests before pushing"),
    ]
    assert lessons[0][1] == "Tools: run `make clean` before building; since the cache goes stale"


def test_a_heading_that_is_the_wrong_or_the_right_way_is_that_field_of_its_lesson():
    page = (
        "# Lessons\n\n## Wrong: npm install in CI\nRight: use npm ci there\n\n"
        "## Mistake: editing a generated file\n- **Rule:** edit the template\n\n"
        "## Right: run the linter before a commit\nWrong: pushed without it\n\n"
        "## Mistake: caching\n**Wrong:** cached for ever **Right:** give each entry a lifetime\n\n"
        "## Issue: the pool is exhausted\nFix: raise its size\n"
    )
    lessons = [(each.text, each.wrong) for each in read_notes(page, "lessons.md") if isinstance(each, Note)]
    assert lessons == [
        ("use npm ci there", "npm install in CI"),
        ("edit the template", "editing a generated file"),
        ("run the linter before a commit", "pushed without it"),
        ("caching: give each entry a lifetime", "cached for ever"),
        ("the pool is exhausted", ""),
    ]


@pytest.mark.parametrize("text", ["永远在提交前运行 `make check`", "グローバル変数を避ける"])
def test_an_order_in_chinese_or_japanese_is_a_lesson(text):
    assert [each.text for each in read_notes(f"- {text}\n", "lessons.md") if isinstance(each, Note)] == [text]


def test_the_category_of_an_entry_is_no_number_and_not_its_title():
    page = (
        "# L\n\n## [LRN-20260105-001] best_practice\n### Summary\nAlways take a dump before a migration\n\n"
        "## Git\n### Wrong migration order\n**Rule:** Number migrations by date\n\n"
        "## L-3: [gotcha] Tokens in logs\n**Rule:** Never log a token\n\n## Testing\n- **Rule:** Never share fixtures\n"
    )
    found = [each.category for each in read_notes(page, "lessons.md") if isinstance(each, Note)]
    assert found == ["best_practice", "Git", "gotcha", "Testing"]


WRONG, RIGHT = "❌ Copy the whole repo", "✅ Copy only package.json before npm install"
PAIR = ("Copy only package.json before npm install", "Copy the whole repo")


@pytest.mark.parametrize(
    "item",
    [
        f"- {WRONG}\n  {RIGHT}\n",
        f"- {WRONG}  \n  {RIGHT}  \n",
        f"- {WRONG}\n\n  {RIGHT}\n",
        f"- {WRONG}\n  - {RIGHT}\n",
        f"- {WRONG}\n  - it takes minutes\n    - {RIGHT}\n",
        f"1. {RIGHT}\n   {WRONG}\n",
        f"- Docker:\n  - {WRONG}\n  - {RIGHT}\n",
        f"- 2026-01-02: {WRONG}\n  {RIGHT}\n",
        f"2026-01-02: {WRONG}\n{RIGHT}\n",
        f"- The image is big\n  {WRONG}\n  {RIGHT}\n",
    ],
)
@pytest.mark.parametrize("name", ["lessons.md", "CLAUDE.md"])
def test_of_a_wrong_way_and_the_right_one_below_it_the_right_one_is_the_lesson(item, name):
    found = list(read_notes(f"# Shop\n\n{item}", name))
    (pair,) = [each for each in found if isinstance(each, Note) and "Copy" in each.text]
    assert (pair.text, pair.wrong, pair.when) == (*PAIR, "2026-01-02" if "2026" in item else "")


def test_several_pairs_in_one_item_are_a_lesson_each():
    more, less = "❌ Run as root in the image", "✅ Switch to a user without rights"
    below = f"- {WRONG}\n  {RIGHT}\n  {more}\n  {less}\n"
    beside = f"- {WRONG} → {RIGHT}. {more} → {less}\n"
    turned = f"- {RIGHT}\n  {WRONG}\n- {less}\n  {more}\n"
    for item in (below, beside, turned):
        lessons = [(each.text, each.wrong) for each in read_notes(f"# L\n\n{item}", "lessons.md")]
        assert lessons == [PAIR, ("Switch to a user without rights", "Run as root in the image")], item


def test_a_list_of_what_is_right_alone_is_no_pair():
    page = "# L\n\n- What the release needs\n  - ✅ Users can log in with a password\n  - ✅ Search works in French\n"
    (note,) = read_notes(page, "lessons.md")
    assert (note.line, note.text) == (3, "What the release needs")
    assert note.correct == "✅ Users can log in with a password; ✅ Search works in French"


@pytest.mark.parametrize("name", ["Architecture", "Project structure", "Usage", "Tests"])
def test_rules_below_an_item_that_is_named_like_a_part_of_the_project_are_lessons(name):
    page = f"# L\n\n- {name}:\n  - Never import the app from the store\n  - Always go through the use case\n"
    texts = [each.text for each in read_notes(page, "lessons.md") if isinstance(each, Note)]
    assert texts == ["Never import the app from the store", "Always go through the use case"]


def test_what_stands_below_a_task_is_no_detail_of_the_item_above_it():
    page = "# L\n\n- Always run the tests before a push\n  - [ ] later\n    - some day\n  - it takes a minute\n"
    notes_read = [each for each in read_notes(page, "lessons.md") if isinstance(each, Note)]
    assert [each.correct for each in notes_read] == ["it takes a minute"]


@pytest.mark.parametrize("between", ["\n  ✅ Good: ", "\n  - ✅ Good: ", " → ✅ Good: ", "\n  ✅ ", "\n- ✅ "])
def test_a_wrong_and_a_right_way_may_have_labels_too(between):
    (note,) = read_notes(f"# L\n\n## Docker\n- ❌ Bad: Copy the whole repo{between}Pin all versions\n", "lessons.md")
    assert (note.text, note.wrong) == ("Docker: Pin all versions", "Copy the whole repo")


def test_a_field_below_a_field_is_of_the_same_entry():
    page = "# L\n\n## Docker\n- Mistake: copied the repo\n  - Fix: Copy only package.json\n"
    (note,) = read_notes(page, "lessons.md")
    assert (note.text, note.wrong) == ("Docker: Copy only package.json", "copied the repo")


def test_a_wrong_way_without_a_right_one_keeps_its_mark():
    (note,) = read_notes(f"# L\n\n- 2026-01-02: {WRONG} into the image\n", "lessons.md")
    assert (note.text, note.when) == (f"{WRONG} into the image", "2026-01-02")


PIECES = (
    *("❌ {} the whole repo into it", "✅ {} only what the build needs", "❌ {0} by hand → ✅ {0} with the tool"),
    *("❌ {0} x → ✅ {0} y. ❌ {0} all of it → ✅ {0} a part", 'SUPERSEDES "{0} old" → "Always {0} the new one"'),
    *("Always {} the image first", "{} is slow", "since {} is", "The image {} is big"),
)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(PIECES), st.sampled_from(["- ", "  ", "  - ", "    - ", ""])), max_size=8))
def test_every_line_of_a_list_with_marks_is_in_a_lesson_or_named(rows):
    words = [f"zap{number}" for number in range(len(rows))]
    lines = [f"{before}{text.format(word)}" for (text, before), word in zip(rows, words, strict=True)]
    found = list(read_notes("# Lessons\n\n- Always begin with this one\n" + "\n".join(lines) + "\n", "lessons.md"))
    taken = " ".join(f"{each.text} {each.correct} {each.wrong}" for each in found if isinstance(each, Note))
    left = {each.line for each in found if isinstance(each, SkippedPiece)}
    for number, word in enumerate(words, 4):
        assert word in taken or number in left, (lines[number - 4], found)


@pytest.mark.parametrize(
    "title", ["Errors", "Mistakes", "Common mistakes", "Wrong approach", "错误", "Fehler", "Never", "What went wrong"]
)
def test_a_heading_that_names_mistakes_does_not_stand_before_the_right_way(title):
    fix = "Run the package manager to change the lock file"
    (note,) = read_notes(f"# L\n\n## {title}\nMistake: edited the lock file by hand\nFix: {fix}\n", "lessons.md")
    assert (note.text, note.wrong) == (fix, "edited the lock file by hand")
    rules = "".join(f"- **Rule:** {text}\n" for text in ("Always run the tests first", "Never edit the lock file"))
    found = [each.text for each in read_notes(f"# L\n\n## {title}\n{rules}", "lessons.md")]
    assert found == ["Always run the tests first", "Never edit the lock file"]


@pytest.mark.parametrize("title", ["Import errors", "Missing parameters in tools", "Wrong port"])
def test_a_heading_that_names_a_topic_stands_before_the_right_way(title):
    (note,) = read_notes(f"# L\n\n## {title}\nFix: Ask the owner about it\n", "lessons.md")
    assert note.text == f"{title}: Ask the owner about it"


@pytest.mark.parametrize("head", ["No.", "#", "Nr", "Attempts"])
@pytest.mark.parametrize("cell", ["1", "#2", "3.", "(4)", "5-6", "60 %", "ERR-7"])
def test_a_cell_of_digits_is_no_topic(head, cell):
    table = f"| {head} | Bug | Part | Solution |\n|---|---|---|---|\n| {cell} | slow | Tests | Use a fake clock |\n"
    (note,) = read_notes(f"# L\n\n{table}", "lessons.md")
    assert note.text == "Tests: Use a fake clock"


@pytest.mark.parametrize(
    "fields",
    [
        "- **Wrong:** {}\n  **Right:** {}\n- **Mistake:** {}\n  **Fix:** {}\n",
        "- **Wrong:** {}\n  **Right:** {}\n- **Mistake:** {}\n  **Correct:** {}\n",
        "- Mistake: {}\n- Fix: {}\n- Error: {}\n- Solution: {}\n",
        "Mistake: {}\nFix: {}\nError: {}\nSolution: {}\n",
        "- **错误**: {}\n  **正确**: {}\n- **Fehler:** {}\n  **Lösung:** {}\n",
    ],
)
@pytest.mark.parametrize("title", ["Errors", "2. Mistakes", "Working with git"])
def test_two_mistakes_under_one_heading_are_two_lessons_whatever_their_labels(fields, title):
    texts = "edited main directly", "create a branch first, then commit", "ran without a dump", "take a dump before it"
    lessons = [
        (each.text, each.wrong) for each in read_notes(f"# L\n\n## {title}\n{fields.format(*texts)}", "notes.md")
    ]
    assert [(text.removeprefix(f"{title}: "), wrong) for text, wrong in lessons] == [(texts[1], texts[0]), texts[:1:-1]]


def test_two_bullets_with_the_right_way_first_are_two_lessons():
    page = "## Errors\n- **Right:** make a branch first\n  **Wrong:** main\n- Fix: take a dump first\n  Error: none\n"
    lessons = [each.text for each in read_notes(page, "lessons.md") if isinstance(each, Note)]
    assert lessons == ["make a branch first", "take a dump first"]


def test_an_entry_with_a_heading_of_its_own_may_name_its_symptom_behind_its_fix():
    page = "## L-7: Buttons are missing\n**Problem:** no button appears\n**Fix:** Send an array\n**Symptom:** nothing\n"
    assert [each.text for each in read_notes(page, "lessons.md")] == ["Buttons are missing: Send an array"]


def test_what_stands_beside_a_labelled_item_is_no_part_of_its_entry():
    page = (
        "## Testing\n- **Rule:** Never share fixtures between tests that write.\n- ❌ Using floats for money\n"
        '- ✅ Use integers of cents for money\n- SUPERSEDES "Use tabs to indent" → "Use four spaces to indent"\n'
        "- Use tabs to indent\n- **Mistake:** ran against staging\n  **Fix:** run against a copy\n"
        "- The staging database is reset every night by a job that nobody owns\n"
    )
    found = list(read_notes(page, "gotchas.md"))
    assert [(each.text, each.wrong) for each in found if isinstance(each, Note)] == [
        ("Never share fixtures between tests that write.", ""),
        ("Use integers of cents for money", "Using floats for money"),
        ("Use four spaces to indent", "Use tabs to indent"),
        ("Testing: run against a copy", "ran against staging"),
        ("The staging database is reset every night by a job that nobody owns", ""),
    ]
    assert [each.line for each in found if isinstance(each, SkippedPiece)] == [6]


@pytest.mark.parametrize(
    ("title", "pair", "expected"),
    [
        (
            "1. Forgetting to await",
            "❌ **Wrong**: `fetchUser(id)`\n✅ **Right**: `await fetchUser(id)`",
            ("Forgetting to await: `await fetchUser(id)`, not `fetchUser(id)`", "`fetchUser(id)`"),
        ),
        ("JS", "- ❌ Don't use var\n- ✅ Use const", ("Use const. Don't use var", "Don't use var")),
        ("JS", "- ✅ **Good:** Always use const", ("Always use const", "")),
    ],
)
def test_a_marked_pair_is_taken_without_its_labels_and_reads_by_itself(title, pair, expected):
    found = [each for each in read_notes(f"# L\n\n## {title}\n{pair}\n", "lessons.md") if isinstance(each, Note)]
    assert (found[0].text, found[0].wrong) == expected


def test_a_list_below_a_label_ends_with_its_item():
    page = "## Testing\n- **Rule:**\n  - Never share it\n  - Always seed the clock\n- The database is reset by a job\n"
    lessons = [each.text for each in read_notes(page, "gotchas.md") if isinstance(each, Note)]
    assert lessons == [
        "Testing: Never share it",
        "Testing: Always seed the clock",
        "The database is reset by a job",
    ]


@pytest.mark.parametrize(
    "fields",
    [
        "Mistake: {}\n",
        "**What went wrong:** {}\n",
        "- **Wrong:** {}\n",
        "Symptom: {}\nRoot cause: nobody had asked\n",
        "Mistake: {}\nWhy: it was late\n",
        "#### What happened\n{}\n",
    ],
)
def test_what_went_wrong_is_never_the_right_way_of_a_heading_that_is_the_rule(fields):
    mistake = "deployed the customer's shop without a backup"
    page = f"# Lessons\n\n### Always take a backup before each deploy\n{fields.format(mistake)}"
    (note,) = read_notes(page, "lessons.md")
    assert (note.text, note.correct) == ("Always take a backup before each deploy", "")
    assert note.wrong.startswith(mistake)


@pytest.mark.parametrize("head", ["What went wrong | What to do instead", "Mistake | Better", "Wrong | What to do"])
def test_what_to_do_instead_is_the_right_way_of_a_table(head):
    row = "| deployed the service without its tests | Take a backup before each deploy |"
    (note,) = read_notes(f"# Lessons\n\n| {head} |\n|---|---|\n{row}\n", "lessons.md")
    assert (note.text, note.correct) == ("Take a backup before each deploy", "")
    assert note.wrong == "deployed the service without its tests"


@pytest.mark.parametrize("entry", ["Mistake: used npm\nFix: use pnpm here\n", "**Fix:** use pnpm here\n"])
def test_bullets_below_an_entry_in_paragraphs_are_a_lesson_each(entry):
    below = "- Always run the tests before a push\n- The staging database is reset every night\n"
    found = [each.text for each in read_notes(f"# L\n\n## Tools\n{entry}\n{below}", "lessons.md")]
    assert found == [
        "Tools: use pnpm here",
        "Always run the tests before a push",
        "The staging database is reset every night",
    ]


@pytest.mark.parametrize("entry", ["Fix:\n", "Fix: do it in two steps:\n"])
def test_bullets_that_a_label_leads_to_are_of_its_entry(entry):
    steps = "- Always stop the service first\n- Never start it by hand\n"
    (note,) = read_notes(f"# L\n\n## Tools\nMistake: restarted it\n{entry}\n{steps}", "lessons.md")
    assert note.text.endswith("Always stop the service first; Never start it by hand")


@pytest.mark.parametrize(
    "page",
    [
        "### Dates\n~~Always use moment~~\n",
        "### ~~Dates~~\nAlways use moment\n\n#### Zones\n- Always use moment\n",
        "### Dates\n- ~~Always use moment~~ (see L-12)\n",
        "### Dates\n**Lesson:** ~~Always use moment for dates~~\n",
        "### L-3\n**Status:** OBSOLETE\n**Lesson:** Always use moment for dates\n",
        "### L-3\n- **Lesson:** Always use moment for dates\n- **Status:** superseded by L-12\n",
        "| Lesson | Why |\n|---|---|\n| ~~Always use moment~~ | it is small |\n",
        "~~Always use moment for dates~~\n",
        "### L-4\nLesson: Never\n",
    ],
)
@pytest.mark.parametrize("name", ["lessons.md", "CLAUDE.md"])
def test_what_is_struck_out_or_obsolete_is_no_lesson_and_named(page, name):
    found = list(read_notes(f"# Lessons\n\n{page}", name))
    assert found
    assert [each for each in found if isinstance(each, Note) and each.text != "it is small"] == []


@pytest.mark.parametrize("before", ["", "- ", "- **Rule:** ", "**Lesson:** "])
def test_of_a_text_in_part_struck_out_the_rest_is_the_lesson(before):
    page = f"# Lessons\n\n### Dates\n{before}~~Always use moment for dates~~ Use date-fns for all dates\n"
    assert [each.text for each in read_notes(page, "lessons.md")] == ["Use date-fns for all dates"]


def test_a_wrong_way_that_is_struck_out_is_still_the_wrong_way():
    (note,) = read_notes("# L\n\n- ❌ ~~npm install~~ → ✅ npm ci\n", "lessons.md")
    assert (note.text, note.wrong) == ("npm ci, not npm install", "npm install")


@pytest.mark.parametrize(
    "title",
    ["# Lessons", "# Lessons learned", "# Lektionen", "# Leçons apprises", "# 教训", "# P\n\n## Lessons learned"],
)
@pytest.mark.parametrize("fields", ["- **Mistake:** used npm\n- **Fix:** {}\n", "Lesson: {}\n\n- Never push to main\n"])
def test_a_title_that_names_no_topic_stands_before_no_lesson(title, fields):
    found = [each.text for each in read_notes(f"{title}\n\n{fields.format('always use pnpm here')}", "lessons.md")]
    assert found == ["always use pnpm here", "Never push to main"][: len(found)]


def test_a_fix_in_a_table_keeps_the_problem_that_it_is_for():
    rows = (
        "| The wheel is built for x86 on arm64 runners | pin the builder image |\n| Slow imports | load them late |\n"
    )
    found = list(read_notes(f"# Lessons\n\n| Problem | Solution |\n|---|---|\n{rows}", "lessons.md"))
    assert [(each.text, each.correct) for each in found] == [
        ("The wheel is built for x86 on arm64 runners", "pin the builder image"),
        ("Slow imports: load them late", ""),
    ]


def test_a_row_of_what_not_to_do_and_what_to_do_reads_like_a_pair_with_marks():
    table = "| Don't | Do |\n|---|---|\n| use npm | use pnpm |\n| `git add .` | `git add -p` |\n"
    marked = "- ❌ use npm → ✅ use pnpm\n- ❌ `git add .` → ✅ `git add -p`\n"
    in_table, in_list = (
        [each._replace(line=0, end=0) for each in read_notes(f"# Lessons\n\n{page}", "lessons.md")]
        for page in (table, marked)
    )
    assert in_table == in_list
    assert [each.text for each in in_table] == ["use pnpm, not use npm", "`git add -p`, not `git add .`"]


@pytest.mark.parametrize("rule", ["Never push directly to main.", "You MUST run the linter before each commit."])
@pytest.mark.parametrize("below", ["", "- Always use pnpm in this repository\n"])
def test_a_paragraph_that_binds_is_a_lesson_of_a_page_of_instructions_whatever_is_below_it(rule, below):
    found = [each.text for each in read_notes(f"# Guidelines\n\n{rule}\n\n{below}", "CLAUDE.md")]
    assert found == [rule, *filter(None, [below.strip("- \n")])]


def test_an_order_above_a_labelled_lesson_is_a_lesson_too():
    page = "# L\n\n### 2026-02-02\nNever push directly to main.\n\nLesson: always use pnpm in this repository\n"
    found = [(each.text, each.wrong) for each in read_notes(page, "lessons.md") if isinstance(each, Note)]
    assert sorted(found) == [("Never push directly to main.", ""), ("always use pnpm in this repository", "")]


@pytest.mark.parametrize(
    "page", ["- Wrong: `npm test`. Right: `pnpm test`.\n", "| Bad | Good |\n|---|---|\n| `npm test` | `pnpm test` |\n"]
)
def test_a_right_way_of_two_words_says_what_it_stands_for(page):
    (note,) = read_notes(f"# Corrections Log\n\n{page}", "lessons.md")
    assert (note.text, note.correct.rstrip(".")) == ("`pnpm test`, not `npm test`", "`pnpm test`")
