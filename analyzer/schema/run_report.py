"""The structures of measured runs: one variant's figures, and how accurate it is."""

from msgspec import Struct

from decodescope.analyzer.schema.answer import Answer
from decodescope.analyzer.schema.communication_report import CommunicationReport
from decodescope.analyzer.schema.kernel_report import StepTimes
from decodescope.analyzer.schema.report import Environment, Health, SamplingSettings, Weights
from decodescope.analyzer.schema.step_report import Bandwidth

# What is said of a variant whose kernels Triton's interpreter ran, after its name.
INTERPRETED = (
    "ran in Triton's interpreter (TRITON_INTERPRET): its tokens and accuracy are those of its "
    "kernels, its times say nothing of a GPU, so none are given"
)

# The code of the finding that a step's kernels use tiles that were not measured on its GPU.
DEFAULT_TILES = "default_tiles"


class Interval(Struct, frozen=True):
    """An interval that covers the true value with probability `confidence`;
    decodescope.analyzer.comparing.bootstrap has the method and the simulated coverage."""

    low: float
    high: float
    confidence: float


class Accuracy(Struct, frozen=True):
    """How far a variant's logits are from those of the loaded weights computed in fp32, before any
    was quantised.

    Over the scored positions: `logit_rel_error` = ||logits - reference|| / ||reference|| (Frobenius
    norms), `kl` = mean KL(reference || variant) in nats, `top1_agreement` = share of equal argmax,
    `perplexity` = exp(mean negative log-likelihood of the text's tokens), `perplexity_ratio` = that
    ÷ the reference's. `reference` says what computed the reference, `text` what was scored.

    The intervals are paired by position (decodescope.analyzer.comparing.accuracy_intervals); null
    for fewer than three positions. `positions_needed` has the figures whose interval is wider than
    what it should show: about so many positions would decide them, null if that is not known.
    `kl_by_block` are the means of `kl` over consecutive blocks of positions, of equal size within
    one position: two variants that were scored together have the same blocks.
    """

    reference: str
    text: str
    positions: int
    logit_rel_error: float
    kl: float
    top1_agreement: float
    perplexity: float
    perplexity_ratio: float
    kl_interval: Interval | None = None
    top1_agreement_interval: Interval | None = None
    perplexity_ratio_interval: Interval | None = None
    positions_needed: dict[str, int | None] = {}
    kl_by_block: tuple[float, ...] = ()


class RunWorkload(Struct, frozen=True):
    """The model and settings of a run, which the regression gate also reads from older runs."""

    schema_version: int
    model: str
    weights: Weights
    variant: str
    device: str
    device_name: str
    dtype: str
    batch: int
    context: int
    tokens: int


class RunReport(RunWorkload, frozen=True):
    """One measured variant; `msgspec.json.encode(run_report)` is `run --json`.

    tokens/s and step times come from `timed_steps` unprofiled steps; launches, ops, idle and
    `answer` from a profiled window of the same run. `sampling` is
    null for greedy decoding. Of `tp` ranks, tokens/s and tokens are those of the group, the other
    figures and `answer` those of rank 0, and `communication` says who waits for whom; with `ep`
    each rank has whole experts. `accuracy` and `round` (from 0) are set in a comparison. If the
    kernels were `interpreted` (Triton's interpreter, on the CPU), nothing was timed or profiled:
    these figures are null, empty or 0, and a finding says so.
    """

    prompt_token_ids: list[list[int]]
    output_token_ids: list[list[int]]
    output_text: str | None
    timed_steps: int
    tokens_per_s: float | None
    prefill_ns: int | None
    step_ns: StepTimes | None
    launch_calls_per_step: float | None
    gpu_ops_per_step: float | None
    gpu_idle_fraction: float | None
    bytes_per_step: int
    bandwidth: Bandwidth | None
    answer: Answer
    health: Health
    environment: Environment
    accuracy: Accuracy | None = None
    round: int | None = None
    sampling: SamplingSettings | None = None
    interpreted: bool = False
    tp: int = 1
    ep: bool = False
    communication: CommunicationReport | None = None
