"Tensors by rule: each is drawn from a stream of its published name, so another implementation with these names gets the same numbers."
import math

import torch
from torch.nn import functional as F

from invariant_metrics.core import torch_rng

FIXED = ("mean", "std", "relative_position_index", "num_batches_tracked")  # no weights: every implementation has its own


def filled(shapes: dict[str, tuple[int, ...]]) -> dict[str, torch.Tensor]:
    "Matrices shrink with what one output reads, scales lie about 1, the rest about 0; u and v belong to their kernels."
    state = {name: _drawn(name, shape) for name, shape in shapes.items() if name.split(".")[-1] not in FIXED}
    for name in [n for n in state if n.endswith("weight_orig")]:
        rows = state[name].flatten(1)
        u = torch.ones(len(rows))
        for _ in range(3):
            v = F.normalize(rows.T @ u, dim=0)
            u = F.normalize(rows @ v, dim=0)
        state |= {name.replace("_orig", "_u"): u, name.replace("_orig", "_v"): v}
    return state


def _drawn(name: str, shape: tuple[int, ...]) -> torch.Tensor:
    draw = torch_rng(0, name)
    if "color_center" in name: return torch.randint(0, 256, shape, generator=draw)
    numbers = 2*torch.rand(shape, generator=draw) - 1
    if name.endswith("running_var"): return 1 + .5*numbers
    if len(shape) == 1: return (1 if name.endswith(("weight", "gamma")) else 0) + .3*numbers
    if "embed.weight" in name or "query_feat" in name: return .3*numbers # tables, not matrices
    return numbers*math.sqrt(3/math.prod(shape[1:]))


def lightness(n: int, height: int, width: int) -> torch.Tensor: # (n, 1, height, width) in [0, 100]
    return 100*torch.rand(n, 1, height, width, generator=torch_rng(0, "lightness", n, height, width))


def sampled(values: torch.Tensor, n: int = 200) -> torch.Tensor: # (n,), spread evenly
    flat = values.detach().double().flatten()
    return flat[torch.linspace(0, len(flat) - 1, n).round().long()]


def drawn_ids(rows: int, length: int, first: int, entries: int, key: str) -> torch.Tensor: # (rows, length) of first … entries − 1
    return torch.randint(first, entries, (rows, length), generator=torch_rng(0, "ids", key))


def drawn_vectors(*shape: int, key: str) -> torch.Tensor: # about 0, of variance 1
    return torch.randn(shape, generator=torch_rng(0, "vectors", key))
