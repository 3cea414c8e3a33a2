"""`python -m hpctrip`: the command line of `app`, and the commands of the layer above it."""

from hpctrip.app.cli import cli, main
from hpctrip.study.claims.command import claims
from hpctrip.study.commands import run, study

for command in (run, study, claims):
    cli.add_command(command)

if __name__ == "__main__":
    main()
