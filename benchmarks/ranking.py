"""Explainable ranking beside other packages: CPU seconds, added memory, growth, and the equality of the results, in one run.

Usage: python benchmarks/ranking.py [--quick] [SECTION …]      (writes nbs/results/ranking.csv)
SECTION is one of ranks, rules, concepts, end-to-end. --quick takes small sizes, asks for nothing and writes nothing; rows of sections that are not run
stay as they are. Times are CPU seconds of this process, medians of three unless `runs` says otherwise. Run it with OMP_NUM_THREADS=1:
every package then has one thread. Needs faiss-cpu (ranks), mlxtend (rules), nltk with
networkx and WordNet's own files (concepts: /usr/share/wordnet of Debian's wordnet-base, or INVARIANT_METRICS_WORDNET); what is
missing is left out and said."""
import argparse
import ctypes
import gc
import os
import statistics
import sys
import tempfile
import time
from functools import cache
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]/"tests"))

import numpy as np
import pandas as pd
from drawn_corpus import FAILURES, PICTURES, drawn_annotations, drawn_failures, write_visual_genome

from invariant_metrics.data.annotation_files import load_annotations
from invariant_metrics.data.wordnet import path_similarities, steps_table
from invariant_metrics.files import atomic_write
from invariant_metrics.rankings.concepts import concepts_of
from invariant_metrics.rankings.explain import concept_overlap, explain_failures, _match_exclusive
from invariant_metrics.rankings.ranks import rank_vectors
from invariant_metrics.rankings.rules import association_rules

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


def by_faiss(index, queries: np.ndarray, k: int, block: int = 4096) -> np.ndarray: # 0 where the truth is not among the first k
    "Ranks from a flat inner-product search for the first k entries."
    found = []
    for start in range(0, len(queries), block):
        order = index.search(queries[start:start + block], k)[1] == np.arange(start, min(start + block, len(queries)))[:, None]
        found.append(np.where(order.any(1), 1 + order.argmax(1), 0))
    return np.concatenate(found)


def ranks_beside_faiss(rows: Rows, corpus: np.ndarray, queries: np.ndarray, ours: dict) -> None:
    "A search of the first k knows the ranks up to k; only one of all entries knows all of them."
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
        if k == n: rows.ask(work, "times faster than a flat search for the same ranks", 1, times/ours["seconds"])


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
    ranks_beside_faiss(rows, corpus, queries, ours)
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


# concepts

@cache
def drawn(n: int): return drawn_annotations(n)


def similarity_of_exclusive(concepts, truth, retrieved):
    "NCS of failures, everything included: overlap, similarities, matchings."
    return _match_exclusive(concepts, concept_overlap(concepts, truth, retrieved))


def nltk_reader(copy: Path):
    "nltk's WordNet over a copy of the files; None where there are none."
    folder = Path(os.environ.get("INVARIANT_METRICS_WORDNET", "/usr/share/wordnet"))
    if missing("nltk") or missing("networkx"): return None
    if not (folder/"data.noun").is_file():
        print("  no WordNet files: the rows of nltk are left out (install wordnet-base or set INVARIANT_METRICS_WORDNET)", flush=True)
        return None
    from test_wordnet import nltk_reader
    return nltk_reader(folder, copy)


def by_nltk_and_networkx(reader, concepts, truth, retrieved) -> list[float]: # sum of similarities of each failure
    "The way of the paper: path similarity of every pair, then the matching of largest weight."
    import networkx as nx
    starts, sums = concepts.start.tolist(), []
    held = [{concepts.vocabulary[c] for c in concepts.concept[starts[i]:starts[i + 1]]} for i in range(len(concepts))]
    for i, j in zip(truth.tolist(), retrieved.tolist()):
        graph, mine, its = nx.Graph(), held[i] - held[j], held[j] - held[i]
        for a in mine:
            for b in its: graph.add_edge(("g", a), ("r", b), weight=reader.synset(a).path_similarity(reader.synset(b)))
        pairs = nx.max_weight_matching(graph, maxcardinality=True)
        sums.append(sum(graph.edges[pair]["weight"] for pair in pairs))
    return sums


def beside_nltk(rows: Rows, concepts, truth, retrieved, quick: bool) -> None:
    "200 failures, and many pairs of synsets."
    some = slice(0, 20 if quick else 200)
    truth, retrieved = truth[some], retrieved[some]
    work = f"NCS, {len(truth)} failures"
    ours = measure(lambda: similarity_of_exclusive(concepts, truth, retrieved))
    rows.add(work, "invariant_metrics", **ours)
    with tempfile.TemporaryDirectory() as copy:
        reader = nltk_reader(Path(copy))
        if reader is None: return
        found = measure(lambda: by_nltk_and_networkx(reader, concepts, truth, retrieved), 1)
        sums = np.bincount(ours["value"].graph, ours["value"].weight, len(truth))
        assert np.allclose(found["value"], sums)
        rows.add(work, "nltk's path similarity and networkx's matching", **found)
        if not quick: rows.ask(work, "times faster than nltk and networkx", 100, found["seconds"]/ours["seconds"])
        pairs = np.random.default_rng(0).choice(np.array(concepts.vocabulary, object), (500 if quick else 10000, 2))
        theirs = [(reader.synset(a), reader.synset(b)) for a, b in pairs]
        slow, fast = measure(lambda: [a.path_similarity(b) for a, b in theirs], 1), measure(lambda: path_similarities(concepts.wordnet, *pairs.T))
        assert np.array_equal(slow["value"], fast["value"])
        work = f"path similarity of {len(pairs)} pairs"
        rows.add(work, "nltk", **slow)
        rows.add(work, "invariant_metrics", **fast)
        rows.ask(work, "times faster than nltk", 10, slow["seconds"]/fast["seconds"])


def concepts(quick: bool) -> list[dict]:
    "Similarity of exclusive concepts for as many failures as the paper has, beside nltk and networkx; growth with their number."
    rows = Rows("concepts")
    held = concepts_of(drawn(3000 if quick else PICTURES))
    many = 3000 if quick else FAILURES
    truth, retrieved = drawn_failures(held, many)
    found = measure(lambda: similarity_of_exclusive(held, truth, retrieved))
    overlap = concept_overlap(held, truth, retrieved)
    exclusive = len(overlap.only_truth) + len(overlap.only_retrieved)
    work = f"NCS, {many} failures, {exclusive} exclusive synsets, {len(found['value'].graph)} pairs"
    rows.add(work, "invariant_metrics", **found)
    rows.ask(work, "seconds", 60, found["seconds"], at_most=True)
    number = held.number
    rows.add(f"steps between {len(number)} synsets, each with each", "invariant_metrics", **measure(lambda: steps_table(held.wordnet, number)))
    beside_nltk(rows, held, truth, retrieved, quick)
    seconds, sizes = [], [1500, 3000] if quick else [12500, 25000, 50000, 100000]
    for n in sizes:
        sides = drawn_failures(held, n)
        seconds.append(rows.add("growth of NCS", f"{n} failures", **measure(lambda: similarity_of_exclusive(held, *sides)))["seconds"])
    rows.ask("growth of NCS", "exponent of the time in the failures", 1.1, exponent(sizes, seconds), at_most=True)
    return rows


def end_to_end(quick: bool) -> list[dict]:
    "From files of Visual Genome to explanations of all failures; growth with pictures and failures together."
    rows = Rows("end-to-end")
    n, many = (1000, 800) if quick else (PICTURES, FAILURES)
    work = f"{many} failures among {n} pictures"
    with tempfile.TemporaryDirectory() as folder:
        files = write_visual_genome(drawn(n), Path(folder)/"drawn")
        drawn.cache_clear()
        size = sum(path.stat().st_size for path in files.iterdir())/1e6
        read = measure(lambda: load_annotations(files), 1)
    made = measure(lambda: concepts_of(read["value"]), 1)
    sides = drawn_failures(made["value"], many)
    told = measure(lambda: explain_failures(made["value"], *sides), 1)
    rows.add(work, f"reading {size:.0f} MB of files", **read)
    rows.add(work, "concepts of all pictures", **made)
    rows.add(work, "CA, NCS, CE, SD and their details", **told)
    rows.ask(work, "seconds, all three", 180, read["seconds"] + made["seconds"] + told["seconds"], at_most=True)
    seconds, sizes = [], [1000, 2000] if quick else [12500, 25000, 50000, 100000]
    for size in sizes:
        annotations = drawn_annotations(size)
        def explained():
            held = concepts_of(annotations)
            return explain_failures(held, *drawn_failures(held, size))
        seconds.append(rows.add("growth end to end", f"{size} pictures, as many failures", **measure(explained, 1))["seconds"])
    rows.ask("growth end to end", "exponent of the time in pictures and failures", 1.25, exponent(sizes, seconds), at_most=True)
    return rows


SECTIONS = {"ranks": ranks, "rules": rules, "concepts": concepts, "end-to-end": end_to_end}


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
