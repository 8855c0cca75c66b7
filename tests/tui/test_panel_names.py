"""Panels are Textual widgets: an attribute of ours must not replace one of its own."""

import ast
from pathlib import Path

from textual.widget import Widget

from decodescope.tui import panels


def test_no_panel_replaces_an_attribute_of_a_widget() -> None:
    taken = {*vars(Widget()), *(name for name in dir(Widget) if name.startswith("_"))}
    found = {
        f"{path.name}: self.{node.attr}"
        for path in Path(panels.__file__).parent.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute)
        and isinstance(node.ctx, ast.Store)
        and isinstance(node.value, ast.Name)
        and node.value.id == "self"
        and node.attr in taken
    }
    assert not found
