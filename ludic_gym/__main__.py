"""`python -m ludic_gym` runs `ludic`."""

import sys

from ludic_gym.commands.main import main

if __name__ == "__main__":
    sys.exit(main())
