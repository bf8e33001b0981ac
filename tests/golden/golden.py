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

for _name, _value in {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}.items():
    os.environ.setdefault(_name, _value)
if __name__ == "__main__": os.environ.setdefault("TQDM_DISABLE", "1") # tests look at bars

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
    text = re.sub(r"\b(?=\w*\d)[0-9a-f]{16}\b|_[0-9a-f]{16}\b", " ", text)  # digests, of that folder too
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


# ---------------------------------------------------------------- styles, labeling


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


# ---------------------------------------------------------------- worlds and data


# ---------------------------------------------------------------- encoders, invariants, the mathematics of metrics


# ---------------------------------------------------------------- training


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
def study_captioning(folder):
    "The smallest study of captioning, with its probe."
    return _study(folder, "captioning", "--alphas", "0.3,1")


if __name__ == "__main__":
    sys.exit(main())
