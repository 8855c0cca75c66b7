"""Names the ops of a graph replay by recording the same step once without its CUDA graph."""

import sys
from collections.abc import Callable
from pathlib import Path

import torch

from decodescope.analyzer import analyze, load
from decodescope.analyzer.capture.profiler_session import ProfilerSession
from decodescope.analyzer.errors import first_line
from decodescope.analyzer.io.work_folders import WorkFolder
from decodescope.analyzer.reports.reference_ops import reference_from
from decodescope.analyzer.schema.graph_reference import GraphReference
from decodescope.variants.measuring.window import Subject, capture_info, capture_window, window_plan
from decodescope.variants.steps.compiled.origin_paths import origin_paths
from decodescope.variants.steps.step import DecodeStep


def try_reference(
    step: DecodeStep,
    subject: Subject,
    prompt: torch.Tensor,
    session: ProfilerSession,
    say: Callable[[str], None],
) -> GraphReference | None:
    """The reference that attributes the graph replays of `step`; None if it replays none.

    Also None if the step without its graph cannot be compiled or run; stderr says why. `step` must
    be prefilled again afterwards.
    """
    try:
        ungraphed = step.ungraphed()
        if ungraphed is None:
            return None
        say("naming the kernels of the graph")
        return capture_reference(ungraphed, subject, prompt, session)
    except Exception as error:  # compilers raise anything, and only names are lost
        sys.stderr.write(f"kernels of the graph stay without ranges: {first_line(error)}\n")
        return None


def capture_reference(
    step: DecodeStep, subject: Subject, prompt: torch.Tensor, session: ProfilerSession
) -> GraphReference:
    """The ops of `step`, which has no graph, from `prompt` [batch, context], with their paths."""
    step.prefill(prompt)
    step.step()
    step.reset(subject.workload.context)
    plan = window_plan(subject.workload.new_tokens, 1)
    info = capture_info(subject, step, plan, None)
    with WorkFolder() as folder:
        path = Path(folder, "ungraphed.json")
        capture_window(step, plan, info, path, session, None, lambda ids: None)
        analysis = analyze(load(path))
    return reference_from(analysis, 0, origin_paths(analysis, 0, step.call_sites()))
