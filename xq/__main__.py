"""`python -m xq`: the command line."""

from xq.cli import main

main()
