"""`config`: where the app keeps what it remembers and the user's keys, and what is there."""

import rich_click as click

from decodescope.analyzer.errors import InputError
from decodescope.cli.group import CommandGroup
from decodescope.cli.output import print_json, say


@click.group(cls=CommandGroup)
def config() -> None:
    """Where the app keeps its settings and your keys, and what they are."""


@config.command("path")
def config_path() -> None:
    """Print the files: the app writes the first one, you write the second one."""
    from decodescope.analyzer.text.plain import plain_line
    from decodescope.tui.model.user_files import user_places

    places = user_places()
    for path in (places.state, places.keymap):
        click.echo(plain_line(str(path)))


@config.command("show")
def config_show() -> None:
    """Print what is remembered, your keys, and all actions with their keys, as JSON."""
    from decodescope.tui.app import all_actions
    from decodescope.tui.model.user_files import Memory, read_keymap, user_places

    places = user_places()
    memory = Memory(places.state)
    actions = all_actions()
    keymap, problem = {}, ""
    try:
        keymap = read_keymap(places.keymap, lambda: actions)
    except InputError as error:
        problem = str(error)
    print_json({"remembered": memory.remembered, "keymap": keymap, "keys": {**actions, **keymap}})
    for line in (memory.problem, problem):
        if line:
            say(f"decodescope: {line}")
