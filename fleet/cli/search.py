"""Search: everything that this machine knows, in one question."""

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from fleet.cli import desk, options

if TYPE_CHECKING:
    from fleet.keep.sources import Page, Section
    from fleet.keep.workspace import Workspace
    from fleet.recall.search import Answer

EXIT_NO = 1

_HEADING = re.compile(r" {0,3}(?P<level>#{1,6})[ \t]+(?P<text>.*)", re.DOTALL)


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    # A word such as -D is a word here. One that is an option of ours needs "--" before it.
    app.command(context_settings={"ignore_unknown_options": True})(search)


def search(
    words: Annotated[
        list[str],
        typer.Argument(
            metavar="WORDS...",
            help='All of them are looked for; "in quotes" as a phrase. Put -- before a word like -n.',
        ),
    ],
    count: Annotated[int, typer.Option("-n", "--count", min=1, help="At most so many.")] = 20,
    kind: Annotated[
        list[str] | None,
        typer.Option("--kind", metavar="KIND", help="Only pattern, discovery, correction or journal. May be repeated."),
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="Retired lessons too.")] = False,
    as_json: options.Json = False,
    directory: options.Directory = "",
) -> None:
    """Search lessons, discoveries, corrections and journals."""
    from fleet.cli.progress import patient
    from fleet.keep import index, indexing
    from fleet.keep.errors import UsageError
    from fleet.recall import search as recall

    kinds = tuple(dict.fromkeys(kind or index.KINDS))
    if unknown := [name for name in kinds if name not in index.KINDS]:
        raise UsageError(f"there is no kind {unknown[0][:40]!r}; --kind takes {', '.join(index.KINDS)}")
    query = " ".join(words)
    if not recall.terms(query):
        raise UsageError("there is nothing to look for in that; give a word or a sign that can be seen")
    with desk.opened(directory) as workspace:
        with patient(workspace):
            found = indexing.answer(
                workspace,
                pages(workspace),
                lambda tables: recall.search(tables, query, kinds=kinds, everything=everything, limit=count),
            )
        _tell(found, query, count, as_json=as_json)
    if not found.hits:
        raise typer.Exit(EXIT_NO)


def _tell(found: "Answer", query: str, count: int, *, as_json: bool) -> None:
    from fleet.recall.lessons import readable
    from fleet.recall.search import render

    asked = readable(query)
    if as_json:
        desk.say_json(
            {
                "results": [
                    {
                        "kind": hit.kind,
                        "id": hit.id,
                        "text": hit.text,
                        "where": hit.where,
                        "snippet": hit.snippet,
                        "seen": hit.seen,
                        "at": hit.at,
                        "who": hit.who,
                        "retired": hit.is_gone,
                    }
                    for hit in found.hits
                ],
                "query": asked,
                "exact": not found.is_near,
                "more": found.is_more,
            }
        )
    elif found.hits:
        desk.say(render(found))
    if not found.hits:
        desk.note(
            f"nothing is known about {asked[:80]!r}. Try fewer or shorter words; --all looks at retired lessons too"
        )
    elif found.is_near and not as_json:
        desk.note(f"nothing has all of {asked[:80]!r} as it was typed; these come close")
    if found.is_more and not as_json:
        desk.note(f"there are more: -n {count * 5} shows them")


def pages(workspace: "Workspace") -> "list[Page]":
    """Return the pages of every agent here: corrections and journals. Links are left alone."""
    from fleet.keep import names
    from fleet.keep.index import CORRECTION, JOURNAL
    from fleet.keep.sources import Page
    from fleet.learn.corrections import log_file
    from fleet.learn.journal import all_of

    agents = workspace.home("")
    if agents.is_symlink() or not agents.is_dir():
        return []
    here = sorted(
        home.name for home in agents.iterdir() if names.is_agent(home.name) and home.is_dir() and not home.is_symlink()
    )
    found = [Page(log_file(workspace, agent), CORRECTION, agent, corrections_of) for agent in here]
    return found + [Page(path, JOURNAL, agent, sections_of) for agent in here for path in all_of(workspace.home(agent))]


def corrections_of(data: bytes) -> "Iterator[Section]":
    """Yield the entries of a ``corrections.md``."""
    from fleet.keep.sources import Section
    from fleet.learn.entries import parse_log

    for entry in parse_log(data).entries:
        said = (entry.pattern, entry.wrong, entry.right, entry.source, entry.category, *entry.tags)
        text = " · ".join(filter(None, said))
        yield Section(entry.line, entry.title or entry.pattern or entry.wrong or entry.right, text, entry.when)


def sections_of(data: bytes) -> "Iterator[Section]":
    """Yield the sections of a page, each with its heading; what stands above the first one has none."""
    from fleet.keep.sources import Section
    from fleet.learn import markdown

    line, level, title, body = 1, 1, "", list[str]()
    text = data.decode("utf-8-sig", "replace").replace("\r\n", "\n").replace("\r", "\n")
    for row in [*markdown.rows(text), None]:
        heading = _HEADING.fullmatch(row.text) if row is not None and row.kind == "text" else None
        if row is not None and heading is None:
            if row.kind != "comment":
                body.append(row.text)
            continue
        said = "\n".join(body).strip()
        if said or level > 1:  # a title with nothing under it is the page's own
            yield Section(line, title, said, _date(title))
        if row is not None and heading is not None:
            line, level, title, body = row.number, len(heading["level"]), heading["text"].strip(), []


def _date(title: str) -> str:
    from fleet.learn.times import WHEN

    found = WHEN.match(title)
    return found[0] if found else ""
