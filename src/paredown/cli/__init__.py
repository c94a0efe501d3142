"""The command line. A Python that is too old for it is told so here, before it reads the rest."""

import sys

from paredown.errors import InstallationError
from paredown.installation import check_python

try:
    check_python()
except InstallationError as error:
    print(f"paredown: {error}", file=sys.stderr)
    sys.exit(2)
