"""The entry point of every ``fleet`` command. Imports nothing of fleet's before it knows which face is wanted."""

import gc
import os
import signal
import sys

from fleet import YES

DISABLED = "fleet is turned off here (FLEET_DISABLED=1): nothing was read, logged or sent"
EXIT_OTHER = 6
_NEW_OBJECTS = 50_000
"""Threshold of the cyclic garbage collector: new objects, less those freed, before it runs. Most commands make fewer.
With Python's default, 700, each command would traverse all imported modules several times."""


def _open_missing() -> None:
    """Open stdin, stdout and stderr where the caller closed them: else the next opened file would be taken for them."""
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest number that is free: this one
    sys.stdin = sys.stdin or open(0, closefd=False, encoding="utf-8")  # noqa: SIM115 - for as long as we live
    sys.stdout = sys.stdout or open(1, "w", closefd=False, encoding="utf-8")  # noqa: SIM115
    sys.stderr = sys.stderr or open(2, "w", closefd=False, encoding="utf-8")  # noqa: SIM115


def main() -> None:
    """Run the command line and exit.

    Exit codes: 0 ok, 1 the command's own "no", 2 usage, 3 something was refused or quarantined, 4 busy, 5 remote
    unavailable, 6 any other error.
    """
    gc.set_threshold(_NEW_OBJECTS)
    # Ctrl-C ends this process without a traceback until a handler is there that can say what is kept. If the caller
    # ignores it, as a shell does for a background job, it stays ignored.
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    if sys.platform != "win32":  # if the caller ignores it, the exit code of every child is lost, and reads as 0
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    _open_missing()
    try:
        code = run()
    except BrokenPipeError:
        code = 0
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:  # its reader has gone, as in `fleet patterns | head`, or a disk is full: nobody can be told
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
    gc.freeze()  # else Python collects garbage three times more while it exits
    sys.exit(code)


def run() -> int:
    """Run the command that the process was called with; return its exit code."""
    words = sys.argv[1:]
    if sys.platform == "win32":
        print("fleet needs file locks and links that Windows does not have. Run it inside WSL", file=sys.stderr)
        return EXIT_OTHER
    # Help is shown all the same, since it explains that variable.
    explains = words[:1] in (["help"], ["--help"], ["-h"], ["--version"]) or words[1:] in (["--help"], ["-h"])
    if os.environ.get("FLEET_DISABLED", "").lower() in YES and not explains:
        print(DISABLED, file=sys.stderr)
        if "--json" in words:
            print('{"disabled":true}')
        return 0
    if os.path.expanduser("~") == "~":  # noqa: PTH111 - no home is known, as in some containers
        os.environ["HOME"] = "/"
    if words[:1] == ["hook"] and not "".join(words[1:2]).startswith("-"):
        # A host waits for its hook many times a minute: the parser alone would take longer than all of its work.
        from fleet import hook

        if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:  # a hook says in its log what became of it, and exits 0
            signal.signal(signal.SIGINT, signal.default_int_handler)
        return hook.main(words[1:])
    from fleet.cli import commands

    return commands.run(words)


if __name__ == "__main__":
    main()
