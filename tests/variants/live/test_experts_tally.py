"""The balance of a mixture against a count by hand."""

import pytest
import torch

from decodescope.variants.live.experts_tally import ExpertsTally
from decodescope.variants.model.experts import expert_choices


def test_balance_is_that_of_the_choices_looked_at() -> None:
    generator = torch.Generator().manual_seed(5)
    logits = torch.empty(3, 4, 9)
    tally = ExpertsTally(lambda: expert_choices(logits, chosen=2))
    chosen: list[list[list[int]]] = []
    balances = []
    for _ in range(5):
        logits.normal_(generator=generator)
        balances.append(tally.look())
        order = logits.argsort(dim=-1, descending=True)[..., :2]
        chosen.append([layer.flatten().tolist() for layer in order])
    # The figures of a look come with the next one.
    assert balances[0] is None
    for steps, balance in enumerate(balances[1:], 1):
        shares = []
        for layer in range(3):
            all_choices = [expert for step in chosen[:steps] for expert in step[layer]]
            shares.append(max(map(all_choices.count, all_choices)) / len(all_choices))
        assert balance.experts == 9
        distinct = [len(set(choices)) for choices in chosen[steps - 1]]
        assert balance.distinct == pytest.approx(sum(distinct) / 3)
        assert balance.busiest_share == pytest.approx(sum(shares) / 3)
