"""`python -m tonnage`: the command, where its script is not on the path."""

from tonnage.cli import main

main()
