"""``python -m fleet.hook EVENT``: the hook without the command line."""

import sys

from fleet.hook.entry import main

sys.exit(main(sys.argv[1:]))
