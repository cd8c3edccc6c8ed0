"""`python -m hvd.simulate`, which is `hvd simulate`."""

import sys

from hvd.tools.simulate import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
