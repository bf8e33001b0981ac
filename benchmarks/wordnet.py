"""Path similarity and METEOR beside nltk, on WordNet's own files: time per question and the ratio.

    python benchmarks/wordnet.py [FOLDER]     (default: Debian's /usr/share/wordnet, package wordnet-base)
"""
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]/"tests"))

import numpy as np
from nltk.translate.meteor_score import meteor_score
from test_meteor import nltk_reader, random_pairs

from invariant_metrics.core import rng
from invariant_metrics.data.wordnet import wordnet
from invariant_metrics.metrics.meteor import meteor_nltk


def seconds(run, times: int = 3) -> float:
    "CPU seconds, the median of several runs."
    taken = []
    for _ in range(times):
        start = time.process_time(); run(); taken.append(time.process_time() - start)
    return float(np.median(taken))


def main() -> None:
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else "/usr/share/wordnet")
    with tempfile.TemporaryDirectory() as copy:
        start = time.process_time(); reader = nltk_reader(folder, Path(copy)); opened = time.process_time() - start
        start = time.process_time(); wn = wordnet(); wn.path_similarity("dog.n.01", "cat.n.01"); ours = time.process_time() - start
        print(f"opening:         nltk {opened*1e3:7.0f} ms    here {ours*1e3:6.0f} ms    ratio {opened/ours:.0f}")
        pairs = rng(0, "benchmark").choice(np.array([*wn.all_synsets("n")], object), (2000, 2))
        theirs = [(reader.synset(a), reader.synset(b)) for a, b in pairs]
        slow = seconds(lambda: [a.path_similarity(b) for a, b in theirs])/len(pairs)
        start = time.process_time(); [wn.path_similarity(a, b) for a, b in pairs]; cold = (time.process_time() - start)/len(pairs)
        warm = seconds(lambda: [wn.path_similarity(a, b) for a, b in pairs])/len(pairs)
        print(f"path similarity: nltk {slow*1e6:7.1f} µs    here {cold*1e6:6.1f} µs at first ({slow/cold:.0f} x), {warm*1e6:.1f} µs again ({slow/warm:.0f} x)")
        hyps, refs = random_pairs(0, 1000)
        slow = seconds(lambda: [meteor_score([r.split() for r in rs], h.split(), wordnet=reader) for h, rs in zip(hyps, refs)])/len(hyps)
        fast = seconds(lambda: meteor_nltk(hyps, refs, "none"))/len(hyps)
        print(f"METEOR:          nltk {slow*1e6:7.0f} µs    here {fast*1e6:6.0f} µs an item    ratio {slow/fast:.1f}")


if __name__ == "__main__": main()
