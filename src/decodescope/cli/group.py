"""Groups of commands: the default command, and the errors for a missing or an unknown name."""

import difflib

import rich_click as click

from decodescope.analyzer.errors import InputError


class CommandGroup(click.RichGroup):
    """Commands that must be named."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not args and not ctx.resilient_parsing:
            named = " or ".join(self.commands)
            raise InputError(f"{ctx.info_name}: needs a command: {named}")
        return super().parse_args(ctx, args)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] not in self.commands and not ctx.resilient_parsing:
            near = difflib.get_close_matches(args[0], self.commands, n=1)
            hint = f"did you mean {near[0]}?" if near else f"one of: {', '.join(self.commands)}"
            raise InputError(f"no command {args[0].strip() or repr(args[0])}: {hint}")
        return super().resolve_command(ctx, args)


class DefaultToLive(CommandGroup):
    """`decodescope --model M` means `decodescope live --model M`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        own_options = {"-h", "--help", "--version", "--debug"}
        if ctx.resilient_parsing and not args:
            return super().parse_args(ctx, args)
        if not args or (args[0].startswith("-") and args[0] not in own_options):
            args = ["live", *args]
        return super().parse_args(ctx, args)
