"""``fleet search``: everything that this machine knows, in one question."""

from typing import Annotated

import typer

from fleet.app import searching
from fleet.cli import output
from fleet.recall.search import Answer, render
from fleet.text.screening import readable

app = output.commands()


# A word such as -D is a word here. One that is an option of ours needs "--" before it.
@app.command("search", context_settings={"ignore_unknown_options": True})
def _search(
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
    as_json: output.Json = False,
    directory: output.Directory = "",
) -> None:
    """Search lessons, discoveries, corrections and journals."""
    query = " ".join(words)
    with output.opened(directory) as workspace:
        with output.waiting("Searching", workspace):
            found = searching.search(workspace, query, kinds=tuple(kind or ()), everything=everything, limit=count)
        _tell(found, query, count, as_json=as_json)
    if not found.hits:
        raise typer.Exit(output.EXIT_NO)


def _tell(found: Answer, query: str, count: int, *, as_json: bool) -> None:
    asked = readable(query)
    if as_json:
        results = [
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
        ]
        output.say_json({"results": results, "query": asked, "exact": not found.is_near, "more": found.is_more})
    elif found.hits:
        if found.is_near:
            output.note(f"nothing has all words of {asked[:80]!r}; nearest:")
        output.say(render(found))
    if not found.hits:
        output.note(
            f"nothing is known about {asked[:80]!r}. Try fewer or shorter words; --all looks at retired lessons too"
        )
    if found.is_more and not as_json:
        output.note(f"there are more: -n {count * 5} shows them")
