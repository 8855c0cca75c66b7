"""The table of log lines, and the whole line at the cursor below it."""

from operator import attrgetter

from decodescope.analyzer.tables import kinds
from decodescope.analyzer.tables.columns import Column, Table, Tone
from decodescope.analyzer.text.plain import plain_line
from decodescope.tui.commands import commands_of
from decodescope.tui.model.notices import Level, LogLine
from decodescope.tui.model.view import View
from decodescope.tui.panels.sheet import Empty, Row, Sheet, wrapped
from decodescope.tui.panels.table import TablePanel
from decodescope.tui.panels.table_rows import Rows, TableRows

_LEVELS: tuple[Level, ...] = ("info", "warning", "error")
_LEAST_TABLE_ROWS = 4
_WHOLE_SHARE = 3


class LogTablePanel(TablePanel):
    """Follows the end of the log until the cursor leaves it; filtered by level."""

    NAME = "log"
    COMMANDS = commands_of("rows", "log")
    SOURCE = ("log", "_least")

    _least = 0

    def rows(self, view: View) -> Rows | Empty:
        if not view.log:
            return Empty("Log", "nothing was logged yet")
        self._title = ("Log", "Log: warnings and errors", "Log: errors")[self._least]
        shown = [line for line in view.log if _LEVELS.index(line.level) >= self._least]
        return TableRows(Table("lines", _COLUMNS, shown, key=attrgetter("number"), search=_text))

    @property
    def _at_end(self) -> bool:
        return self._cursor >= len(self._order) - 1

    def draw(self, data: Rows, width: int, height: int) -> Sheet:
        """The table, and as many rows as the whole line needs, up to a third."""
        self._note = "" if self._at_end else "end follows"
        line = self._line_at_cursor()
        whole = wrapped(plain_line(line.text), max(width, 1)) if line is not None else []
        room = min(height // _WHOLE_SHARE, height - _LEAST_TABLE_ROWS - 1, len(whole))
        if room < 1:
            return super().draw(data, width, height)
        inks = self._brush.inks
        sheet = super().draw(data, width, height - room - 1)
        sheet.rows += [Row() for _ in range(height - room - 1 - len(sheet.rows))]
        sheet.rows.append(Row().add("\u2500" * width, inks.border))
        sheet.rows += [Row().add(piece, inks.text) for piece in whole[:room]]
        return sheet

    def action_level(self) -> None:
        self._least = (self._least + 1) % len(_LEVELS)
        self.show(self._seen)

    def action_copy_line(self) -> None:
        line = self._line_at_cursor()
        if line is not None:
            self.app.copy_to_clipboard(plain_line(f"{line.time} {_source(line)} {line.text}"))
            self.app.notify("The line is on the clipboard.")

    def _line_at_cursor(self) -> LogLine | None:
        log = self._seen.log
        return next((line for line in log if line.number == self._cursor_key), None)

    def _replace(self, rows: Rows | Empty) -> None:
        following = self._at_end and self._sorted is None and self._down
        super()._replace(rows)
        if following and isinstance(rows, Rows) and self._order:
            self._cursor = len(self._order) - 1
            self._cursor_key = rows.key(self._order[self._cursor])


def _source(line: LogLine) -> str:
    return line.code or line.source


def _text(line: LogLine) -> str:
    return f"{line.time} {line.level} {_source(line)} {line.text}"


def _one_line(line: LogLine) -> str:
    return " ".join(line.text.split())


def _tone(line: LogLine) -> Tone:
    tones: dict[Level, Tone] = {"info": "plain", "warning": "warn", "error": "bad"}
    return tones[line.level]


_COLUMNS: tuple[Column[LogLine], ...] = (
    kinds.TEXT("time", "time", sort=lambda line: line.number, priority=2, tone="dim"),
    kinds.TEXT(
        "level", "level", sort=lambda line: _LEVELS.index(line.level), priority=1, tone=_tone
    ),
    kinds.TEXT("source", "source", _source, priority=3, tone="dim"),
    kinds.NAME(
        "text",
        "text",
        text=_one_line,
        fit=lambda line, cells: _one_line(line),
        least=20,
        tone=_tone,
    ),
)
