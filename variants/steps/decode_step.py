"""The base class of the decode steps of all variants, and the choice of the next tokens."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec

import torch
from msgspec.structs import asdict

from decodescope.analyzer.errors import InputError, MissingRequirement, ModelError
from decodescope.analyzer.schema.report import Finding, SamplingSettings
from decodescope.kernels.sampling.reference import choose_reference
from decodescope.variants.model.loading import LoadedModel
from decodescope.variants.model.workload import DecodeWorkload
from decodescope.variants.model.workload_costs import KvBytes, weight_bytes_read
from decodescope.variants.parallel.vocabulary import Vocabulary, vocabulary_of
from decodescope.variants.steps.annotations import LayerRanges

TokenChoice = Callable[[torch.Tensor, int], torch.Tensor]


@dataclass(frozen=True, slots=True)
class CallSite:
    """One kernel call of generated code: the operator it shows as in a profile (a Triton kernel's
    own name, or like `aten::mm`), and the range path below the model, "" if not known."""

    operator: str
    path: str


class DecodeStep(ABC):
    """One built variant, ready to decode. A variant writes `_prefill`, `_advance` and `_rewind`.

    `prefill` fills the KV cache from the prompt and returns the first new ids. Each `step` feeds
    the last ids, appends one position to the cache and returns the next ids. Ids are int64 device
    tensors of shape [batch], which may be views of one buffer: a returned tensor stays unchanged
    until the next `prefill`, a `reset` to an earlier position than its own, or a `forced_step` with
    other ids in its place. `step` must not synchronise with the device: its caller paces and times
    it with events. No method changes the model's weights: other variants are scored with them.

    `position` is the KV-cache length before the next step. `weight_bytes_read` are the bytes of
    weights that one step must read (one embedding row a sequence, not the table; experts in
    expectation). `ranges` are opened around the step's parts; without them only what the variant
    opens itself is annotated. `findings` are what limits the figures of this step; they go into its
    report.
    """

    def __init__(
        self, loaded: LoadedModel, workload: DecodeWorkload, ranges: LayerRanges | None = None
    ) -> None:
        self._loaded = loaded
        self._model = loaded.model
        self._workload = workload
        self._ranges = ranges or LayerRanges(None)
        self._vocabulary = vocabulary_of(loaded.model)
        self._choose = token_choice(workload, loaded.model.device, self._vocabulary)
        self._kv_bytes = KvBytes(loaded.model.config, workload.batch, loaded.model.dtype.itemsize)
        # The ids that follow the prompt. All are kept, so that any step can be repeated.
        self._ids: list[torch.Tensor] = []
        self.findings: tuple[Finding, ...] = ()
        self.position = workload.context
        self.weight_bytes_read = weight_bytes_read(loaded.model, workload.batch)

    @abstractmethod
    def _prefill(self, ids: torch.Tensor) -> torch.Tensor:
        """Fill an empty cache from prompt `ids` [batch, context] on the model's device.

        Returns the first new ids [batch].
        """

    @abstractmethod
    def _advance(self, ids: torch.Tensor, forced: bool) -> tuple[torch.Tensor, torch.Tensor]:
        """Decode `ids` [batch] at `position`, which the base class moves on afterwards.

        Returns the next ids [batch] and the logits [batch, vocabulary], of several ranks those of
        this one's tokens. The logits are read only if the step is `forced`: `ids` are then not
        those of the last step, but the caller's.
        """

    @abstractmethod
    def _rewind(self, position: int) -> None:
        """Make the cache ready to decode at an earlier `position` since the prompt.

        Raises:
            InputError: this cache cannot go back that far.
        """

    @property
    def expert_choices(self) -> Callable[[], torch.Tensor] | None:
        """Counts how many tokens of the last step chose each expert, float32 [layers with experts,
        experts]; None where the router's logits are not kept, or there is no router."""
        return None

    @torch.no_grad()
    def prefill(self, ids: torch.Tensor) -> torch.Tensor:
        """Fill the cache from prompt `ids` [batch, context]; returns the first new ids [batch].

        Raises:
            InputError: `ids` do not have the workload's shape.
        """
        expected = (self._workload.batch, self._workload.context)
        if tuple(ids.shape) != expected:
            raise InputError(
                f"prompt of shape {list(ids.shape)}: the variant was built for batch "
                f"{expected[0]} and context {expected[1]}"
            )
        first = self._prefill(ids.to(self._model.device))
        self._ids = [first]
        self.position = self._workload.context
        return first

    def step(self) -> torch.Tensor:
        """Decode one token for every sequence; returns the next ids [batch].

        Raises:
            ModelError: there was no prefill, or the workload's positions are used up.
        """
        self._check_room()
        ids, _ = self._advance(self._ids[-1], forced=False)
        self._ids.append(ids)
        self.position += 1
        return ids

    def forced_step(self, ids: torch.Tensor) -> torch.Tensor:
        """Decode the given `ids` int64 [batch] exactly as `step` decodes the last ones.

        Appends one position; a `step` right after it feeds the ids that these logits give. Returns
        the logits [batch, vocabulary] in the model's dtype, a tensor of the caller's own.

        Raises:
            InputError: `ids` do not have the shape [batch].
            ModelError: as `step`.
        """
        if tuple(ids.shape) != (self._workload.batch,):
            raise InputError(
                f"forced ids of shape {list(ids.shape)}: the variant was built for batch "
                f"{self._workload.batch}"
            )
        self._check_room()
        # A tensor of other strides than `step` feeds would be compiled for once more.
        self._ids[-1] = ids.to(self._model.device, copy=True, memory_format=torch.contiguous_format)
        following, logits = self._advance(self._ids[-1], forced=True)
        self._ids.append(following)
        self.position += 1
        return self._vocabulary.whole(logits).to(self._model.dtype, copy=True)

    def reset(self, position: int) -> None:
        """Rewind so that the next step decodes at `position` again (prompt length or later).

        Raises:
            InputError: a position that was not reached since the prompt, or as `_rewind`.
        """
        first = self._workload.context
        if not self._ids or not first <= position <= self.position:
            raise InputError(
                f"reset to position {position}: can only go back to {first} up to {self.position}"
            )
        self._rewind(position)
        del self._ids[position - first + 1 :]
        self.position = position

    def chosen_weight_bytes(self) -> int:
        """`weight_bytes_read`, of a mixture with the experts that the last step used instead of
        those it uses in expectation, where they are known. Waits for the device."""
        return self.weight_bytes_read

    def kv_bytes_read(self, position: int) -> int:
        """Bytes of K and V that a step at cache length `position` must read."""
        return self._kv_bytes.at(position)

    def annotate_layers(self, enabled: bool) -> None:
        """Put NVTX/profiler ranges on layers, attention, MLP, norms and head, or remove them.

        Steps are timed with them off. A replayed graph has none inside: see `ungraphed`.
        """
        self._ranges.set(enabled)

    def ungraphed(self) -> "DecodeStep | None":
        """The same step without its CUDA graph; None (the default) if it replays none.

        It launches the kernels of `step` under the same names in the same order on each stream, and
        opens ranges once `annotate_layers(True)` was called. It compiles at its first step. It may
        share this step's KV cache: this step needs a prompt again before it goes on. It may raise
        any error; replays then have no paths.
        """
        return None

    def node_paths(self) -> Mapping[int, str]:
        """The range path of each named node of the step's CUDA graphs (`model/layer.0/mlp`), by its
        number in profiles (`graph node id`). Empty without graphs, or where torch names no nodes.
        """
        return {}

    def call_sites(self) -> tuple[CallSite, ...]:
        """The kernel calls of an `ungraphed` step's generated code and their paths, in their order.

        Known after the step has run; empty if its ranges are complete without them.
        """
        return ()

    def _check_room(self) -> None:
        if not self._ids:
            raise ModelError("decode step before prefill: give the prompt first")
        if self.position >= self._workload.cache_length:
            raise ModelError(
                f"decode step at position {self.position}: the KV cache was built for "
                f"{self._workload.cache_length} positions"
            )


def token_choice(
    workload: DecodeWorkload, device: torch.device, vocabulary: Vocabulary
) -> TokenChoice:
    """A function of logits [batch, vocabulary] and the position of the token that gave them; of
    several ranks each gives those of its own tokens, and gets the choice of all.

    It returns a new tensor of ids int64 [batch] and does not wait for the device. Drawn tokens
    depend on logits, position and seed alone, so a repeated step draws the same tokens.

    Raises:
        MissingRequirement: sampling on a GPU without triton.
    """
    sampling = workload.sampling
    if sampling is None:
        return lambda logits, position: vocabulary.likeliest(logits)
    if device.type == "cuda":
        draw = _kernel_choice(sampling, workload.batch, device)
    else:
        draw = partial(choose_reference, **asdict(sampling))
    return lambda logits, position: draw(vocabulary.whole(logits), position)


def _kernel_choice(sampling: SamplingSettings, batch: int, device: torch.device) -> TokenChoice:
    if find_spec("triton") is None:
        raise MissingRequirement(
            "--temperature: sampling on a GPU needs triton, which is not installed; leave it out "
            "to decode greedily"
        )
    from decodescope.kernels.sampling.sample import sample
    from decodescope.kernels.sampling.workspace import new_sampling_workspace

    workspace = new_sampling_workspace(batch, device)
    device_position = torch.zeros(1, dtype=torch.int32, device=device)
    options = asdict(sampling)

    def choice(logits: torch.Tensor, position: int) -> torch.Tensor:
        ids = torch.empty(batch, dtype=torch.int64, device=device)
        sample(logits.contiguous(), device_position.fill_(position), ids, workspace, **options)
        return ids

    return choice
