"""`python -m tests.golden`: put the digests of the present `NUMERIC_VERSION` on record."""

import sys

from tests.golden.digests import remake

try:
    remake()
except ValueError as error:
    sys.exit(str(error))
