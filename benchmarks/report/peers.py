"""Other projects' decode steps beside ours: the claims that race them, as one table a GPU."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from msgspec.structs import asdict

from benchmarks.claims.decode.peers import BESIDE, PEERS_1B, PEERS_8B, ours_over
from benchmarks.claims.report import ClaimResult, EntrantFigures, Race
from benchmarks.claims.table import spread_text, value_text
from benchmarks.report.claims import Recorded, Section
from benchmarks.report.comparisons import with_interval
from benchmarks.report.records import Record
from decodescope.analyzer.text.formatting import UNKNOWN, number
from decodescope.variants.tuning.report import RoundSpread

_CLAIMS = (PEERS_1B.name, PEERS_8B.name)


@dataclass(frozen=True, slots=True)
class RacedPeers:
    """The races of one GPU, the smaller model first."""

    gpu: str
    recorded: tuple[Recorded, ...]

    def rows(self) -> Iterator[list[str]]:
        """A line for each step: of one format of weights after the other, the slowest first."""
        for claim in (one.claim for one in self.recorded):
            for race in claim.races:
                model = _model(race)
                timed = [one for one in race.entrants if one.per_s is not None]
                for place, one in enumerate(sorted(timed, key=_format_then_speed)):
                    yield ["" if place else model, *_cells(claim, one)]

    @property
    def largest_model(self) -> str:
        """The last model of the table."""
        return _model(self.recorded[-1].claim.races[-1])

    def gains(self) -> Mapping[str, str]:
        """How many times as fast ours decodes the largest model as each step beside it, by name:
        the median with the range of the rounds."""
        claim = self.recorded[-1].claim
        found = {name: _gain(claim, name) for name in BESIDE}
        return {
            name: spread_text(gain, "ratio") for name, gain in found.items() if gain is not None
        }


def raced_peers(sections: Sequence[Section]) -> list[RacedPeers]:
    """What was raced on each GPU."""
    found = []
    for section in sections:
        for gpu, measured in section.measured.items():
            raced = [one for one in measured if one.claim.name in _CLAIMS and one.claim.races]
            if raced:
                found.append(RacedPeers(gpu, tuple(raced)))
    return found


def _model(race: Race) -> str:
    return race.size.partition("@")[0]


def _cells(claim: ClaimResult, one: EntrantFigures) -> list[str]:
    busy = None if one.device_ns is None else one.device_ns.median
    gain = _gain(claim, one.name)
    return [
        f"**`{one.name}`**" if one.ours else f"`{one.name}`",
        spread_text(one.per_s, "tokens_per_s").replace(" tok/s", ""),
        value_text(one.share_of_bound, "share"),
        value_text(busy, "ns"),
        number(one.launches),
        UNKNOWN if one.kl is None else with_interval(one.kl, _ends(one), "{:.2g}"),
        UNKNOWN if gain is None else f"`{BESIDE[one.name]}` {spread_text(gain, 'ratio')}",
    ]


def _ends(one: EntrantFigures) -> Record | None:
    return None if one.kl_interval is None else asdict(one.kl_interval)


def _gain(claim: ClaimResult, name: str) -> RoundSpread | None:
    """Ours ÷ the step of that name, where the claim has the ratio."""
    named = ours_over(name) if name in BESIDE else None
    row = next((row for row in claim.rows if row.what == named), None)
    return None if row is None else row.measured


def _format_then_speed(one: EntrantFigures) -> tuple[int, float]:
    assert one.per_s is not None
    return -(one.bytes_moved or 0), one.per_s.median
