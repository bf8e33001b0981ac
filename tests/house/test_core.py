"What a person's disk and a colleague's package do to us: full disks, folders one may not write to, entry points, resampling."
import errno
import os

import numpy as np
import pytest
from binomial import not_above, not_below

from invariant_metrics.core import InputError, rng
from invariant_metrics.files import atomic_write
from invariant_metrics.stats import auc, bootstrap_weights, interval


def test_a_full_disk_leaves_the_earlier_file_and_no_temporary_one(tmp_path, monkeypatch):
    path = tmp_path/"results.json"
    with atomic_write(path) as tmp: tmp.write_text("earlier")
    def full(*_): raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(InputError, match="No space left"):
        with atomic_write(path) as tmp: tmp.write_text("later")
    assert path.read_text() == "earlier" and [p.name for p in tmp_path.iterdir()] == ["results.json"]


def test_a_folder_that_cannot_be_made_is_one_line(tmp_path):
    (tmp_path/"file").write_text("")
    with pytest.raises(InputError, match="cannot write in"):
        with atomic_write(tmp_path/"file"/"results.json"): pass


def test_auc_equals_scikit_learn():
    from sklearn.metrics import roc_auc_score
    draw = rng(0)
    positive, negative = draw.integers(0, 6, 50).astype(float), draw.integers(0, 5, 70).astype(float)
    expected = roc_auc_score(np.r_[np.ones(50), np.zeros(70)], np.r_[positive, negative])
    assert auc(positive, negative) == pytest.approx(expected, abs=1e-12)


def test_bootstrap_interval_covers_as_often_as_it_says():
    draw, covered = rng(1), 0
    for i in range(2000):
        x = draw.exponential(size=60)
        ci = interval(x.mean(), bootstrap_weights(60, 300, rng(i, "coverage")) @ x / 60)
        covered += ci.low <= 1 <= ci.high
    not_below(covered, 2000, 0.92, "percentile intervals")  # 0.93 expected for n = 60 and a skewed distribution
    not_above(covered, 2000, 0.94, "percentile intervals")
