"""The keys of the timeline."""

from decodescope.tui.commands import Command

COMMANDS = (
    Command("pan(-1)", "left,a", "Pan left", "A quarter of the visible time", "pan", 3, "←→"),
    Command("pan(1)", "right,d", "Pan right", "A quarter of the visible time"),
    Command("zoom(1)", "plus,equals_sign,w", "Zoom in", "Twice as close", "zoom", 3, "+-"),
    Command("zoom(-1)", "minus,s", "Zoom out", "Half as close"),
    Command("fit_all", "0", "Everything", "Show all time", "all", 6),
    Command(
        "fit",
        "f",
        "Fit the selection",
        "Show the selection, or the step, as large as it fits",
        "fit",
        7,
    ),
    Command("slice(-1)", "comma", "Previous in the track", "The slice before"),
    Command("slice(1)", "full_stop", "Next in the track", "The slice after"),
    Command("track(-1)", "up,k", "Track above", "Move to the track above"),
    Command("track(1)", "down,j", "Track below", "Move to the track below"),
    Command("next_gap", "g", "Next gap", "The next gap that is at least a column wide", "gap", 4),
    Command("largest_gap", "G", "Largest gap", "The largest gap, then the next in length"),
    Command("step(-1)", "less_than_sign", "Previous step", "Show the step before"),
    Command("step(1)", "greater_than_sign", "Next step", "Show the step after", "step", 5, "<>"),
    Command("measure", "m", "Measure", "From the cursor to where m is pressed again", "measure", 6),
    Command("bound(0)", "left_square_bracket", "Span starts", "The span starts at the cursor"),
    Command("bound(1)", "right_square_bracket", "Span ends", "The span ends at the cursor"),
    Command(
        "compress",
        "c",
        "Compress gaps",
        "Cut long idle gaps short, or show time as it is",
        "compress",
        5,
    ),
    Command(
        "enter", "enter", "Open", "A launch's kernel, a gap in its list, a range alone", "open", 8
    ),
    Command("find", "slash", "Search", "A name in any track", "search", 4),
    Command("next_match(1)", "n", "Next match", "Move to the next match"),
    Command("next_match(-1)", "N", "Previous match", "Move to the previous match"),
)
