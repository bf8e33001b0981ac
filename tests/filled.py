"Weights by rule: each tensor is drawn from a stream of its own name, so another implementation with the same names gets the same numbers."
import hashlib
import math

import numpy as np


def filled(name: str, shape: tuple[int, ...], gain: float = 1.) -> np.ndarray:
    "float32; matrices and kernels shrink with what one output reads, scales lie about 1, variances above it, the rest about 0."
    stream = np.random.default_rng(int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big"))
    numbers = 2*stream.random(shape) - 1 # in [-1, 1)
    if len(shape) > 1: numbers *= gain*math.sqrt(3/reads(name, shape))
    elif name.endswith(("var", "variance")): numbers = 1 + .5*np.abs(numbers)
    elif name.endswith(("weight", "gamma")): numbers = 1 + .1*numbers
    else: numbers *= .1
    return np.asarray(numbers, np.float32)


def reads(name: str, shape: tuple[int, ...]) -> int:
    "How many numbers go into one output: Keras' kernels have the outputs last, torch's first."
    return math.prod(shape[:-1]) if name.endswith("kernel") else math.prod(shape[1:])


def ramp(*shape: int) -> np.ndarray:
    "A picture-like array in [0, 1], float32, without symmetry."
    at = np.arange(math.prod(shape), dtype=np.float64)
    return (.5 + .25*np.sin(at/7) + .25*np.sin(at*at/1e4 + 1)).reshape(shape).astype(np.float32)


def sample(values: np.ndarray, n: int = 60) -> list[float]:
    "n numbers of an array, spread evenly over it."
    flat = np.asarray(values, np.float64).ravel()
    return [float(x) for x in flat[np.linspace(0, len(flat) - 1, min(n, len(flat))).round().astype(int)]]
