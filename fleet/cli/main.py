"""The entry point of every ``fleet`` command. Imports nothing of fleet's before it knows which face is wanted."""

import gc
import os
import signal
import sys

from fleet import YES

DISABLED = "fleet is turned off here (FLEET_DISABLED=1): nothing was read, logged or sent"
EXIT_OTHER = 6
_NEW_OBJECTS = 50_000
"""So many more than were freed are made before a search for those that only hold each other: most commands make fewer.
Python's own figure, 700, has each search all its modules several times."""


def _open_missing() -> None:
    """Open what the caller closed of input, output and errors: else the next file to be opened is taken for it."""
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
    # Ctrl-C ends this process as it ends any other, until somebody is there who can say what is kept. Where the caller
    # has it ignored, as a shell for what runs behind it, it stays so.
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    if sys.platform != "win32":  # where the caller has it ignored, the exit code of every child is lost, and reads as 0
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
    gc.freeze()  # whatever only holds itself goes with the process: else it is searched for three times more
    sys.exit(code)


def run() -> int:
    """Run the command that the process was called with; return its exit code."""
    words = sys.argv[1:]
    if sys.platform == "win32":
        print("fleet needs file locks and links that Windows does not have. Run it inside WSL", file=sys.stderr)
        return EXIT_OTHER
    # What only explains fleet is asked for by whoever wants to know what that variable is.
    explains = words[:1] in (["help"], ["--help"], ["-h"], ["--version"]) or words[1:] in (["--help"], ["-h"])
    if os.environ.get("FLEET_DISABLED", "").lower() in YES and not explains:
        print(DISABLED, file=sys.stderr)
        if "--json" in words:
            print('{"disabled":true}')
        return 0
    if os.path.expanduser("~") == "~":  # noqa: PTH111 - nothing knows of a home, as in a container: there it is this
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
