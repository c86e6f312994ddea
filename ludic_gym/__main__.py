"""`python -m ludic_gym` is `ludic`."""

import sys

from ludic_gym.commands.main import main

if __name__ == "__main__":
    sys.exit(main())
