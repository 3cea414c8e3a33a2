"""The command `plot`, with one subcommand per figure. A figure is imported when it is used."""

from __future__ import annotations

import click

from hpctrip.base.text import unknown_name


class _Figures(click.Group):
    """One command per figure; an unambiguous prefix of its name is accepted, too."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        from hpctrip.figures import FIGURES

        return sorted(FIGURES)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        from hpctrip.figures import FIGURES

        matches = [name for name in FIGURES if name.startswith(cmd_name)]
        name = cmd_name if cmd_name in FIGURES else matches[0] if len(matches) == 1 else ""
        return FIGURES[name].command if name else None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write one line per figure, grouped by the files that the figure needs."""
        from hpctrip.figures import FIGURES

        for needs in dict.fromkeys(FIGURES[name].source.needs for name in sorted(FIGURES)):
            with formatter.section(f"From {needs}"):
                group = [name for name in sorted(FIGURES) if FIGURES[name].source.needs == needs]
                formatter.write_dl([(name, FIGURES[name].command.short_help or "") for name in group])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        from hpctrip.figures import FIGURES

        name = args[0]
        if self.get_command(ctx, name) is None and not name.startswith("-"):
            several = [each for each in sorted(FIGURES) if each.startswith(name)]
            hint = f"several match: {', '.join(several)}" if several else unknown_name(name, FIGURES)
            ctx.fail(f"no figure {name!r}; {hint}")
        return super().resolve_command(ctx, args)


@click.group(cls=_Figures, invoke_without_command=True, subcommand_metavar="NAME RUNS... [OPTIONS]")
@click.pass_context
def plot(ctx: click.Context) -> None:
    """Draw a figure of results files or power traces, and write its numbers as CSV."""
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())
