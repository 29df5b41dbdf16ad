"""`python -m verbatim` is the program: see program.py."""
from verbatim.program import main

main()
