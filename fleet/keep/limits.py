"""Every limit, by name and with its unit. Beyond one, a line is refused with its reason, never cut."""

LINE_BYTES_MAX = 64 * 1024
TEXT_BYTES_MAX = 8 * 1024
VALUE_BYTES_MAX = LINE_BYTES_MAX - 1024  # so that any one field fits a line with the longest id, at, by and when
TAGS_MAX = 32
DEPTH_MAX = 16
NAME_CHARS_MAX = 64
INTEGER_MAX = 2**53 - 1  # beyond it a JavaScript reader of the same line would round
BLOCK_BYTES = 4 * 1024 * 1024  # how much of a file is in memory at once while it is read

AHEAD_HOURS_MAX = 24
SESSION_IDLE_MINUTES = 30
WORKAROUND_MINUTES_MIN = 15

TRUST_BYTES_MIN = 1024 * 1024  # a smaller edition is read again faster than it is looked up
EDITION_ALWAYS_BYTES = 256 * 1024  # below, every sync that changes something writes both editions
EDITION_UNCOVERED_SHARE = 0.25  # above, an edition is written when this share of it is not covered

PAGE_LESSONS_MAX = 500
PAGE_COLUMNS_MAX = 120
GOSSIP_DISCOVERIES = 20
START_CHARS_MAX = 9_000
HOT_CHARS_MAX = 4_000

LOCK_WAIT_S = 20.0
QUARANTINE_BYTES_MAX = 16 * 1024 * 1024
REFUSED_KEPT_MAX = 10_000  # refused lines that one load keeps in memory, with their bytes; the others are counted
REFUSED_BYTES_MAX = 8 * 1024 * 1024
