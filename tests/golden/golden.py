"""A net under every move: what the package's commands and functions answer today, stored with full digits and compared later.

python tests/golden/golden.py --list                      names of the calls, and where each is stored
python tests/golden/golden.py --check [NAME ...]          run them and print every place that differs from the stored answer
python tests/golden/golden.py --check --relative 1e-9     the same with a tolerance, for another processor
python tests/golden/golden.py --check --signatures        differing signatures fail as well
python tests/golden/golden.py --store [NAME ...]          run them and store the answers (only where a number is meant to change)

A NAME may be the beginning of several names (`score` runs all that begin so). A call that needs the real data is left out
where INVARIANT_METRICS_DATA is unset. Each call imports inside its function: where a module moves, only that line changes.

Not stored, because it belongs to a machine and a day: times, memory, versions, folders, what is downloaded. Long arrays and
tables are stored as a digest of every bit, with some rows and with numbers that a comparison with a tolerance can use.
"""

import argparse
import hashlib
import io
import json
import math
import os
import re
import resource
import sys
import tempfile
import time
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path

for _name, _value in {"OMP_NUM_THREADS": "1", "TQDM_DISABLE": "1", "HF_HUB_OFFLINE": "1"}.items():
    os.environ.setdefault(_name, _value)

import numpy as np

HERE = Path(__file__).parent
sys.path.append(str(HERE.parent))  # for open_cells
CALLS = {}  # name -> function of a folder for its files; filled by `call`
NEEDS_DATA = set()
QUICK = set()
SINGLE = set()


def call(function=None, *, data: bool = False, quick: bool = False, single: bool = False):
    """Register a call under the name of its function. `quick` calls run with the default tests, `data` needs the real data;
    `single` ones go through networks or pictures in single precision, which other processors round more visibly.
    """

    def add(f):
        CALLS[f.__name__] = f
        if data:
            NEEDS_DATA.add(f.__name__)
        if quick:
            QUICK.add(f.__name__)
        if single:
            SINGLE.add(f.__name__)
        return f

    return add(function) if function else add


def data_folder() -> Path | None:
    root = os.environ.get("INVARIANT_METRICS_DATA")
    return Path(root).resolve() if root and Path(root).is_dir() else None


# ---------------------------------------------------------------- plain values

UNSTORED = {
    "seconds",
    "folder",
    "page",
    "version",
    "versions",
    "peak_memory_bytes",
    "cores",
    "present",
    "time",
    "modified",
    "file",
    "path",
    "key",
    "digest",
    "content",
}
LONG = 120  # values or rows that are stored in full
SHOWN = 40  # rows that are stored of a longer table


def _sha(text: str | bytes) -> str:
    return hashlib.sha256(text if isinstance(text, bytes) else text.encode()).hexdigest()[:16]


def _number(x: float):  # JSON has no infinity
    if math.isnan(x):
        return "nan"
    if math.isinf(x):
        return "inf" if x > 0 else "-inf"
    return x


def _summary(values: np.ndarray) -> dict:
    finite = values[np.isfinite(values)].astype(np.float64)
    if not len(finite):
        return {"finite": 0}
    return {
        "finite": len(finite),
        "mean": float(finite.mean()),
        "abs_mean": float(np.abs(finite).mean()),
        "min": float(finite.min()),
        "max": float(finite.max()),
    }


def plain_array(x: np.ndarray):
    "An array: its numbers where they are few, else a digest of all bits with the first numbers and their mean."
    if x.dtype.kind in "OUS" or x.size <= LONG:
        return plain(x.tolist())
    exact = np.ascontiguousarray(x)
    return {
        "sha256": _sha(exact.tobytes() + str((exact.dtype, exact.shape)).encode()),
        "dtype": str(x.dtype),
        "shape": list(x.shape),
        "first": plain(x.reshape(-1)[:8].tolist()),
        **_summary(x.reshape(-1)),
    }


def plain_table(frame) -> dict:
    "A pandas frame: all rows where they are few, else every k-th row and a digest of each column."
    frame = frame[[c for c in frame if str(c) not in UNSTORED]].reset_index(drop=True)
    step = 1 if len(frame) <= LONG else -(-len(frame) // SHOWN)
    columns = [str(c) for c in frame]
    values = [[plain(v) for v in frame[c].tolist()] for c in frame]
    found = {
        "columns": columns,
        "count": len(frame),
        "rows": [list(row) for row in list(zip(*values))[::step]],
    }
    if step > 1:
        found["every"] = step
        found["all"] = {}
        for name, column in zip(columns, values):
            about = {"sha256": _sha(json.dumps(column, default=str))}
            numbers = [v for v in column if isinstance(v, (int, float)) and not isinstance(v, bool)]
            found["all"][name] = about | (_summary(np.array(numbers, float)) if numbers else {})
    return found


def plain(x):
    "Any answer as what JSON can hold, with every bit of its floats."
    if x is None or isinstance(x, (bool, str)):
        return x
    if isinstance(x, (int, np.integer)):
        return int(x)
    if isinstance(x, (float, np.floating)):
        return _number(float(x))
    if isinstance(x, np.bool_):
        return bool(x)
    if hasattr(x, "columns") and hasattr(x, "iloc"):
        return plain_table(x)
    if hasattr(x, "detach"):
        return plain_array(x.detach().cpu().numpy())
    if isinstance(x, np.ndarray):
        return plain_array(x)
    if isinstance(x, dict):
        return {str(k): plain(v) for k, v in x.items() if str(k) not in UNSTORED}
    if isinstance(x, (set, frozenset)):
        return sorted((plain(v) for v in x), key=str)
    if isinstance(x, (list, tuple)):
        rows = [plain(v) for v in x]
        if len(rows) > LONG and all(isinstance(v, (int, float)) for v in rows):
            return plain_array(np.array(rows, float))
        if len(rows) > LONG:
            return {
                "sha256": _sha(json.dumps(rows, sort_keys=True)),
                "count": len(rows),
                "every": -(-len(rows) // SHOWN),
                "rows": rows[:: -(-len(rows) // SHOWN)],
            }
        return rows
    return str(x)


def clean(x, folder: Path):
    "Without the folders of this machine."
    if isinstance(x, dict):
        return {clean(k, folder): clean(v, folder) for k, v in x.items()}
    if isinstance(x, list):
        return [clean(v, folder) for v in x]
    if not isinstance(x, str):
        return x
    for place, word in (
        (folder, "FOLDER"),
        (folder.resolve(), "FOLDER"),
        (data_folder(), "DATA"),
        (HERE.parent.parent.resolve(), "PROJECT"),
    ):
        if place is not None:
            x = x.replace(str(place), word)
    return x


def written(x, indent: str = "") -> str:
    "JSON with sorted keys; a list of plain values stands on one line."
    if isinstance(x, dict):
        if not x:
            return "{}"
        inner = indent + " "
        return (
            "{\n"
            + ",\n".join(
                f"{inner}{json.dumps(k, ensure_ascii=False)}: {written(x[k], inner)}" for k in sorted(x)
            )
            + f"\n{indent}}}"
        )
    if isinstance(x, list) and any(isinstance(v, (dict, list)) for v in x):
        inner = indent + " "
        return "[\n" + ",\n".join(inner + written(v, inner) for v in x) + f"\n{indent}]"
    return json.dumps(x, ensure_ascii=False, allow_nan=False)


# ---------------------------------------------------------------- run, store, check


@contextmanager
def _settings(folder: Path):
    before, where = dict(os.environ), Path.cwd()
    os.environ.update(
        COLUMNS="120",
        INVARIANT_METRICS_CACHE=str(folder / "cache"),
        HF_HUB_OFFLINE="1",
        TQDM_DISABLE="1",
        OMP_NUM_THREADS="1",
    )
    import torch

    threads, state = torch.get_num_threads(), torch.get_rng_state()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    os.chdir(folder)
    try:
        yield
    finally:
        for figure in (
            sys.modules["matplotlib.pyplot"].get_fignums() if "matplotlib.pyplot" in sys.modules else ()
        ):
            sys.modules["matplotlib.pyplot"].close(figure)
        os.chdir(where)
        os.environ.clear()
        os.environ.update(before)
        torch.set_num_threads(threads)
        torch.set_rng_state(state)


def _cpu() -> float:
    return sum(
        u.ru_utime + u.ru_stime
        for u in map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    )


def answer(name: str) -> tuple[object, float]:
    "What a call answers today, as plain values, and the CPU seconds it took."
    with tempfile.TemporaryDirectory(prefix="golden") as place:
        begun = _cpu()
        with _settings(Path(place)):
            found = clean(plain(CALLS[name](Path(place))), Path(place))
        return json.loads(written(found)), _cpu() - begun


def tolerance(name: str, relative: float) -> float:
    "The same, a thousand times as much for single precision."
    return 1000 * relative if name in SINGLE else relative


def stored(name: str):
    return json.loads((HERE / f"{name}.json").read_text(encoding="utf-8"))


def is_signature(path: str, value) -> bool:
    "A signature pins what shapes a number; it may change where a word changes, the number may not."
    return isinstance(value, str) and (
        "signature" in path or "fingerprint" in path or bool(re.fullmatch(r"[\w-]+:[^|\s]*(\|[^|]*)+", value))
    )


def is_number(x) -> bool:
    return isinstance(x, (int, float)) and not isinstance(x, bool)


def compare(old, new, relative: float = 0.0, path: str = "", columns=None):
    "Every place where two answers differ: (path, stored, today, is it a signature)."
    if isinstance(old, dict) and isinstance(new, dict):
        named = (
            {"rows": old["columns"]} if "columns" in old and old.get("columns") == new.get("columns") else {}
        )
        for k in sorted({*old, *new}):
            here = f"{path}.{k}" if path else k
            if relative and k == "sha256" and ("first" in old or "mean" in old or "rows" in old):
                continue
            if k not in old:
                yield here, "(absent)", new[k], False
            elif k not in new:
                yield here, old[k], "(absent)", False
            else:
                yield from compare(old[k], new[k], relative, here, named.get(k))
        return
    if isinstance(old, list) and isinstance(new, list):
        if len(old) != len(new):
            yield f"{path} (length)", len(old), len(new), False
        for i, (a, b) in enumerate(zip(old, new)):
            if columns is not None and isinstance(a, list) and isinstance(b, list):
                for name, x, y in zip(columns, a, b):
                    yield from compare(x, y, relative, f"{path}[{i}].{name}")
            else:
                yield from compare(a, b, relative, f"{path}[{i}]")
        return
    if type(old) is type(new) and old == new:
        return
    if is_number(old) and is_number(new):
        if old == new or relative and abs(old - new) <= relative * max(abs(old), abs(new), 1e-3):
            return
    yield path, old, new, is_signature(path, old) or is_signature(path, new)


def names_like(words) -> list[str]:
    "Names of calls that are one of these words, or begin with one; all where no word is given."
    if not words:
        return list(CALLS)
    found = [n for n in CALLS if any(n == w or w not in CALLS and n.startswith(w) for w in words)]
    lost = [w for w in words if not any(n.startswith(w) for n in CALLS)]
    if lost:
        raise SystemExit(f"no call {lost[0]}; see --list")
    return found


def _short(value) -> str:
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= 110 else text[:107] + "..."


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__.splitlines()[0],
        epilog="\n".join(__doc__.splitlines()[2:]),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--store", nargs="*", metavar="NAME")
    parser.add_argument("--check", nargs="*", metavar="NAME")
    parser.add_argument("--list", action="store_true")
    parser.add_argument(
        "--relative",
        type=float,
        default=0.0,
        help="tolerance relative to the larger number, a thousand times as much for single precision; default every bit",
    )
    parser.add_argument("--signatures", action="store_true", help="differing signatures fail as well")
    parser.add_argument("--debug", action="store_true", help="stop at a failing call with its traceback")
    parser.add_argument("--most", type=int, default=25, help="differences printed for each call")
    given = parser.parse_args()
    if given.list or given.store is None and given.check is None:
        for name, f in CALLS.items():
            marks = " ".join(word for word, kept in (("quick", QUICK), ("data", NEEDS_DATA)) if name in kept)
            print(f"{name:28} {marks:10} {(f.__doc__ or '').splitlines()[0]}")
        return 0
    failed, signs, total = [], {}, 0.0
    for name in names_like(given.store if given.store is not None else given.check):
        if name in NEEDS_DATA and data_folder() is None:
            print(f"{name}: left out, INVARIANT_METRICS_DATA is unset")
            continue
        begun = time.perf_counter()
        try:
            found, cpu = answer(name)
        except Exception as error:
            if given.store is not None and given.debug:
                raise
            failed.append(name)
            print(f"{name}: FAILED, {type(error).__name__}: {error}", flush=True)
            continue
        total += cpu
        took = f"{cpu:.1f} CPU s, {time.perf_counter() - begun:.1f} s"
        if given.store is not None:
            (HERE / f"{name}.json").write_text(written(found) + "\n", encoding="utf-8")
            print(f"{name}: stored, {(HERE/f'{name}.json').stat().st_size} bytes, {took}", flush=True)
            continue
        if not (HERE / f"{name}.json").exists():
            failed.append(name)
            print(f"{name}: FAILED, nothing is stored under this name", flush=True)
            continue
        differ = list(compare(stored(name), found, tolerance(name, given.relative)))
        numbers = [d for d in differ if not d[3]]
        signs[name] = [d for d in differ if d[3]]
        print(f"{name}: {f'{len(numbers)} places differ' if numbers else 'equal'}, {took}", flush=True)
        for path, old, new, _ in numbers[: given.most]:
            print(f"    {path}\n        stored {_short(old)}\n        today  {_short(new)}")
        if len(numbers) > given.most:
            print(f"    and {len(numbers) - given.most} more")
        if numbers:
            failed.append(name)
    if given.store is not None:
        print(f"{total:.0f} CPU s")
        return 0
    changed = {name: rows for name, rows in signs.items() if rows}
    if changed:
        print(f"\nsignatures that differ: {sum(map(len, changed.values()))} in {len(changed)} calls")
        pairs = {}
        for name, rows in changed.items():
            for path, old, new, _ in rows:
                pairs.setdefault((_short(old), _short(new)), []).append(f"{name}: {path}")
        for (old, new), places in list(pairs.items())[: given.most]:
            print(
                f"    {places[0]}"
                + (f" and {len(places) - 1} more" if len(places) > 1 else "")
                + f"\n        stored {old}\n        today  {new}"
            )
    print(
        f"\n{len(failed)} calls differ or fail{': ' + ' '.join(failed) if failed else ''}; {total:.0f} CPU s"
    )
    return 1 if failed or given.signatures and changed else 0


# ---------------------------------------------------------------- commands, files


def command(*words, code: int = 0) -> str:
    "What a command prints on standard output, run in this process."
    from invariant_metrics.commands.shell import main as shell

    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        got = shell([str(w) for w in words])
    if got != code:
        raise RuntimeError(f"{' '.join(map(str, words))}: exit code {got}: {err.getvalue()[-600:]}")
    return out.getvalue() if code == 0 else err.getvalue()


def result(*words):
    "The result of a command with --json."
    return json.loads(command(*words, "--json"))["result"]


def page_numbers(path: Path) -> list[str]:
    "All numbers in the text of a page, in order, with a word before each; facts of the run (time, memory) left out."
    text = path.read_text(encoding="utf-8")
    text = re.sub(r"<(style|script|svg|footer|head)\b.*?</\1>", " ", text, flags=re.S)
    text = re.sub(r"<[^>]+>", " ", text)
    text = re.sub(r"&#?\w+;", " ", text)
    text = re.sub(r"cost\s+[\d.]+\s+times", " ", text)  # what a training step took
    text = re.sub(r"\S*/golden\S*", " ", text)  # the temporary folder, whose name may hold digits
    text = re.sub(r"[\d.]+\s+minutes", " ", text)
    kept = [
        line
        for line in text.splitlines()
        if not re.search(r"\bversions?\b|seconds|memory|\bcores?\b|torch|took|\d\s?(s|min|GB|MB)\b", line)
    ]
    return re.findall(r"[-+−]?\d+(?:[.,]\d+)*(?:e[-+]?\d+)?\s?%?", "\n".join(kept))


def run_folder(folder: Path) -> dict:
    "All numbers of a run: its tables and arrays, and those on its page."
    import pandas as pd

    found = {}
    for file in sorted(folder.rglob("*")):
        name = file.relative_to(folder).as_posix()
        if file.suffix == ".parquet":
            found[name] = pd.read_parquet(file)
        elif file.suffix == ".npz":
            with np.load(file) as held:
                found[name] = {k: _brief(held[k]) for k in held.files}
        elif file.name == "index.html":
            numbers = page_numbers(file)
            found["numbers on the page"] = {
                "count": len(numbers),
                "sha256": _sha("\n".join(numbers)),
                "rows": [" ".join(numbers[i : i + 12]) for i in range(0, min(len(numbers), 1200), 12)],
            }
    return found


def _brief(x: np.ndarray):
    return {
        "sha256": _sha(np.ascontiguousarray(x).tobytes()),
        "shape": list(x.shape),
        **(_summary(x.reshape(-1)) if x.dtype.kind in "fiub" else {}),
    }


def scene_images(folder: Path, n: int = 8, size: int = 64, seed: int = 5) -> None:
    "truth/, near/ and far/: scenes, the same a little noisy, and with colors of other scenes."
    import torch
    from PIL import Image
    from invariant_metrics.color import join_lab, split_lab
    from invariant_metrics.worlds.scenes import make_scenes

    rgb = make_scenes(n, size, seed=seed).rgb
    draw = torch.Generator().manual_seed(seed)
    near = (rgb + 0.03 * torch.randn(rgb.shape, generator=draw)).clamp(0, 1)
    L, ab = split_lab(rgb)
    far = join_lab(L, ab.roll(1, 0))
    for name, pictures in (("truth", rgb), ("near", near), ("far", far)):
        (folder / name).mkdir()
        for i, x in enumerate((255 * pictures).round().byte().movedim(1, -1).numpy()):
            Image.fromarray(x).save(folder / name / f"{i:03d}.png")


def texts_here() -> dict:
    return json.loads((HERE / "texts.json").read_text(encoding="utf-8"))


def text_files(folder: Path) -> None:
    "sysA.txt, sysB.txt, ref0.txt, ref1.txt, source.txt, and the captions as JSON by name."
    held = texts_here()
    for name in ("sysA", "sysB", "ref0", "ref1", "source"):
        (folder / f"{name}.txt").write_text("\n".join(held[name]) + "\n", encoding="utf-8")
    names = [f"i{i:02d}" for i in range(len(held["ref0"]))]
    (folder / "refs.json").write_text(
        json.dumps(
            {n: list(r) for n, r in zip(names, zip(held["ref0"], held["ref1"], held["ref2"]))},
            ensure_ascii=False,
        )
    )
    for name in ("sysA", "sysB"):
        (folder / f"{name}.json").write_text(json.dumps(dict(zip(names, held[name])), ensure_ascii=False))


def arrays(n: int = 120, m: int = 150, width: int = 8):
    "Two seeded sets of features."
    draw = np.random.default_rng(7)
    return (
        draw.standard_normal((n, width)),
        draw.standard_normal((m, width)) @ np.diag(np.linspace(0.6, 1.4, width)) + 0.25,
    )


# ---------------------------------------------------------------- what is there


@call(quick=True)
def list_metrics(folder):
    "The cards of all metrics, as `metrics` lists them."
    rows = result("metrics")
    return {r["name"]: {**r, "weights": re.sub(r" \((here|missing)\)", "", r["weights"] or "")} for r in rows}


@call(quick=True)
def list_invariants(folder):
    "The cards of all invariants that are on every machine."
    return {r["name"]: r if r["here"] else {"name": r["name"]} for r in result("invariants")}


@call(quick=True)
def list_weights(folder):
    "Networks, their sources, sizes and checksums."
    return {r["name"]: r for r in result("weights", "list")}


@call(quick=True)
def list_families(folder):
    "Names of edits, perturbations, tokenizers, encoders, formats of judgments: all registries."
    from invariant_metrics.data.judgment_tables import READERS
    from invariant_metrics.data.tokens import _tokenizer_names
    from invariant_metrics.encoders.encoder import encoders
    from invariant_metrics.edits.colors import families
    from invariant_metrics.edits.word_families import edits_of
    import invariant_metrics.edits.captions, invariant_metrics.edits.pictures, invariant_metrics.edits.world_sentences  # noqa: E401
    from invariant_metrics.data import judgments  # noqa: F401
    from invariant_metrics.models.colorizer import colorizers
    from invariant_metrics.models.generators import captioners, translators

    return {
        "encoders": sorted(encoders.names()),
        "judgments": sorted(READERS.names()),
        "tokenizers": sorted(_tokenizer_names()),
        "families": {t: sorted(families(t)) for t in ("colorization", "images", "captioning", "translation")},
        "edits": {t: sorted(edits_of(t)) for t in ("captioning", "translation", "summarization")},
        "models": {
            "colorizers": colorizers.names(),
            "translators": translators.names(),
            "captioners": captioners.names(),
        },
    }


# ---------------------------------------------------------------- score


def _score(*words):
    return result("score", *words)


@call(quick=True, single=True)
def score_images(folder):
    "Metrics of image pairs and of single images, two systems, a ranking and detectable differences."
    scene_images(folder)
    return _score(
        "psnr,psnr-pooled,ssim,ciede2000,lpips-embedded,encoder-distance,colorfulness,colorfulness-abs",
        "--pred",
        "near",
        "--pred",
        "far",
        "--target",
        "truth",
        "--reps",
        200,
    )


@call(single=True)
def score_images_large(folder):
    "Multi-scale similarity, and LPIPS and FID with untrained networks."
    import invariant_metrics as im

    scene_images(folder, 6, 192)
    found = {"ms-ssim": _score("ms-ssim", "--pred", "near", "--target", "truth", "--reps", 50)}
    for name, options in {
        "lpips-alex": {},
        "lpips-squeeze": {},
        "fid": {},
        "kid": {"subsets": 4, "size": 5},
        "inception-score": {},
    }.items():
        scores = im.score(
            "near",
            None if name == "inception-score" else "truth",
            [name],
            metric_options={"untrained": True, **options},
            reps=20,
        )
        found[name] = {k: s.to_dict() for k, s in scores.items()}
    return found


@call(quick=True, single=True)
def score_violations(folder):
    "Violations of the image invariants that come with the package."
    scene_images(folder)
    names = [
        f"violation-{n}"
        for n in (
            "segmentation",
            "segmentation-judge",
            "segmentation-random",
            "depth",
            "depth-judge",
            "depth-random",
            "edges",
        )
    ]
    return _score(",".join(names), "--pred", "near", "--pred", "far", "--target", "truth", "--reps", 100)


@call(quick=True, single=True)
def score_sets(folder):
    "Distances of sets of images by the embedded encoder."
    scene_images(folder, 36, 32)
    return _score(
        "fd,fd-inf,mmd,mmd-biased,mmd-poly,mmd-poly-biased,cmmd,cmmd-unbiased,cmmd-moments,precision,recall,density,coverage,prd-recall,prd-precision,prd-f1",
        "--pred",
        "near",
        "--pred",
        "far",
        "--target",
        "truth",
        "--encoder",
        "embedded",
        "--reps",
        60,
    )


@call(quick=True)
def score_paired(folder):
    "The interval of a difference of two systems, values per item, and an earlier score held against a later one."
    import pandas as pd

    scene_images(folder, 20, 32)
    where = ("--pred", "near", "--pred", "far", "--target", "truth", "--reps", 100)
    first = _score("psnr,ssim,fd", *where, "--paired", "--per-item", "items.parquet")
    (folder / "first.json").write_text(command("score", "psnr", *where, "--json"))
    return {
        "paired": first,
        "items": pd.read_parquet("items.parquet"),
        "against": _score("psnr", *where, "--against", "first.json")["against"],
    }


@call(quick=True)
def score_features(folder):
    "Features as .npy: every kind of interval, several levels, a permutation test."
    x, y = arrays(60, 70)
    np.save("x.npy", x), np.save("y.npy", y)
    where = ("--pred", "x.npy", "--target", "y.npy")
    found = {
        way: _score("fd,mmd,coverage", *where, "--ci", way, "--reps", 60)
        for way in ("influence", "bootstrap", "jackknife", "none")
    }
    return {
        **found,
        "permutations": _score("fd,mmd", *where, "--permutations", 60, "--seed", 3, "--confidence", 0.9),
    }


@call(quick=True, single=True)
def score_stats(folder):
    "Statistics in two shards, merged; with and without parts."
    scene_images(folder, 32, 32)
    made = [
        result("stats", "truth", "--out", f"t{i}.safetensors", "--shard", f"{i}/2", "--random-parts", 4)
        for i in (1, 2)
    ]
    made.append(result("stats", "near", "--out", "near.npz"))
    made.append(result("stats", "near", "--out", "near.safetensors", "--random-parts", 4, "--seed", 2))
    from invariant_metrics.metrics.gaussian import GaussianStats

    stats = GaussianStats.load("near.safetensors")
    with np.load("near.npz") as held:
        moments = {k: held[k] for k in held.files}
    return {
        "made": made,
        "moments": moments,
        "n": stats.n,
        "score": _score("--stats", "near.safetensors", "--target", "truth"),
        "shards": _score(
            "--stats", "t1.safetensors", "--stats", "t2.safetensors", "--target", "near.safetensors"
        ),
    }


@call(quick=True)
def score_texts(folder):
    "Metrics of n-grams, two systems, two references; paired difference."
    text_files(folder)
    names = (
        "bleu,bleu-1,bleu-2,bleu-3,bleu-4,cider-d,cider",
        "rouge-l,rouge-1-p,rouge-1-r,rouge-1-f,rouge-2-p,rouge-2-r,rouge-2-f,rouge-l-p,rouge-l-r,rouge-l-f",
        "chrf,chrf++,ter,scene-graph-p,scene-graph-r,scene-graph-f1,div-2,div-3,div-4,diversity,repetition,distinct-1,distinct-2",
    )
    return _score(
        *names,
        "--pred",
        "sysA.txt",
        "--pred",
        "sysB.txt",
        "--target",
        "ref0.txt",
        "--target",
        "ref1.txt",
        "--reps",
        100,
        "--paired",
    )


@call(quick=True)
def score_texts_options(folder):
    "The same with options: tokenizers, smoothing, lower case; JSON by name with three references; METEOR; values per item."
    import pandas as pd

    text_files(folder)
    found = {}
    for words in (
        "bleu tokenizer=intl lowercase=true",
        "bleu tokenizer=char smoothing=floor",
        "chrf word_order=2 beta=3",
        "ter normalized=true",
        "cider-d sigma=3",
        "meteor-nltk",
    ):
        name, *options = words.split()
        more = [w for o in options for w in ("--option", o)]
        found[words] = _score(
            name,
            "--pred",
            "sysA.json",
            "--target",
            "refs.json",
            "--reps",
            50,
            *more,
            "--per-item",
            "items.parquet",
        )
        found[f"{words}: items"] = pd.read_parquet("items.parquet")
    return found


@call(single=True)
def score_texts_networks(folder):
    "BERTScore, FBD and text invariants by the networks that come inside ordinary libraries."
    text_files(folder)
    where = ("--pred", "sysA.txt", "--pred", "sysB.txt", "--target", "ref0.txt")
    violations = ",".join(
        f"violation-{n}"
        for n in ("entities", "entities-random", "paraphrase", "sentiment", "sentiment-random", "scene-graph")
    )
    found = {"violations": _score(violations, *where, "--reps", 50)}
    found["networks"] = _score(
        "bertscore,bertscore-f,bertscore-p,bertscore-r,fbd,fbd-4,fbd-layers",
        *where,
        "--weights",
        "minilm",
        "--reps",
        30,
    )
    found["query"] = _score("fbd", *where, "--weights", "minilm", "--query", "ref1.txt", "--reps", 30)
    return found


@call(single=True)
def score_texts_imagined(folder):
    "IMAGINE on painted scenes: pictures by the exact generator, looked at by the embedded CLIP; references, sources, seeds, controls."
    said = [
        ("a red ball is left of a boat", "there is a boat right of a red ball"),
        ("a green car is behind a house", "a blue car is behind a house"),
        ("two yellow apples on green grass", "a council met on Tuesday"),
    ]
    for name, column in (("ref.txt", 0), ("hyp.txt", 1)):
        (folder / name).write_text("".join(f"{pair[column]}\n" for pair in said))
    metrics, few = "imagine-image,imagine-text-image", ("--option", "seeds=3", "--ci", "none")
    found = {"exact": _score(metrics, "--pred", "hyp.txt", "--target", "ref.txt", "--option", "generator=exact", *few)}
    found["noise"] = _score(metrics, "--pred", "hyp.txt", "--target", "ref.txt", "--option", "generator=noise", *few)
    free = ",".join(f"{name}-source" for name in metrics.split(","))
    found["source"] = _score(free, "--pred", "hyp.txt", "--source", "ref.txt", "--option", "generator=exact", *few)
    return found


@call(quick=True)
def score_front_door(folder):
    "`im.score` on arrays and lists, clusters, `im.ranking`, and the torchmetrics form in batches."
    import torch
    import invariant_metrics as im
    from invariant_metrics.scoring.torch_metric import TorchMetric

    draw = torch.Generator().manual_seed(0)
    target = torch.rand(24, 3, 32, 32, generator=draw)
    preds = {
        name: (target + s * torch.randn(target.shape, generator=draw)).clamp(0, 1)
        for name, s in (("mild", 0.05), ("strong", 0.2))
    }
    clusters = [i // 3 for i in range(24)]
    scores = im.score(preds, target, ["psnr", "ssim", "fd"], reps=50, clusters=clusters, encoder="mean-color")
    found = {
        "scores": {s: {m: v.to_dict() for m, v in by.items()} for s, by in scores.items()},
        "ranking": im.ranking(scores),
        "difference": scores.difference("psnr", "mild", "strong").to_dict(),
    }
    for name, how in {
        "psnr": {},
        "fd": dict(options={"encoder": "mean-color", "layer": "quarters"}, streamed=True, parts=4, seed=3),
        "violation-edges": {},
        "cmmd": dict(options={"encoder": "mean-color", "layer": "quarters"}),
    }.items():
        metric = TorchMetric(name, **how)
        for cut in (slice(0, 7), slice(7, 24)):
            metric.update(preds["mild"][cut], target[cut])
        found[f"torch {name}"] = [float(metric.compute()), metric.score().to_dict()]
    return found


# ---------------------------------------------------------------- power, statistics


@call(quick=True)
def power(folder):
    "Detectable differences and needed items, from predictions and from values per item."
    text_files(folder)
    where = ("--pred", "sysA.json", "--pred", "sysB.json", "--target", "refs.json")
    found = {
        "texts": result("power", "chrf,bleu", *where, "--wish", 1),
        "one": result("power", "rouge-l", "--pred", "sysA.json", "--target", "refs.json", "--comparisons", 5),
    }
    command("score", "chrf,rouge-l", *where, "--reps", 20, "--per-item", "items.parquet")
    found["values"] = result("power", "--values", "items.parquet", "--wish", 0.5, "--power", 0.9)
    scene_images(folder, 30, 32)
    found["sets"] = result("power", "fd,psnr", "--pred", "near", "--pred", "far", "--target", "truth")
    return found


@call(quick=True)
def statistics(folder):
    "Resampling, intervals, AUC, Holm and Benjamini-Hochberg, the signed-rank trend, Wilson, generators of chance."
    from invariant_metrics.core import rng, torch_rng
    from invariant_metrics.stats import auc, bootstrap_weights, interval, normal_interval
    from invariant_metrics.stats import benjamini_hochberg, holm
    from invariant_metrics.probes.preference import draw_sets, verdict_interval, trend
    from invariant_metrics.stats import cluster_interval, wilson
    from invariant_metrics.probes.profile import crossing, _fieller, isotonic
    import torch

    draw = rng(3, "golden", "statistics")
    x, y, w = (
        draw.standard_normal(40),
        draw.standard_normal(30) + 0.4,
        bootstrap_weights(40, 50, rng(0), clusters=np.arange(40) // 4),
    )
    replicates = (w @ x) / w.sum(1)
    p = [0.001, 0.04, 0.03, 0.2, 0.0005]
    return {
        "draw": x[:5],
        "torch": torch.rand(4, generator=torch_rng(1, "a")),
        "weights": w,
        "auc": [auc(y, x), auc(np.round(y), np.round(x))],
        "intervals": [
            [i.low, i.high]
            for i in (
                interval(x.mean(), replicates),
                normal_interval(0.1, 0.2),
                normal_interval(0.1, 0.2, 0.9, df=7),
            )
        ],
        "holm": holm(p),
        "fdr": benjamini_hochberg(p),
        "wilson": wilson(0.3, 20),
        "cluster": cluster_interval(x[:10], w[:, ::4]),
        "items": verdict_interval((x > 0).astype(float)),
        "sets": draw_sets(np.arange(40) // 4, 5, rng(1)),
        "trend": trend(x.reshape(8, 5)),
        "isotonic": isotonic(x.reshape(8, 5)),
        "crossing": crossing(np.arange(5.0), x.reshape(8, 5)),
        "fieller": _fieller(1.0, 2.0, np.array([[0.1, 0.02], [0.02, 0.1]])),
    }


@call(quick=True)
def correlations(folder):
    "Kendall in all forms, Pearson, Spearman, calibrated accuracy, raters, agreement with intervals and clusters of ties."
    from invariant_metrics.core import rng
    from invariant_metrics.people.agreement import agreement, compare
    from invariant_metrics.people.calibrated import calibrated_accuracy, logistic_pearson
    from invariant_metrics.people.correlation import pearson, spearman
    from invariant_metrics.people.statistics import (
        kendall_b,
        _kendall_c,
        _soft_pairwise_accuracy,
        _tau23,
        wmt_like,
    )
    from invariant_metrics.people.raters import _held_out_agreement, krippendorff, _noise_ceiling

    draw = rng(4, "golden", "correlations")
    x = draw.integers(0, 5, 60).astype(float)
    y = x + draw.standard_normal(60)
    z = y.round() + draw.standard_normal(60)
    groups = np.arange(60) // 6
    found = {
        "pairs": [f(x, y) for f in (pearson, spearman, kendall_b, _kendall_c, _tau23)] + [wmt_like(20 * x, y)],
        "calibrated": calibrated_accuracy(x, y, groups).value,
        "logistic": logistic_pearson(x, y).value,
    }
    Y = np.stack([y, z, draw.standard_normal(60)])
    found["agreement"] = {
        s: agreement(x, Y, s, reps=60, names=("y", "z", "chance"), seed=1).table()
        for s in ("pearson", "spearman", "tau_b", "tau_c", "tau_23")
    }
    systems = np.tile(np.arange(6), 10)
    found["compare"] = compare(
        x, Y, "pearson", "items", "within-item", item=groups, system=systems, names=("y", "z", "chance"), reps=60
    ).frame
    found["soft"] = _soft_pairwise_accuracy(x.reshape(10, 6), y.reshape(10, 6), permutations=50)
    ratings = x[:30, None] + draw.integers(-1, 2, (30, 4))
    found["raters"] = {
        "krippendorff": krippendorff(ratings, reps=40).to_dict(),
        "ceiling": {k: v.to_dict() for k, v in _noise_ceiling(ratings, reps=40).items()},
        "held out": _held_out_agreement(ratings, reps=20, turns=3).to_dict(),
    }
    return found


@call(quick=True)
def agree_table(folder):
    "Own tables of judgments and scores, three units, two populations; the tables that --out keeps."
    import pandas as pd
    from invariant_metrics.core import rng

    draw = rng(0, "judged")
    truth = np.linspace(0, 2, 5)[None] + draw.standard_normal((20, 1)) + 0.5 * draw.standard_normal((20, 5))
    items, systems = (x.ravel() for x in np.indices(truth.shape))
    rows = pd.DataFrame({"item": [f"i{i:02d}" for i in items], "system": [f"s{s}" for s in systems]})
    pd.concat(
        [
            rows.assign(
                rater=f"r{r}", score=(truth + 0.5 * draw.standard_normal(truth.shape)).ravel().round(2)
            )
            for r in range(3)
        ]
    ).to_csv("people.csv", index=False)
    rows.assign(
        good=truth.ravel() + 0.3 * draw.standard_normal(truth.size), random=draw.standard_normal(truth.size)
    ).to_csv("scores.csv", index=False)
    ask = lambda *words: result("agree", "people.csv", "--metrics", "scores.csv", "--reps", 60, *words)
    return {
        "item": ask("--statistic", "pearson,tau-b", "--out", "run"),
        "kept": run_folder(folder / "run"),
        "system": ask("--unit", "system", "--generalize", "both"),
        "grouped": ask("--unit", "within-item", "--statistic", "pearson"),
    }


@call(data=True)
def agree_flickr8k(folder):
    "Flickr8k-Expert beside n-gram metrics and what came with the data."
    return result(
        "agree",
        data_folder() / "flickr8k_expert",
        "--metrics",
        "bleu-1,rouge-l,METEOR",
        "--statistic",
        "tau-c",
        "--ratings",
        "each",
        "--reps",
        30,
    )


@call(data=True)
def agree_translation(folder):
    "TED MQM by systems and within segments; WMT17 segments and systems."
    wmt = data_folder() / "wmt"
    return {
        "systems": result(
            "agree",
            wmt / "ted2021_ende_mqm.jsonl.gz",
            "--metrics",
            "bleu,chrf,ter",
            "--unit",
            "system",
            "--generalize",
            "systems",
            "--reps",
            100,
        ),
        "grouped": result(
            "agree",
            wmt / "ted2021_ende_mqm.jsonl.gz",
            "--metrics",
            "chrf",
            "--unit",
            "within-item",
            "--generalize",
            "both",
            "--reps",
            20,
        ),
        "segments": result(
            "agree",
            wmt / "newstest2017_deen_seg_da.jsonl",
            "--metrics",
            "sentBLEU,chrf",
            "--statistic",
            "pearson",
            "--reps",
            100,
        ),
    }


@call(data=True)
def agree_summaries(folder):
    "SummEval and REALSumm."
    place = data_folder() / "summarization"
    return {
        "summeval": result(
            "agree",
            place / "summeval_thumb.jsonl.gz",
            "--metrics",
            "chrf,rouge-2-f",
            "--unit",
            "within-item",
            "--statistic",
            "tau-b",
            "--reps",
            30,
        ),
        "realsumm": result(
            "agree",
            place / "realsumm_outputs.jsonl.gz",
            "--unit",
            "system",
            "--generalize",
            "systems",
            "--reps",
            100,
        ),
    }


@call(data=True)
def agree_images(folder):
    "TID2013: metrics of pairs on distorted pictures; realism of faces as people judged it, read."
    from invariant_metrics.data.judgments import load_judgments

    found = {}
    for name in ("imagenet256_participants.csv", "ffhq_per_image.csv.gz"):
        try:
            judged = load_judgments(data_folder() / "human_realism" / name)
        except Exception as error:
            found[name] = type(error).__name__
        else:
            found[name] = {"text": str(judged), "scores": judged.scores}
    place = data_folder() / "tid2013_calibration"
    found["tid"] = _score(
        "psnr,ssim,ciede2000",
        "--pred",
        place / "dist_dir",
        "--target",
        place / "ref_dir",
        "--intersect",
        "--reps",
        50,
    )
    return found


# ---------------------------------------------------------------- styles, labeling


@call(quick=True)
def styles(folder):
    "Distances of styles beside simulated people: correlations, intervals in three forms, layer differences."
    import torch
    from invariant_metrics.core import rng
    from invariant_metrics.people.assign import assign
    from invariant_metrics.people.styles import style_agreement, table_one
    from open_cells import open_cells

    names, inputs, g = [f"s{k}" for k in range(6)], [f"i{k:02d}" for k in range(15)], rng(0, "study")
    x = g.standard_normal((15, 5)) + 0.2 * g.standard_normal((6, 15, 5)) + np.linspace(0, 2, 6)[:, None, None]
    plan = assign(inputs, names, 12, 15, seed=0)
    sys.path.insert(0, str(HERE.parents[1] / "benchmarks"))
    from styles import simulate_labels

    labels = simulate_labels(plan, dict(zip(names, 1 / (1 + np.exp(-np.linspace(2, -2, 6))))), seed=0)
    features = {
        "a": (torch.from_numpy(x), torch.from_numpy(g.standard_normal((30, 5)))),
        "b": (torch.from_numpy(x[..., :3]), torch.from_numpy(g.standard_normal((30, 3)))),
    }
    found = style_agreement(features, labels, names, inputs, reps=60, new_styles=True)
    return {
        "plan": plan,
        "labels": labels["label"].tolist(),
        "table": found.table,
        "signature": str(found.signature),
        "one": {form: table_one(found, form).reset_index() for form in ("percentile", "normal", "corrected")},
        "layers": open_cells("people/160_styles").layer_differences(found),
    }


@call(single=True)
def styles_command(folder):
    "The study of styles on folders of pictures, with the embedded encoder."
    from invariant_metrics.people.styles import style_study
    import pandas as pd
    import torch
    from PIL import Image
    from invariant_metrics.core import rng
    from invariant_metrics.worlds.scenes import make_scenes

    rgb, draw, rows = make_scenes(14, 32, seed=2).rgb, torch.Generator().manual_seed(1), []
    save = lambda x, place: (
        place.parent.mkdir(parents=True, exist_ok=True),
        Image.fromarray((255 * x.clamp(0, 1)).byte().movedim(0, -1).numpy()).save(place),
    )
    for i in range(14):
        save(rgb[i], folder / "real" / f"p{i}.png")
    for k in range(4):
        for i in range(8):
            save(
                rgb[i] + 0.12 * k * torch.randn(rgb[i].shape, generator=draw),
                folder / "made" / f"s{k}" / f"i{i}.png",
            )
            rows += [
                {
                    "evaluator": f"e{e}",
                    "input": f"i{i}",
                    "style": f"s{k}",
                    "label": int(rng(0, e, i, k).random() > 0.2 + 0.15 * k),
                }
                for e in range(4)
            ]
    pd.DataFrame(rows).to_csv("labels.csv", index=False)
    found = style_study("made", "real", "labels.csv", encoder="embedded", reps=50)
    return {"table": found.table, "hype": found.hype, "signature": str(found.signature)}


@call(quick=True)
def labeling(folder):
    "A labeling page: who gets what; answers read, raters kept and dropped, HYPE, agreement of labels with a metric."
    import pandas as pd
    from invariant_metrics.people.labels import answer_sheet, write_answers

    things, places = ["dog", "cat", "horse", "child", "boat"], [
        "the beach",
        "a street",
        "the grass",
        "a wall",
    ]
    rows = [
        dict(item=f"{t}-{p}", system=s, output=f"a {t} near {p}" if s == "A" else f"{t} {t} {p}")
        for t in things
        for p in places
        for s in "AB"
    ]
    pd.DataFrame(rows).to_csv("items.csv", index=False)
    pd.DataFrame(
        [
            dict(item=r["item"], system=r["system"], words=len(r["output"].split()) + 0.01 * len(r["output"]))
            for r in rows
        ]
    ).to_csv("scores.csv", index=False)
    found = {}
    for task, more in {
        "likert": ("--aspect", "fluency=Does it read well?"),
        "choice": (),
        "failures": ("--aspect", "size", "--aspect", "color"),
    }.items():
        made = result(
            "agree",
            "collect",
            "items.csv",
            "--task",
            task,
            *more,
            "--out",
            f"{task}.html",
            "--evaluators",
            5,
            "--per-evaluator",
            20,
            "--tutorial",
            0,
            "--seed",
            2,
        )
        answers = folder / task
        answers.mkdir()
        key = json.loads(Path(f"{task}.html.key.json").read_text())
        found[task] = {
            "counts": made["counts"],
            "notes": made["notes"],
            "entries": {c: [e.get("item"), e.get("system")] for c, e in key["entries"].items()},
            "sheets": [],
        }
        for k in range(5):
            sheet = answer_sheet(f"{task}.html", str(k + 1), f"rater {k}")
            found[task]["sheets"].append(list(sheet["item"]))
            good = [key["entries"][c].get("system") == "A" for c in sheet["item"]]
            said = {
                "choice": ["first" if (i + k) % 3 else "second" for i in range(len(sheet))],
                "failures": ["0" if g else "1" for g in good],
            }
            likert = [4 + (i + k) % 2 if g else 1 + (i + k) % 2 for i, g in enumerate(good)]
            write_answers(
                sheet.assign(answer=said.get(task, likert), seconds=0.1 if k == 4 else 3.0),
                answers / f"{k}.csv",
            )
        more = (
            ()
            if task == "choice"
            else ("--out", f"{task}.csv", "--aspect", {"likert": "fluency", "failures": "size"}[task])
        )
        found[task]["labels"] = result("agree", "labels", task, "--page", f"{task}.html", *more)
    found["agree"] = result(
        "agree",
        "likert",
        "--page",
        "likert.html",
        "--metrics",
        "scores.csv",
        "--statistic",
        "pearson",
        "--reps",
        40,
        "--intersect",
    )
    return found


@call(quick=True)
def labeling_realism(folder):
    "Real and generated pictures, with attention checks: counts, answers, HYPE error rates."
    from invariant_metrics.people.labels import answer_sheet, write_answers

    scene_images(folder, 16, 32)
    Path("pictures").mkdir()
    (folder / "truth").rename(folder / "pictures" / "real"), (folder / "far").rename(
        folder / "pictures" / "generated"
    )
    made = result(
        "agree",
        "collect",
        "pictures",
        "--task",
        "realism",
        "--out",
        "page.html",
        "--evaluators",
        4,
        "--per-evaluator",
        12,
        "--tutorial",
        2,
        "--attention",
        2,
    )
    key = json.loads(Path("page.html.key.json").read_text())
    Path("answers").mkdir()
    for k in range(4):
        sheet = answer_sheet("page.html", str(k + 1), f"rater {k}")
        real = [
            "real" in json.dumps(key["entries"][c]) and "generated" not in json.dumps(key["entries"][c])
            for c in sheet["item"]
        ]
        write_answers(
            sheet.assign(
                answer=["real" if r or (i + k) % 4 == 0 else "generated" for i, r in enumerate(real)],
                seconds=2.0,
            ),
            f"answers/{k}.csv",
        )
    return {
        "counts": made["counts"],
        "notes": made["notes"],
        "labels": result("agree", "labels", "answers", "--page", "page.html"),
    }


# ---------------------------------------------------------------- worlds and data


@call(quick=True)
def world_scenes(folder):
    "Scenes, their text, captions and truths; recolored and wrong colors; the oracle."
    from invariant_metrics.core import rng
    from invariant_metrics.worlds.scene_captions import caption_truth, judge_captions, relation_captions
    from invariant_metrics.worlds.scene_text import captions, scene_graph
    from invariant_metrics.worlds.scenes import make_scenes, oracle_violation, recolored, wrong_color

    s = make_scenes(6, 48, seed=11, start=3)
    texts = [relation_captions(s, i) for i in range(6)]
    return {
        "rgb": s.rgb,
        "depth": s.depth,
        "segmentation": s.segmentation,
        "instances": s.instances,
        "captions": [captions(s, i) for i in range(6)],
        "relations": texts,
        "graphs": [[str(t) for t in scene_graph(s, i)] for i in range(6)],
        "judged": judge_captions([t[0] for t in texts], [caption_truth(s, (i + 1) % 6) for i in range(6)]),
        "recolored": recolored(s, rng(1)).rgb,
        "wrong": wrong_color(s, rng(2)),
        "oracle": oracle_violation(s, wrong_color(s, rng(2))),
    }


@call(quick=True)
def world_sentences(folder):
    "The bilingual grammar: sentences, right answers, what is kept in wrong ones, tags, names never seen."
    from invariant_metrics.worlds.bilingual import (
        make_sentences,
        preserved,
        right_answers,
        tagged,
        world_words,
    )

    made, other = make_sentences(12, seed=4), make_sentences(12, seed=5, names="all")
    return {
        "source": made.source,
        "english": made.english,
        "other": other.english,
        "right": [sorted(right_answers(m))[:6] for m in made.meanings],
        "counts": [len(right_answers(m)) for m in made.meanings],
        "preserved": preserved(other.english, made.meanings),
        "tagged": tagged(made)[:4],
        "words": {
            language: [len(world_words(language)), _sha(" ".join(world_words(language)))]
            for language in ("en", "de")
        },
    }


@call(quick=True)
def words(folder):
    "Tokenizers, WordNet, lemmas and tags of words."
    from invariant_metrics.data.tokens import get_tokenizer, _tokenizer_names
    from invariant_metrics.data.wordnet import wordnet
    from invariant_metrics.invariants.caption_words import (
        kind_of,
        noun_lemma,
        verb_lemma,
        word_tags,
        words_of,
    )

    texts = [
        *texts_here()["ref0"][:3],
        *texts_here()["source"][:2],
        "Mr. O'Neill's $3.88 \"state-of-the-art\" dogs can't (won't) run; 3.5% did...",
    ]
    found = {}
    for name in _tokenizer_names():
        try:
            found[name] = [list(get_tokenizer(name)(t)) for t in texts]
        except Exception as error:
            found[name] = type(error).__name__
    wn = wordnet()
    forms = ["dogs", "running", "children", "better", "boats", "sat", "mice"]
    return {
        "tokens": found,
        "synsets": {w: wn.synsets(w) for w in forms},
        "morphy": {w: [wn.morphy(w, p) for p in "nvar"] for w in forms},
        "antonyms": {w: wn.antonyms(w) for w in ("hot", "good", "large", "always")},
        "up": wn.hypernyms(wn.synsets("dog", "n")[0]),
        "similar": wn.path_similarity(wn.synsets("dog", "n")[0], wn.synsets("cat", "n")[0]),
        "lemmas": {w: [noun_lemma(w), verb_lemma(w), word_tags(w), kind_of(w)] for w in forms},
        "words": [words_of(t) for t in texts[:3]],
    }


@call(quick=True)
def pictures(folder):
    "Colors there and back, the packaged photographs in tiles, regions, damage to scenes by every family."
    import torch
    from invariant_metrics.core import rng
    from invariant_metrics.color import lab_to_rgb, rgb_to_lab, scale_chroma
    from invariant_metrics.data.photos import packaged_photos, split_photos, cut_tiles

    photos = packaged_photos()
    draw = torch.rand(2, 3, 8, 8, generator=torch.Generator().manual_seed(1))
    t = cut_tiles(photos[:3], 32, 4, seed=1)
    return {
        "lab": rgb_to_lab(draw),
        "back": lab_to_rgb(rgb_to_lab(draw)),
        "chroma": scale_chroma(draw, 0.5),
        "photos": [[p.name, p.cluster] for p in photos],
        "split": {
            k: [p.name for p in v]
            for k, v in split_photos(photos, {"train": 0.6, "test": 0.4}, seed=1).items()
        },
        "tiles": {
            "rgb": t.rgb,
            "regions": t.regions,
            "weight": t.weight,
            "names": t.names,
            "ledger": t.ledger,
            "signature": str(t.signature),
        },
    }


@call(single=True)
def edits_pictures(folder):
    "Every family of damage on scenes: digests of the pictures and which pictures it applies to."
    import torch
    from invariant_metrics.core import rng
    from invariant_metrics.edits.colors import Items, at_strength, families, perturbations
    from invariant_metrics.worlds.scenes import make_scenes
    import invariant_metrics.edits.pictures  # noqa: F401

    scenes = make_scenes(44, 64, seed=90_003)
    part, found = Items(scenes.rgb, scenes.instances, np.arange(len(scenes)), scenes)[slice(0, 6)], {}
    for name in sorted({*families("colorization"), *families("images")}):
        dose, applies = perturbations[name](part, rng(0, "golden", name))
        found[name] = {
            "applies": applies,
            "pictures": [at_strength(part, dose, torch.full((len(part),), s)) for s in (0.3, 1.0)],
        }
    return found


@call(quick=True)
def edits_texts(folder):
    "Every edit of sentences and captions of the worlds, and every edit of any English text, at three levels."
    from invariant_metrics.core import rng
    from invariant_metrics.edits.captions import caption_items
    from invariant_metrics.edits.colors import families, perturbations
    from invariant_metrics.edits.world_sentences import sentence_items
    from invariant_metrics.edits.word_families import edits_of
    from invariant_metrics.edits.word_edits import TextCase, word_edits

    found = {"worlds": {}, "words": {}}
    for task, items in (("translation", sentence_items(5, 1)), ("captioning", caption_items(5, 1))):
        for name in [n for n in families(task) if perturbations[n].kind != "valid"]:
            dose, applies = perturbations[name](items, rng(0, "golden", name))
            found["worlds"][f"{task} {name}"] = [
                [None if f is None else [f.of_reference, f.of_valid, f.proved] for f in dose(level)]
                for level in (1, 2)
            ]
    held = texts_here()
    for task in ("captioning", "translation", "summarization"):
        for name in edits_of(task):
            if name in found["words"]:
                continue
            cases = [
                TextCase(
                    held["ref0"][i],
                    (held["ref1"][i], held["ref2"][i]),
                    held["source"][i],
                    (held["ref0"][i - 1],),
                )
                for i in range(16)
            ]
            got = [
                word_edits[name](case, level, rng(0, "golden", name, i))
                for i, case in enumerate(cases)
                for level in (1, 3)
            ]
            texts = [None if e is None else [e.text, e.proved] for e in got]
            found["words"][name] = {
                "applies": sum(t is not None for t in texts),
                "sha256": _sha(json.dumps(texts)),
                "rows": [t for t in texts if t is not None][:5],
            }
    return found


# ---------------------------------------------------------------- encoders, invariants, the mathematics of metrics


@call(single=True)
def encoders(folder):
    "Features of all layers: the embedded encoder, mean colors, untrained Inception, the grid, and texts by MiniLM."
    import torch
    from invariant_metrics.worlds.scenes import make_scenes
    from invariant_metrics.encoders.encoder import get_encoder
    from invariant_metrics.encoders.grid import grid_features
    from invariant_metrics.encoders.text_encoder import bert

    rgb, found = make_scenes(4, 48, seed=9).rgb, {}
    for name, options in {"embedded": {}, "mean-color": {}, "inception": {"untrained": True}}.items():
        net = get_encoder(name, **options)
        with torch.no_grad():
            found[name] = {
                "layers": {layer: net.encode(rgb, layer) for layer in net.layers},
                "describe": {k: str(v) for k, v in net.describe(None).items()},
            }
    found["grid"] = grid_features(get_encoder("embedded"), rgb)
    texts, net = texts_here()["ref0"][:5], bert("minilm")
    with torch.no_grad():
        found["minilm"] = {
            "layers": {layer: net.encode(texts, layer) for layer in net.layers[-3:]},
            "names": list(net.layers),
        }
        found["pairs"] = net.encode(list(zip(texts, texts_here()["ref1"])))
    return found


@call(quick=True, single=True)
def invariants_images(folder):
    "Loss, violation and gradient of each image invariant; epsilon of three."
    import torch
    from invariant_metrics.worlds.scenes import make_scenes
    from invariant_metrics.invariants.invariant import get_invariant, scene_epsilon

    truth, found = make_scenes(4, 48, seed=21).rgb, {}
    for name in (
        "segmentation",
        "segmentation-judge",
        "segmentation-random",
        "depth",
        "depth-judge",
        "depth-random",
        "edges",
    ):
        g = get_invariant(name)
        pred = (0.8 * truth + 0.2 * truth.roll(1, 0)).requires_grad_()
        loss = g.loss(pred, truth)
        loss.sum().backward()
        found[name] = {
            "loss": loss,
            "violation": g.violation(pred.detach(), truth),
            "gradient": pred.grad,
            "value": g.value(truth),
            "signature": str(g.signature),
        }
    found["epsilon"] = {
        name: {k: e.to_dict() for k, e in scene_epsilon(get_invariant(name), n=16).items()}
        for name in ("edges", "segmentation", "depth")
    }
    return found


@call(single=True)
def invariants_texts(folder):
    "Loss on soft texts with its gradient, violation of plain ones, for each text invariant."
    import torch
    from invariant_metrics.worlds.bilingual import make_sentences
    from invariant_metrics.words import split_words
    from invariant_metrics.invariants.invariant import get_invariant
    from invariant_metrics.invariants.soft_text import SoftTexts

    made = make_sentences(5, seed=4)
    rows = [split_words(t) for t in made.english]
    words = ("",) + tuple(sorted({w for r in rows for w in r}))
    length, found = max(map(len, rows)), {}
    ids = torch.tensor([[words.index(w) for w in r] + [0] * (length - len(r)) for r in rows])
    truth = SoftTexts(torch.nn.functional.one_hot(ids, len(words)).float(), ids > 0)
    logits = 3 * truth.probs + torch.randn(truth.probs.shape, generator=torch.Generator().manual_seed(0))
    for name in ("entities", "entities-random", "sentiment", "sentiment-random", "paraphrase"):
        g, free = get_invariant(name), logits.clone().requires_grad_()
        loss = g.bind(words).loss(SoftTexts(free.softmax(-1), truth.mask), truth)
        loss.sum().backward()
        found[name] = {
            "loss": loss,
            "gradient": free.grad,
            "violation": g.violation(made.english[::-1], made.english),
            "signature": str(g.signature),
            "nearest": g.violation(made.english[::-1], [list(r) for r in made.references]),
        }
    g = get_invariant("scene-graph")
    found["scene-graph"] = g.violation(
        texts_here()["sysB"], [list(r) for r in zip(texts_here()["ref0"], texts_here()["ref1"])]
    )
    return found


@call(quick=True)
def scene_graphs(folder):
    "Parses of captions, their tuples, and F1 with and without synonyms."
    from invariant_metrics.invariants.scene_graph import _graph_difference, parse, tuples
    from invariant_metrics.metrics.scene_graph_match import scene_graph_f1, scene_graph_rows

    held = texts_here()
    graphs = [parse(t) for t in held["ref0"]]
    refs = list(zip(held["ref0"], held["ref1"]))
    return {
        "graphs": [str(g) for g in graphs],
        "tuples": [sorted(map(list, tuples(g))) for g in graphs],
        "rows": scene_graph_rows(held["sysA"], refs),
        "f1": scene_graph_f1(held["sysB"], refs),
        "synonyms": scene_graph_f1(held["sysB"], refs, synonyms=True),
        "difference": [_graph_difference(a, parse(t), attributes=True) for a, t in zip(graphs, held["sysB"])],
    }


@call(quick=True)
def frechet(folder):
    "Gaussian statistics in shards, Fréchet distance by every route, intervals, the line to infinity."
    import torch
    from invariant_metrics.metrics.frechet import frechet_distance, frechet_replicates, frechet_terms
    from invariant_metrics.metrics.frechet_interval import (
        frechet_estimate,
        _frechet_infinite,
        frechet_influence,
    )
    from invariant_metrics.metrics.gaussian import GaussianStats

    x, y = map(torch.from_numpy, arrays())
    stats = GaussianStats.of(x[:50], parts=4, seed=1)
    both = [GaussianStats.of(part, parts=4, seed=1) for part in (x, y)]
    estimate = frechet_estimate(x, y, seed=2)
    weights = (
        torch.from_numpy(np.random.default_rng(1).multinomial(len(x), [1 / len(x)] * len(x), 6)).double(),
        torch.from_numpy(np.random.default_rng(2).multinomial(len(y), [1 / len(y)] * len(y), 6)).double(),
    )
    terms = frechet_terms(x, y)
    return {
        "stats": [stats.n, stats.mean, stats.cov],
        "value": frechet_distance(x, y),
        "of stats": frechet_distance(*both),
        "weighted": frechet_distance(x, y, weights[0][0], weights[1][0]),
        "terms": [terms.shift, terms.size, terms.overlap],
        "replicates": frechet_replicates(x, y, *weights),
        "influence": frechet_influence(x, y),
        "estimate": {k: v for k, v in vars(estimate).items() if not callable(v)},
        "infinite": _frechet_infinite(x, y),
    }


@call(quick=True)
def kernels_neighbors(folder):
    "MMD in all forms, KID by subsets, precision and coverage, precision and recall of distributions."
    import torch
    from invariant_metrics.metrics.kernel import RBF, Polynomial
    from invariant_metrics.metrics.mmd import kid_subsets, mmd2, mmd_estimate, mmd_replicates
    from invariant_metrics.metrics.neighbors import neighbor_estimate, neighbor_scores
    from invariant_metrics.metrics.prd import prd, _prd_score

    x, y = map(torch.from_numpy, arrays())
    kid = kid_subsets(x, y, 6, 40)
    weights = [
        torch.from_numpy(np.random.default_rng(i).multinomial(n, [1 / n] * n, 5)).double()
        for i, n in enumerate((len(x), len(y)))
    ]
    curve = prd(x, y, clusters=8, runs=3, angles=101)
    estimate = mmd_estimate(x, y)
    interval = estimate.interval(0.95)
    return {
        "mmd": [mmd2(x, y), mmd2(x, y, kernel=Polynomial()), mmd2(x, y, kernel=RBF(2.0), unbiased=False)],
        "estimate": {k: v for k, v in vars(estimate).items() if not callable(v)},
        "interval": [interval.low, interval.high],
        "replicates": mmd_replicates(x, y, *weights),
        "kid": [kid.mean, kid.std, kid.values],
        "neighbors": {k: neighbor_scores(x, y, k) for k in (3, 5)},
        "coverage parts": {
            k: v
            for k, v in vars(
                neighbor_estimate(x, y, matched=False, clusters=None, seed=0, name="coverage", k=5)
            ).items()
            if not callable(v)
        },
        "prd": curve,
        "f1": _prd_score(x, y, clusters=8, runs=3),
        "f8": _prd_score(x, y, b=8.0, clusters=8, runs=3),
    }


@call(quick=True)
def captions_mathematics(folder):
    "CIDEr by item, its document frequencies merged, BLEU's sums, ROUGE and METEOR by item, the sentence statistics."
    from invariant_metrics.metrics.cider import cider, cider_d, document_frequencies
    from invariant_metrics.metrics.meteor import meteor_nltk
    from invariant_metrics.metrics.ngram import coco_bleu, corpus_bleu
    from invariant_metrics.metrics.rouge import rouge, rouge_l

    held = texts_here()
    refs = list(zip(held["ref0"], held["ref1"], held["ref2"]))
    df = document_frequencies(refs)
    found = {"df": df.digest() if callable(df.digest) else df.digest, "documents": df.documents}
    for name in ("sysA", "sysB"):
        found[name] = {
            "cider-d": cider_d(held[name], refs),
            "cider": cider(held[name], refs),
            "given df": cider_d(held[name][:4], refs[:4], df=df),
            "bleu": corpus_bleu(held[name], refs),
            "coco": coco_bleu(held[name], refs),
            "rouge-l": rouge_l(held[name], refs),
            "rouge": rouge(held[name], refs, "2"),
            "meteor": meteor_nltk(held[name], refs),
        }
    return found


# ---------------------------------------------------------------- training


@call(single=True)
def training_colors(folder):
    "A few steps with two invariants and a critic: every loss, and the weights at the end."
    import torch
    from invariant_metrics.worlds.scenes import make_scenes
    from invariant_metrics.invariants.invariant import get_invariant
    from invariant_metrics.models.colorizer import UNetColorizer
    from invariant_metrics.training.augmented import AugmentedLoss, TargetCache, color_batches
    from invariant_metrics.training.loop import Turn, fit

    rgb, g, found = make_scenes(24, 32, seed=1).rgb, get_invariant("segmentation"), {}
    model = UNetColorizer(8)
    loss = AugmentedLoss({"segmentation": (g, 1.0), "edges": (get_invariant("edges"), 0.3)})
    found["log"] = fit(
        Turn(model, loss), color_batches(rgb, 8, caches={"segmentation": TargetCache(g, rgb)}), 6
    )
    found["weights"] = torch.cat([p.detach().flatten() for p in model.parameters()])
    found["colors"] = model.colorize(rgb[:2].mean(1, keepdim=True) * 100, chroma=1.2)
    return found


@call(single=True)
def training_texts(folder):
    "A translator with a text invariant, a captioner by self-critical training; what both write, greedy, sampled and by beams."
    import torch
    from invariant_metrics.core import torch_rng
    from invariant_metrics.worlds.bilingual import make_sentences
    from invariant_metrics.invariants.invariant import get_invariant
    from invariant_metrics.models.generators import Captioner, Shape, Translator
    from invariant_metrics.models.text_networks import Vocabulary
    from invariant_metrics.training.loop import Turn, fit
    from invariant_metrics.training.self_critical import SelfCriticalLoss, WeightedLoss
    from invariant_metrics.metrics.cider import cider_reward
    from invariant_metrics.training.text_training import augmented_text, text_batches

    world, found = make_sentences(40, seed=4), {}
    vocabulary = Vocabulary.of([*world.source, *world.english])
    source, tokens = vocabulary.batch(world.source, 32), vocabulary.batch(world.english, 32)
    net = Translator(vocabulary, vocabulary, Shape(width=32, hidden=32, heads=2, shared_embedding=True))
    loss = augmented_text(vocabulary, {"entities": (get_invariant("entities"), 0.5)})
    found["translator"] = fit(Turn(net, loss), text_batches({"source": source}, tokens, vocabulary, 8), 8)
    found["weights"] = torch.cat([p.detach().flatten() for p in net.parameters()])
    for name, options in {
        "greedy": {},
        "beams": {"beams": 3, "length_penalty": 0.5},
        "sampled": {"sample": torch_rng(3)},
    }.items():
        found[name] = net.generate({"source": source[:4]}, 10, **options).tokens
    references = [list(r) for r in world.references]
    features = torch.randn(40, 4, 6, generator=torch_rng(1))
    for name, make in {
        "self-critical": lambda r: SelfCriticalLoss(
            {"cider": (r, 1.0)}, 0.7, augmented_text(vocabulary), samples=3, length=8
        ),
        "leave-one-out": lambda r: SelfCriticalLoss(
            {"cider": (r, 1.0)}, 1.0, None, "leave-one-out", samples=3, length=8
        ),
        "weighted": lambda r: WeightedLoss(r, length=8),
    }.items():
        net = Captioner(6, vocabulary, Shape(1, 1, 16, 16, 2, 0.0))
        batches = text_batches({"features": features}, tokens, vocabulary, 8, references=references)
        found[name] = fit(Turn(net, make(cider_reward(references))), batches, 4)
    return found


@call(single=True)
def training_embedded(folder):
    "First steps of the package's own networks: segmentation, depth, the encoder's contrast, the tagger."
    from invariant_metrics.training.dense_training import _train_dense
    from invariant_metrics.training.image_encoder import train_image_encoder
    from invariant_metrics.training.text_classifier import _train_reader

    return {
        "segmentation": _train_dense("segmentation", steps=3)[1],
        "depth": _train_dense("depth", judge=True, steps=2)[1],
        "encoder": train_image_encoder(steps=3, scenes=64, batch=16)[1],
        "entities": _train_reader("entities", steps=4, n=200)[1],
    }


# ---------------------------------------------------------------- probes


def _probe(folder, *words, scale: str = "quick"):
    printed = result("probe", *words, "--scale", scale, "--workers", 1, "--out", "run")
    return {
        **run_folder(folder / "run"),
        "signatures": printed["signatures"],
        "printed": {
            "count": len(printed["auc"]),
            "sha256": _sha(json.dumps(printed["auc"])),
            "rows": printed["auc"][:12],
        },
    }


@call
def probe_colorization(folder):
    "Photographs and scenes: faults of color beside a valid recoloring; all families, metrics of every kind."
    return _probe(
        folder,
        "colorization",
        "--metrics",
        "psnr,ciede2000,colorfulness,violation-edges,violation-segmentation,fd",
    )


@call
def probe_images(folder):
    "Photographs and scenes: damage of all kinds."
    return _probe(
        folder,
        "images",
        "--metrics",
        "psnr,violation-edges,fd",
        "--families",
        "noise,blur,occlusion,patch-shuffle,resize,swirl",
    )


@call
def probe_own_images(folder):
    "Own pictures, and own predictions that are damaged."
    scene_images(folder, 10, 96)
    own = _probe(
        folder,
        "images",
        "--target",
        "truth",
        "--pred",
        "near",
        "--metrics",
        "psnr,ssim,fd",
        "--families",
        "noise,blur",
        "--side",
        48,
    )
    (folder / "run").rename(folder / "first")
    return {
        "predictions": own,
        "colors": _probe(
            folder,
            "colorization",
            "--target",
            "truth",
            "--metrics",
            "psnr,violation-edges",
            "--families",
            "desaturation,bleeding",
        ),
    }


@call
def probe_captions_world(folder):
    "Captions of scenes: all families of violations."
    return _probe(
        folder, "captioning", "--metrics", "bleu-4,cider-d,scene-graph-f1,violation-scene-graph,distinct-2"
    )


@call
def probe_sentences_world(folder):
    "Sentences of the bilingual world, with metrics by networks as well."
    return _probe(
        folder, "translation", "--metrics", "bleu,chrf,violation-entities,violation-sentiment,fbd-4"
    )


@call
def probe_own_captions(folder):
    "Own references and predictions: captions."
    text_files(folder)
    return _probe(
        folder,
        "captioning",
        "--target",
        "refs.json",
        "--pred",
        "sysA.json",
        "--pred",
        "sysB.json",
        "--metrics",
        "bleu,cider-d,violation-scene-graph",
    )


@call
def probe_own_translations(folder):
    "Own references, predictions and sources: translations, predictions edited."
    text_files(folder)
    return _probe(
        folder,
        "translation",
        "--target",
        "ref0.txt",
        "--pred",
        "sysA.txt",
        "--source",
        "source.txt",
        "--metrics",
        "bleu,chrf,ter",
        "--base",
        "predictions",
    )


@call
def probe_own_summaries(folder):
    "Own summaries of several sentences with what they were made from."
    held = texts_here()
    join = lambda rows, n: [" ".join(rows[(i + j) % 16] for j in range(n)) for i in range(16)]
    for name, rows, n in (
        ("target", held["ref0"], 3),
        ("pred", held["sysA"], 3),
        ("source", held["ref1"], 6),
    ):
        (folder / f"{name}.txt").write_text("\n".join(join(rows, n)) + "\n")
    return _probe(
        folder,
        "summarization",
        "--target",
        "target.txt",
        "--pred",
        "pred.txt",
        "--source",
        "source.txt",
        "--metrics",
        "rouge-2-f,chrf",
    )


@call(data=True)
def probe_foils(folder):
    "Foils of SugarCrepe about own captions."
    from invariant_metrics.probes.own_texts import _read_foils

    foils = _read_foils(data_folder() / "sugarcrepe" / "sugarcrepe.jsonl.gz")
    held = {}
    for f in foils[:400]:
        held.setdefault(f.image, []).append(f.caption)
    (folder / "refs.json").write_text(
        json.dumps({k: [*v, f"{v[0].rstrip('.')} in a picture."] for k, v in held.items()})
    )
    return {
        "count": len(foils),
        "first": [list(f) if isinstance(f, tuple) else str(f) for f in foils[:3]],
        "probe": _probe(
            folder,
            "captioning",
            "--target",
            "refs.json",
            "--foils",
            data_folder() / "sugarcrepe" / "sugarcrepe.jsonl.gz",
            "--metrics",
            "bleu,chrf",
            "--families",
            "negation",
        ),
    }


# ---------------------------------------------------------------- studies


def _study(folder, task, *words):
    command("study", task, "--scale", "quick", "--seeds", 1, "--workers", 1, "--out", "run", *words)
    found = run_folder(folder / "run")
    command("report", "run")
    again = page_numbers(folder / "run" / "index.html")
    return {**found, "page again": {"count": len(again), "sha256": _sha("\n".join(again))}}


@call
def study_colorization(folder):
    "The smallest study of colorization: every table, and its page twice."
    return _study(folder, "colorization", "--parts", "training", "--alphas", "0.3,1")


@call
def study_translation(folder):
    "The smallest study of translation."
    return _study(folder, "translation", "--parts", "training", "--alphas", "0.3,1")


@call
def study_captioning(folder):
    "The smallest study of captioning, with its probe."
    return _study(folder, "captioning", "--alphas", "0.3,1")


if __name__ == "__main__":
    sys.exit(main())
