"""`python -m ludic_gym` is `ludic`."""

import sys

from ludic_gym.cli import main

if __name__ == "__main__":
    sys.exit(main())
