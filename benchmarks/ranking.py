"""Explainable ranking beside other packages: CPU seconds, added memory, growth, and the equality of the results, in one run.

Usage: python benchmarks/ranking.py [--quick] [SECTION …]      (writes nbs/results/ranking.csv)
SECTION is one of ranks, rules. --quick takes small sizes, asks for nothing and writes nothing; rows of sections that are not run
stay as they are. Times are CPU seconds of this process, medians of three unless `runs` says otherwise. Run it with OMP_NUM_THREADS=1:
every package then has one thread. Needs faiss-cpu (ranks) and mlxtend (rules); what is missing is left out and said."""
import argparse
import ctypes
import gc
import statistics
import time
from pathlib import Path

import numpy as np
import pandas as pd

from invariant_metrics.files import atomic_write
from invariant_metrics.ranking.ranks import rank_vectors
from invariant_metrics.ranking.rules import association_rules

TABLE = Path(__file__).parent.parent/"nbs"/"results"/"ranking.csv"
COLUMNS = ["section", "work", "method", "runs", "seconds", "added MB", "quantity", "required", "found", "ok"]


# time and memory

def resident(peak: bool = False) -> float:
    "Memory of this process in MB, now or at its highest since the last `forget_peak`."
    with open("/proc/self/status") as file: lines = dict(line.split(":", 1) for line in file)
    return int(lines["VmHWM" if peak else "VmRSS"].split()[0])/1024


def forget_peak() -> None:
    "Let the peak of the memory start from now."
    gc.collect()
    ctypes.CDLL("libc.so.6").malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")


def measure(function, runs: int = 3) -> dict:
    "Median CPU seconds, MB that the first run adds at its highest, and the value of the last."
    seconds, value = [], None
    forget_peak()
    before = resident()
    for _ in range(runs):
        start = time.process_time()
        value = function()
        seconds.append(time.process_time() - start)
        if len(seconds) == 1: memory = max(0., resident(peak=True) - before)
    return {"added MB": memory, "runs": runs, "seconds": statistics.median(seconds), "value": value}


class Rows(list):
    "Measured rows of one section, and what is asked of them."
    def __init__(self, section: str): self.section = section

    def add(self, work: str, method: str, value=None, **cells) -> dict:
        self.append({"section": self.section, "work": work, "method": method, **cells})
        told = " ".join(f"{k}={v:.4g}" if isinstance(v, float) else f"{k}={v}" for k, v in cells.items())
        print(f"  {work}: {method} {told}", flush=True)
        return self[-1]

    def ask(self, work: str, quantity: str, required: float, found: float, at_most: bool = False) -> None:
        fine = found <= required if at_most else found >= required
        self.add(work, "", quantity=quantity, required=f"{'≤' if at_most else '≥'} {required:g}", found=float(found), ok="yes" if fine else "NO")


def missing(module: str) -> bool:
    "Whether a package is not here, which is then said."
    try: __import__(module)
    except ImportError: print(f"  {module} is not installed: its rows are left out", flush=True)
    else: return False
    return True


def exponent(sizes: list[int], seconds: list[float]) -> float:
    "Slope of log seconds over log size by least squares."
    return float(np.polyfit(np.log(sizes), np.log(seconds), 1)[0])


# ranks

def unit_rows(n: int, d: int, seed: int) -> np.ndarray:
    x = np.random.default_rng(seed).standard_normal((n, d), dtype=np.float32)
    return x/np.linalg.norm(x, axis=1, keepdims=True)


def query_rows(corpus: np.ndarray, seed: int = 1) -> np.ndarray:
    "A query near each entry, with noise of which every tenth query has much: medians and fails as a sentence encoder has them."
    n, d = corpus.shape
    share = np.where(np.arange(n) % 10 == 0, 0.02, 0.15).astype(np.float32)
    x = unit_rows(n, d, seed) + share[:, None]*corpus
    return x/np.linalg.norm(x, axis=1, keepdims=True)


def all_scores(queries: np.ndarray, corpus: np.ndarray, rows: int = 1024, columns: int = 2040) -> float:
    "The products of matrices alone, in tiles, into memory that is there."
    buffer, total = np.empty((rows, columns), np.float32), 0.
    for left in range(0, len(corpus), columns):
        part = corpus[left:left + columns].T
        for first in range(0, len(queries), rows):
            some = queries[first:first + rows]
            tile = buffer.reshape(-1)[:len(some)*part.shape[1]].reshape(len(some), part.shape[1])
            np.matmul(some, part, out=tile)
            total += float(tile[0, 0])
    return total


def by_argsort(queries: np.ndarray, corpus: np.ndarray, kind: str = "stable") -> np.ndarray:
    "Ranks from a full sort of all scores at once; a sort that is not stable puts ties in any order."
    order = np.argsort(-(queries @ corpus.T), axis=1, kind=kind)
    return 1 + (order == np.arange(len(queries))[:, None]).argmax(1)


def by_faiss(index, queries: np.ndarray, k: int, block: int = 256) -> np.ndarray: # 0 where the truth is not among the first k
    "Ranks from a flat inner-product search for the first k entries."
    found = []
    for start in range(0, len(queries), block):
        order = index.search(queries[start:start + block], k)[1] == np.arange(start, min(start + block, len(queries)))[:, None]
        found.append(np.where(order.any(1), 1 + order.argmax(1), 0))
    return np.concatenate(found)


def ranks_beside_faiss(rows: Rows, corpus: np.ndarray, queries: np.ndarray, ours: dict, quick: bool) -> None:
    if missing("faiss"): return
    import faiss
    faiss.omp_set_num_threads(1)
    index, n = faiss.IndexFlatIP(corpus.shape[1]), len(corpus)
    index.add(corpus)
    for k, share in ((100, 1), (1000, 1), (n, 34)): # all n for a part of the queries: it grows with their number
        part = queries[:n//share]
        work = f"ranks n={n} d={corpus.shape[1]}"
        found = measure(lambda: by_faiss(index, part, k), 1 if k > 100 else 3)
        known = found["value"] > 0
        assert (found["value"][known] == ours["value"].rank[:len(part)][known]).mean() > 0.999 # faiss has float32's rounding
        known_share = f"{known.mean():.0%} of the ranks"
        times = found["seconds"]*n/len(part)
        rows.add(work, f"faiss, first {k}: {known_share}" + (f", from {len(part)} queries" if share > 1 else ""), **{**found, "seconds": times})
        if not quick: rows.ask(work, f"times faster than a flat search of the first {k}: {known_share}", 1, times/ours["seconds"])


def ranks(quick: bool) -> list[dict]:
    "Exact ranks beside the scores alone, a full sort and faiss; growth with the size of the corpus."
    rows, d = Rows("ranks"), 384
    n = 3000 if quick else 34000
    work, corpus = f"ranks n={n} d={d}", unit_rows(n, d, 0)
    queries, truth = query_rows(corpus), np.arange(n)
    scores = rows.add(work, "scores alone, in tiles", **measure(lambda: all_scores(queries, corpus)))
    ours = measure(lambda: rank_vectors(queries, corpus, truth))
    rows.add(work, "invariant_metrics", **ours)
    print(f"  median rank {np.median(ours['value'].rank):.0f}, fails {ours['value'].failed.mean():.1%}", flush=True)
    rows.ask(work, "time over the time of the scores alone", 1.3, ours["seconds"]/scores["seconds"], at_most=True)
    rows.ask(work, "added MB", 200, ours["added MB"], at_most=True)
    ranks_beside_faiss(rows, corpus, queries, ours, quick)
    m = 1000 if quick else 8000
    work = f"ranks n={m} d={d}"
    few, near = corpus[:m], queries[:m]
    fast = measure(lambda: rank_vectors(near, few, truth[:m]))
    rows.add(work, "invariant_metrics", **fast)
    for kind in ("stable", "quicksort"):
        sort = measure(lambda: by_argsort(near, few, kind))
        assert (sort["value"] == fast["value"].rank).mean() > 0.999
        rows.add(work, f"full argsort, {kind}", **sort)
        rows.ask(work, f"times faster than a full argsort, {kind}", 4, sort["seconds"]/fast["seconds"])
    return rows + rank_growth(d, quick)


def rank_growth(d: int, quick: bool) -> list[dict]:
    "Time over the size of the corpus: with as many queries as entries, and with 4,000 queries."
    rows, sizes = Rows("ranks"), [1000, 2000] if quick else [12500, 25000, 50000, 100000]
    for few in (4000, None):
        seconds = []
        for n in sizes:
            corpus = unit_rows(n, d, 0)
            queries = query_rows(corpus)[:few]
            found = measure(lambda: rank_vectors(queries, corpus, np.arange(len(queries))), 1 if few is None else 3)
            rows.add(f"growth, {few or 'n'} queries", f"n={n}", **found)
            seconds.append(found["seconds"])
        rows.ask(f"growth, {few or 'n'} queries", "exponent of the time in n", 1.1 if few else 2.1, exponent(sizes, seconds), at_most=True)
    return rows


# rules

def concept_table(rows: int, columns: int, per_row: float, seed: int = 0) -> pd.DataFrame:
    "Concepts of failures: few of them frequent and many rare, in groups that come together."
    g = np.random.default_rng(seed)
    share = 1/np.arange(3, columns + 3)
    share *= per_row/share.sum()
    topic = g.integers(0, 20, rows)[:, None] == np.arange(columns) % 20
    table = g.random((rows, columns)) < np.minimum(np.where(topic, 5*share, 0.8*share), 0.9)
    return pd.DataFrame(table, columns=[f"concept {k}" for k in range(columns)])


def class_table(rows: int, seed: int = 0) -> pd.DataFrame:
    "Six classes of failure, two of them dependent."
    g = np.random.default_rng(seed)
    table = g.random((rows, 6)) < [0.6, 0.3, 0.25, 0.2, 0.15, 0.1]
    table[:, 2] |= table[:, 1] & (g.random(rows) < 0.4)
    return pd.DataFrame(table, columns=["object", "count", "size", "attribute", "relation", "alternative"])


def by_mlxtend(table: pd.DataFrame, search: str, support: float, least: float) -> pd.DataFrame:
    from mlxtend import frequent_patterns
    sets = getattr(frequent_patterns, search)(table, min_support=support, use_colnames=True, max_len=3)
    return frequent_patterns.association_rules(sets, metric="confidence", min_threshold=least)


def assert_equal(theirs: pd.DataFrame, ours: pd.DataFrame) -> None:
    "The same rules with the same numbers."
    numbers = ["support", "confidence", "lift"]
    a, b = (frame[numbers].round(9).sort_values(numbers).to_numpy() for frame in (theirs, ours))
    assert a.shape == b.shape and np.allclose(a, b, atol=2e-9), (a.shape, b.shape)


def rules(quick: bool) -> list[dict]:
    "Rules of failures beside mlxtend's two searches, on tables of classes and of concepts."
    rows, n = Rows("rules"), 2000 if quick else 28817
    tables = {f"{n} failures, 6 classes": (class_table(n), 0.001, 0.1501),
              f"{n} failures, 300 concepts": (concept_table(n, 300, 12.), 0.01, 0.3001),
              f"{n} failures, 1500 concepts": (concept_table(n, 1500, 20.), 0.005, 0.3001)}
    for work, (table, support, least) in tables.items():
        ours = measure(lambda: association_rules(table, support, least))
        rows.add(work, f"invariant_metrics: {len(ours['value'])} rules, with intervals and tests", **ours)
        if missing("mlxtend"): continue
        times = {}
        for search in ("apriori", "fpgrowth") if table.shape[1] < 500 else ("fpgrowth",): # apriori would take 19 GB
            found = measure(lambda: by_mlxtend(table, search, support, least), 1 if table.shape[1] > 500 else 3)
            assert_equal(found["value"], ours["value"])
            rows.add(work, f"mlxtend {search}: {len(found['value'])} rules", **found)
            times[search] = found["seconds"]
        best = min(times, key=times.get)
        rows.ask(work, f"times faster than mlxtend ({best})", 1, times[best]/ours["seconds"])
    return rows


SECTIONS = {"ranks": ranks, "rules": rules}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="small sizes, nothing written")
    parser.add_argument("sections", nargs="*", metavar="SECTION", help=", ".join(SECTIONS))
    options = parser.parse_args()
    unknown = {*options.sections} - {*SECTIONS}
    if unknown: parser.error(f"unknown section {', '.join(sorted(unknown))}; there are {', '.join(SECTIONS)}")
    chosen = options.sections or list(SECTIONS)
    measured = []
    for name in chosen:
        print(name, flush=True)
        measured += SECTIONS[name](options.quick)
    table = pd.DataFrame(measured).reindex(columns=COLUMNS)
    if not options.quick:
        if TABLE.is_file():
            old = pd.read_csv(TABLE)
            table = pd.concat([old[~old["section"].isin(chosen)], table])
        table = table.sort_values("section", key=lambda names: names.map(list(SECTIONS).index), kind="stable")
        with atomic_write(TABLE) as path: table.to_csv(path, index=False, float_format="%.4g")
    asked = table.dropna(subset=["required"])[["work", "quantity", "required", "found", "ok"]]
    print("\n" + asked.to_string(index=False, float_format=lambda v: f"{v:.3g}"))


if __name__ == "__main__": main()
