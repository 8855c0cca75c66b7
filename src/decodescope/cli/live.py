"""`live`: decode in a worker process and watch it in the app."""

from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import rich_click as click

from decodescope.analyzer.errors import InputError, MissingRequirement
from decodescope.cli.app import AppOptions, app_options, last_settings, show_app
from decodescope.cli.options import (
    checkpoint_files,
    model_options,
    prompt_options,
    record_option,
    refuse_ranks,
    sampling_options,
    variant_option,
    worker_config,
)
from decodescope.cli.recording import check_recording, recording_writer
from decodescope.cli.run import measure

if TYPE_CHECKING:
    from decodescope.analyzer.protocol.messages import WorkerConfig


@click.command()
@model_options
@variant_option
@prompt_options
@sampling_options
@record_option(help="Record what the app receives.")
@app_options
def live(
    record: Path | None,
    once: bool,
    page: str | None,
    size: tuple[int, int] | None,
    **options: Any,
) -> None:
    """Decode live in a worker process and watch it in the terminal (the default)."""
    showing = AppOptions(once, page, size)
    place = showing.place()
    if place is None:
        if record is not None:
            raise InputError(
                "--record: needs a terminal; without one, add --once or use run --trace FILE"
            )
        measure(options)
        return
    from decodescope.analyzer.protocol.messages import with_settings
    from decodescope.variants.machine.environment import require_run_packages
    from decodescope.variants.measuring.request import require_utf8

    refuse_ranks("live")
    require_run_packages()
    check_recording(record, checkpoint_files(options["model"]))
    config = worker_config(options)
    if place == "terminal" and (settings := last_settings()) is not None:
        config = with_settings(config, settings)
    require_utf8(config)
    from decodescope.tui.link.recording import Recorder
    from decodescope.tui.link.worker import WorkerLink
    from decodescope.tui.model.sources import LiveSource

    worker = WorkerLink(config)
    with ExitStack() as stack:
        writer = stack.enter_context(recording_writer(record))
        recorder = Recorder(writer) if writer is not None else None
        stack.callback(worker.discard)
        with suppress(MissingRequirement):  # the app says why, and can try again
            worker.spawn()
        on_cpu = config.device == "cpu"
        shown = _asked(config) if place == "terminal" and not on_cpu else None
        source = LiveSource(worker, on_cpu, config.trust_remote_code, shown, recorder)
        show_app(source, place, showing)


def _asked(config: "WorkerConfig") -> "WorkerConfig":
    """The configuration of a GPU run of `config`, with the whole names of model and variant."""
    from msgspec import structs

    from decodescope.variants.measuring.request import DEFAULT_MODELS
    from decodescope.variants.registry import SHORT_NAMES

    variant = SHORT_NAMES.get(config.variant, config.variant)
    return structs.replace(config, variant=variant, model=config.model or DEFAULT_MODELS["cuda"])
