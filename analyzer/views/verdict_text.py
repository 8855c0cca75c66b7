"""What bounds a step, and why, as text."""

from rich.text import Text

from decodescope.analyzer.schema.report import Verdict


def verdict_text(verdict: Verdict) -> Text:
    """The verdict in bold, its reasons on lines of their own."""
    alone = verdict.bound in ("mixed", "unknown")
    text = Text(f"bound: {verdict.bound}" if alone else f"{verdict.bound}-bound", style="bold")
    return text.append("".join(f"\n  {reason}" for reason in verdict.because), style="not bold")
