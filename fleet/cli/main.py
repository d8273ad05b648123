"""The entry point: every way out of a command, and its exit code."""

import atexit
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:  # what `typing` says, without its milliseconds
    from typing import NoReturn

EXIT_INTERRUPTED = 130

DISABLED = "fleet is turned off here (FLEET_DISABLED=1): nothing was read, logged or sent"


def main() -> None:
    """Run the command line and exit.

    Exit codes: 0 ok, 1 the command's own "no", 2 usage, 3 something was refused or quarantined, 4 busy, 5 remote
    unavailable, 6 any other error.
    """
    code = run()
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except BrokenPipeError:
        _let_go_of_stdout()
    _leave(code)


def _leave(code: int) -> "NoReturn":
    """Exit; as a rule without taking apart first what goes with the process: that takes as long as Python's start.

    Whoever asked to be called at the end, still runs or looks on is waited for.
    """
    is_watched = sys.getprofile() is not None or sys.gettrace() is not None
    threads = sys.modules.get("threading")
    is_alone = threads is None or threads.active_count() == 1
    if is_watched or not is_alone or getattr(atexit, "_ncallbacks", lambda: 1)():
        sys.exit(code)
    os._exit(code)


def run() -> int:
    """Run the command line; return the exit code."""
    if sys.platform == "win32":
        print("fleet needs file locks and links that Windows does not have. Run it inside WSL", file=sys.stderr)
        return 6
    if os.environ.get("FLEET_DISABLED") == "1":
        print(DISABLED, file=sys.stderr)
        return 0
    if (code := _at_once(sys.argv[1:])) is not None:
        return code
    from fleet.cli import quick
    from fleet.keep.errors import FleetError

    _speak_utf8()
    try:
        if (act := quick.call(sys.argv[1:])) is not None:
            act()
        else:
            _parse_and_run()
    except FleetError as why:
        _say(str(why))
        return why.exit_code
    except SystemExit as left:
        return left.code if isinstance(left.code, int) else 6
    except KeyboardInterrupt:
        _say("interrupted; what was acknowledged is kept")
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        _let_go_of_stdout()
        return 0
    except OSError as why:
        _say(f"{why.filename or 'a file'}: {why.strerror or why}. What was acknowledged is kept")
        return 6
    except Exception as why:  # noqa: BLE001 - the last resort: a person never sees a stack trace
        return _unexpected(why)
    return 0


def _at_once(words: list[str]) -> int | None:
    """Do what a host waits for, with the standard library alone as far as that goes; None for anything else."""
    if words[:1] == ["hook"] and not "".join(words[1:2]).startswith("-"):
        from fleet import hook

        return hook.main(words[1:])
    if words[:1] == ["start"]:
        from fleet.cli import atonce

        if (text := atonce.start(words[1:])) is not None:
            _speak_utf8()
            try:
                print(text)
            except BrokenPipeError:
                _let_go_of_stdout()
            return 0
    return None


def _parse_and_run() -> None:
    from fleet.cli.app import app

    if "_FLEET_COMPLETE" in os.environ:
        from typer._completion_classes import completion_init

        completion_init()
    app(prog_name="fleet")


def _let_go_of_stdout() -> None:
    """The reader of our output has gone, as `fleet patterns | head` does: nobody need hear of it."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _speak_utf8() -> None:
    """A C locale must not stop an emoji, or a lesson in Chinese."""
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(encoding="utf-8", errors="backslashreplace")


def _unexpected(why: Exception) -> int:
    if os.environ.get("FLEET_DEBUG") == "1":
        raise why
    _say(
        f"an error in fleet itself ({type(why).__name__}: {why}). What was acknowledged is kept; "
        "please report it with the output of the same command under FLEET_DEBUG=1"
    )
    return 6


def _say(message: str) -> None:
    from fleet.keep.screening import for_terminal, redact

    print(f"fleet: {for_terminal(redact(message))}", file=sys.stderr)


if __name__ == "__main__":
    main()
