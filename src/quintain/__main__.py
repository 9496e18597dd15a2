"""`python -m quintain`: the command line."""

from quintain.cli.main import app

app()
