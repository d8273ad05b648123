"""Every limit, by name and with its unit. Beyond one, a line is refused with its reason, never cut."""

LINE_BYTES_MAX = 64 * 1024
RECORD_BYTES_MAX = 64 * 1024 * 1024  # of one lesson with all its columns; in files it takes many lines
TEXT_BYTES_MAX = 8 * 1024
VALUE_BYTES_MAX = LINE_BYTES_MAX - 1024  # any one field fits a line under the longest id, writer and field names
TAGS_MAX = 32
DEPTH_MAX = 16
NAME_CHARS_MAX = 64
INTEGER_MAX = 2**53 - 1  # beyond it a JavaScript reader of the same line would round
PAGE_LINE_BYTES_MAX = 1024 * 1024  # of a page that people write in, such as a log; a longer line is not read
BLOCK_BYTES = 64 * 1024  # how much of a file is read at once, so that it fits the processor's cache

AHEAD_HOURS_MAX = 24
WORKAROUND_MINUTES_MIN = 15

SIGNAL_TITLE_CHARS_MAX = 80
SIGNAL_QUOTE_CHARS_MAX = 2_000
SIGNAL_COMMAND_CHARS_MAX = 500
SIGNAL_LINES_MAX = 20  # of a failed command's output, the last lines
SIGNAL_LINE_CHARS_MAX = 300
SIGNAL_WINDOW_CHARS = 8 * 1024  # of the output, screened before it is cut

PAGE_LESSONS_MAX = 500
ON_CHARS_MAX = 120
START_CHARS_MAX = 8_800  # of a session's start: an event adds two sentences, a reply has 9,000, and hosts cut at 10,000
START_REST_CHARS_MAX = 4_000  # of all but the memory
HOT_CHARS_MAX = 4_000

SHOWN_REMEMBERED_MAX = 20_000  # lessons of which the first showing is remembered
SHOWN_EXACT_DAYS = 90  # the time of each showing is kept this long; older ones become one span
SHOWN_SPANS_MAX = 50_000  # of all lessons together, 1.7 MB

SESSION_SEEN_MAX = 10  # occurrences that count for each session, where lessons are ranked
WRITER_SESSIONS_MAX = 100  # sessions of one writer that count in that ranking
BULK_MIN = 20  # removes and edits of others' lessons by one writer at once that need no person's answer
BULK_SHARE = 0.1  # the same as a share of the known lessons, if that is more
BROUGHT_MAX = 20_000  # columns for which it is noted whose file brought them

LIVE_PORT = 8377

# Limits of what is read of one clan. Files beyond them stay where they are, unread, with a warning.
SHARD_BYTES_MAX = 32 * 1024 * 1024
SHARD_LINES_MAX = 200_000
SHARD_DISCOVERIES_MAX = 20_000
SHARD_BYTES_MIN = 24  # in fewer no line fits
SHARDS_MAX = 10_000
EDITION_LINES_MAX = 2_000_000
UNREADABLE_MAX = 10_000  # invalid lines of one shard, including blank ones

LOCK_WAIT_S = 20.0
QUARANTINE_BYTES_MAX = 16 * 1024 * 1024
REFUSED_KEPT_MAX = 10_000  # refused lines, with their bytes, that one load keeps in memory; it drops the others
REFUSED_BYTES_MAX = 8 * 1024 * 1024
