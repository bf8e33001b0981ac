"MUNIT with weights by rule, and the pictures and styles that the numbers of the published code were taken on."
import torch
from published_state import filled

from invariant_metrics.core import torch_rng
from invariant_metrics.models.colorizer import published_name
from invariant_metrics.models.munit import MUNIT, MUNITConfig, MUNITCritics, _rules, load_munit, load_munit_critics


def drawn_pictures(domain: str) -> torch.Tensor: # (2, 3, 64, 80) in [-1, 1]
    return 2*torch.rand(2, 3, 64, 80, generator=torch_rng(0, "munit", domain)) - 1


def drawn_styles(domain: str) -> torch.Tensor: # (2, 8)
    return torch.randn(2, 8, generator=torch_rng(0, "munit style", domain))


def by_rule(network) -> dict: # domain -> published name -> tensor
    state = filled({published_name(k, _rules(network.config)): tuple(v.shape) for k, v in network.state_dict().items()})
    return {domain: {k[2:]: v for k, v in state.items() if k[0] == domain} for domain in "ab"}


def loaded(size: str) -> tuple[MUNIT, MUNITCritics]:
    "Both networks through the loaders of published files."
    with torch.device("meta"): network, critics = MUNIT(MUNITConfig.of(size)), MUNITCritics(MUNITConfig.of(size))
    return load_munit(by_rule(network), size), load_munit_critics(by_rule(critics), size)
