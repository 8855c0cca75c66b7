"""`python -m benchmarks`: the list of everything that can be measured, from a checkout."""

import sys
from importlib import import_module
from typing import NoReturn

import rich_click as click

from decodescope.cli.ending import Ending, end_with
from decodescope.cli.group import CommandGroup

# The module of each command; its attribute `command` is imported when the command is named, because
# most commands import torch.
COMMANDS = {
    "analyzer": "benchmarks.analyzer.command",
    "kernels": "benchmarks.kernels.command",
    "block": "benchmarks.block.command",
    "gemm": "benchmarks.gemm.command",
    "allreduce": "benchmarks.allreduce.command",
    "claims": "benchmarks.claims.command",
    "compare-variants": "benchmarks.steps.compare_variants",
    "revisions": "benchmarks.steps.revisions",
    "scaling": "benchmarks.steps.scaling",
    "ranks": "benchmarks.steps.rank_scaling",
    "attention-share": "benchmarks.steps.attention_share",
    "quality": "benchmarks.quality.quality",
    "app-costs": "benchmarks.app.costs",
    "app-memory": "benchmarks.app.memory",
    "app-walk": "benchmarks.app.walk",
    "app-responsiveness": "benchmarks.app.responsiveness",
    "key-holds": "benchmarks.app.key_holds",
    "timeline-repaint": "benchmarks.app.timeline_repaint",
    "live-overhead": "benchmarks.app.live_overhead",
    "attach-cost": "benchmarks.attach.attach_cost",
    "attach-leaks": "benchmarks.attach.attach_leaks",
    "hardware-counters": "benchmarks.counters.hardware_counters",
    "gate-accuracy": "benchmarks.gate.gate_accuracy",
    "endings": "benchmarks.checks.endings.command",
    "kernel-sanitizer": "benchmarks.checks.kernel_sanitizer",
    "gpu-tests": "benchmarks.checks.gpu_tests",
    "results": "benchmarks.report.documents",
}


class _Benchmarks(CommandGroup):
    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = import_module(COMMANDS[cmd_name]).command
        return command


@click.group(
    cls=_Benchmarks,
    # Each stands for a command that is not imported yet.
    commands={name: click.Command(name) for name in COMMANDS},
    context_settings={"help_option_names": ["-h", "--help"]},
)
def benchmarks() -> None:
    """Measure decodescope and what it is compared with; each result includes its environment."""


def main() -> NoReturn:
    """Run the command of this process's arguments."""
    end_with(
        lambda: benchmarks(sys.argv[1:], "benchmarks", standalone_mode=False),
        ending=Ending(finishing="what was measured is being recorded"),
    )


if __name__ == "__main__":
    main()
