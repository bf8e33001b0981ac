"Ranks of right answers: equal to a full sort, whatever the tiles, the ties and the copies; scores equal to other packages."
import numpy as np
import pytest
import torch
from scipy import sparse
from scipy.stats import binomtest, ttest_1samp
from sklearn.metrics import label_ranking_average_precision_score, top_k_accuracy_score
from torchmetrics.retrieval import RetrievalHitRate, RetrievalMRR

from invariant_metrics.core import InputError, Signature
from invariant_metrics.data.annotations import scene_annotations
from invariant_metrics.rankings.represent import represent
from invariant_metrics.rankings.rank_task import ranking_task
from invariant_metrics.rankings.ranks import _differing_shares
from invariant_metrics.rankings.ranks import TIES, Ranks, compare_ranks, rank_truth, rank_vectors, ranking_scores


def unit_rows(n: int, d: int, seed: int) -> np.ndarray:
    x = np.random.default_rng(seed).standard_normal((n, d))
    return (x/np.linalg.norm(x, axis=1, keepdims=True)).astype(np.float32)


def signs(n: int, d: int, seed: int) -> np.ndarray: # scores are multiples of 1/d: exact, with many ties
    return np.random.default_rng(seed).choice([-1., 1.], (n, d)).astype(np.float32)/np.float32(d**0.5)


def truths(queries: int, size: int, most: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    g = np.random.default_rng(seed)
    counts = g.integers(1, most + 1, queries)
    return np.concatenate([g.choice(size, k, replace=False) for k in counts]), np.concatenate([[0], np.cumsum(counts)])


def by_argsort(scores: np.ndarray, truth: np.ndarray, start: np.ndarray, ties: str, slack: float = 0.) -> dict[str, np.ndarray]:
    "Everything from a full sort of each query's scores; scores nearer than `slack` are made equal first."
    found = {"rank": [], "top": [], "truth": [], "tied": []}
    for row, a, b in zip(scores, start, start[1:]):
        if slack:
            order = np.argsort(row)
            group = np.cumsum(np.diff(row[order], prepend=row[order[0]]) > slack)
            row = np.empty(len(row)); row[order] = group
        right = np.isin(np.arange(len(row)), truth[a:b])
        best = min(truth[a:b], key=lambda place: (-row[place], place))
        wrong = [place for place in np.lexsort([np.arange(len(row)), -row]) if not right[place]]
        equal = {place for place in wrong if row[place] == row[best]}
        ahead = {"pessimistic": equal, "optimistic": set(), "stable": {place for place in equal if place < best}}[ties]
        found["rank"].append(1 + sum(row[place] > row[best] for place in wrong) + len(ahead))
        found["top"].append(wrong[0])
        found["truth"].append(best)
        found["tied"].append(len(equal))
    return {name: np.array(values) for name, values in found.items()}


def assert_same(ranks: Ranks, expected: dict[str, np.ndarray]) -> None:
    for name, values in expected.items(): np.testing.assert_array_equal(getattr(ranks, name), values, err_msg=name)


@pytest.mark.parametrize("ties", TIES)
@pytest.mark.parametrize("most", [1, 4])
def test_equal_to_a_full_sort_with_ties(ties, most):
    corpus, queries = signs(2500, 16, 0), signs(60, 16, 1)
    truth, start = truths(60, 2500, most, 2)
    expected = by_argsort(queries @ corpus.T, truth, start, ties)
    assert (expected["tied"] > 0).all()
    for block in (1, 7, 1024): assert_same(rank_vectors(queries, corpus, truth, start, ties, block), expected)
    assert_same(rank_vectors(sparse.csr_matrix(queries), sparse.csr_matrix(corpus), truth, start, ties), expected)
    assert_same(rank_vectors(queries.astype(float), corpus.astype(float), truth, start, ties), expected)


def test_equal_to_float64_where_scores_crowd():
    "Rows that nearly agree: thousands of scores within the rounding of a float32 tile."
    near = unit_rows(1, 64, 0) + 1e-5*unit_rows(4100, 64, 1)
    near /= np.linalg.norm(near, axis=1, keepdims=True)
    truth, start = truths(80, 4100, 2, 3)
    expected = by_argsort(near[:80].astype(float) @ near.T.astype(float), truth, start, "pessimistic", slack=1e-14)
    assert_same(rank_vectors(near[:80], near, truth, start), expected)
    assert ((near[:80] @ near.T) > (near[:80] @ near.T)[np.arange(80), truth[start[:-1]]][:, None]).any() # float32 alone would err


@pytest.mark.parametrize("d", [3, 50, 384])
def test_copies_are_ties_wherever_they_stand(d):
    "The truth's copies at every place of a tile, and at its edges: a library for products rounds there otherwise."
    corpus = unit_rows(4093, d, 0)
    places = np.unique(np.r_[0:40, 1000:1012, 2030:2050, 4070:4093])
    corpus[places] = corpus[places[0]]
    queries = unit_rows(101, d, 1)
    exact = queries.astype(float) @ corpus.astype(float).T
    for truth in (places[0], places[25], places[-1]):
        wrong = np.setdiff1d(np.arange(len(corpus)), places)
        above = (exact[:, wrong] > exact[:, truth][:, None]).sum(1)
        ranks = {ties: rank_vectors(queries, corpus, np.full(101, truth), ties=ties, block=64) for ties in TIES}
        np.testing.assert_array_equal(ranks["pessimistic"].rank, above + len(places))
        np.testing.assert_array_equal(ranks["optimistic"].rank, above + 1)
        np.testing.assert_array_equal(ranks["stable"].rank, above + 1 + (places < truth).sum())
        first = ranks["stable"].top[above == 0]
        assert (first == (places[1] if truth == places[0] else places[0])).all()


def test_numbers_of_other_packages():
    queries, corpus = unit_rows(300, 24, 0), unit_rows(500, 24, 1)
    corpus[:300] = queries + 1.2*unit_rows(300, 24, 2)
    corpus /= np.linalg.norm(corpus, axis=1, keepdims=True)
    scores = queries.astype(float) @ corpus.T.astype(float)
    found = ranking_scores(rank_vectors(queries, corpus, np.arange(300)))
    assert found["mrr"].value == pytest.approx(label_ranking_average_precision_score(np.eye(300, 500), scores), abs=1e-12)
    several, start = truths(300, 500, 3, 4)
    hits = torch.zeros(300, 500, dtype=torch.bool)
    hits[np.repeat(np.arange(300), np.diff(start)), several] = True
    many = ranking_scores(rank_vectors(queries, corpus, several, start))
    told = dict(preds=torch.tensor(scores + 2).ravel(), # torchmetrics takes nothing with a score of 0 or less for found
                target=hits.ravel(), indexes=torch.arange(300).repeat_interleave(500))
    assert many["mrr"].value == pytest.approx(float(RetrievalMRR()(**told)), abs=1e-6)
    assert many["mrr@5"].value == pytest.approx(float(RetrievalMRR(top_k=5)(**told)), abs=1e-6)
    for k in (1, 5, 10):
        assert found[f"recall@{k}"].value == pytest.approx(top_k_accuracy_score(np.arange(300), scores, k=k, labels=np.arange(500)), abs=1e-12)
        assert many[f"recall@{k}"].value == pytest.approx(float(RetrievalHitRate(top_k=k)(**told)), abs=1e-6)
    assert found["fails"].value == pytest.approx(1 - found["recall@1"].value)


def as_ranks(rank, size: int = 100, image=None, ties: str = "pessimistic", task: Signature | None = None) -> Ranks:
    rank = np.asarray(rank)
    return Ranks(rank, rank, rank, rank, rank, size, ties, Signature.of(), image=image, task=task)


def test_reciprocal_rank_counts_ranks_up_to_k_and_no_others():
    scores = ranking_scores(as_ranks([1, 5, 6, 10, 11, 100]), ks=(5, 10, 100))
    assert scores["mrr@5"].value == pytest.approx((1 + 1/5)/6)
    assert scores["mrr@10"].value == pytest.approx((1 + 1/5 + 1/6 + 1/10)/6)
    assert scores["mrr@100"].value == pytest.approx(scores["mrr"].value)
    assert scores["recall@100"].value == 1
    assert scores["median-rank"].value == 8


def test_bad_input_is_refused_in_one_line():
    rows = unit_rows(5, 8, 0)
    hole = rows.copy(); hole[3, 2] = np.nan
    cases = {"corpus: 1 of 5 vectors hold NaN or infinity: 3": lambda: rank_vectors(rows, hole, np.arange(5)),
             "queries: 5 of 5 vectors are not of length 1": lambda: rank_vectors(3*rows, rows, np.arange(5)),
             "2 of 5 queries have no right answer": lambda: rank_vectors(rows, rows, [0, 1, 2], [0, 1, 1, 2, 3, 3]),
             "5 queries have vectors, and 3 have right answers": lambda: rank_vectors(rows, rows, [0, 1, 2], [0, 1, 2, 3]),
             "no positions in a corpus of 5": lambda: rank_vectors(rows, rows, [0, 1, 2, 3, -1]),
             "both dense or both sparse": lambda: rank_vectors(sparse.csr_matrix(rows), rows, np.arange(5)),
             "k = 6: the corpus has 5 entries": lambda: ranking_scores(rank_vectors(rows, rows, np.arange(5)), ks=(1, 6)),
             "k = 0": lambda: ranking_scores(rank_vectors(rows, rows, np.arange(5)), ks=(0,)),
             "unknown tie rule": lambda: rank_vectors(rows, rows, np.arange(5), ties="mean"),
             "block is 1 or more": lambda: rank_vectors(rows, rows, np.arange(5), block=0),
             "ties are stable against pessimistic": lambda: compare_ranks(as_ranks([1]*9, ties="stable"), as_ranks([1]*9)),
             "queries is first against second": lambda: compare_ranks(as_ranks([1]*9, task=Signature.of(queries="first")),
                                                                      as_ranks([1]*9, task=Signature.of(queries="second")))}
    for message, call in cases.items():
        with pytest.raises(InputError) as caught: call()
        assert message in str(caught.value) and "\n" not in str(caught.value)


def test_a_vector_of_zeros_is_tied_with_everything_and_told():
    for form in (np.asarray, sparse.csr_matrix):
        rows = unit_rows(9, 8, 0); rows[4] = 0
        ranks = rank_vectors(form(rows), form(rows), np.arange(9))
        assert ranks.rank[4] == 9 and ranks.tied[4] == 8 and ranks.top[4] == 0
        assert len(ranks.notes) == 2 and "1 of 9 queries" in ranks.notes[0]


def test_nothing_is_wrong_where_all_is_right():
    ranks = rank_vectors(unit_rows(2, 4, 0), unit_rows(1, 4, 1), [0, 0])
    assert (ranks.rank == 1).all() and (ranks.top == -1).all() and np.isnan(ranks.top_score).all()
    assert ranking_scores(ranks, ks=(1,))["recall@1"].value == 1


@pytest.mark.parametrize("model", ["tfidf", "embedded"])
@pytest.mark.parametrize("reverse", [False, True])
def test_a_task_is_ranked_in_both_directions(model, reverse):
    task = ranking_task(scene_annotations(30), reverse=reverse)
    vectors = represent(task, model)
    ranks = rank_truth(vectors, task)
    rows = [x.toarray() if sparse.issparse(x) else x for x in (vectors.queries, vectors.corpora)]
    scores = rows[0].astype(float) @ rows[1].T.astype(float)
    assert_same(ranks, by_argsort(scores, task.truth, task.truth_start, "pessimistic", slack=1e-13))
    scored = ranking_scores(ranks)
    said = dict(scored["recall@5"].signature.items)
    assert said["metric"] == "recall@5" and said["ties"] == "pessimistic" and said["n"] == str(len(ranks))
    assert {*dict(task.signature.items)} <= {*said}
    assert {*scored} == {"recall@1", "recall@5", "recall@10", "mrr@5", "mrr@10", "mrr", "median-rank", "fails"}


def clustered_ranks(g: np.random.Generator, pictures: int = 60, each: int = 5) -> tuple[np.ndarray, np.ndarray]:
    "Ranks of several captions of pictures that are easy or hard, and the pictures."
    ease = np.repeat(g.beta(1, 2, pictures), each)
    return np.minimum(g.geometric(0.02 + 0.9*ease), 1000), np.repeat(np.arange(pictures), each)


@pytest.mark.slow
def test_intervals_hold_the_truth_as_often_as_they_say():
    "300 draws: of independent queries, and of five for a picture; where pictures are forgotten, they are too short."
    g = np.random.default_rng(0)
    many = clustered_ranks(g, 40000, 5)[0]
    true = {"recall@1": (many == 1).mean(), "mrr@5": ((many <= 5)/many).mean(), "median-rank": np.median(many)}
    inside = {kind: {name: [] for name in true} for kind in ("single", "several", "forgotten")}
    for _ in range(300):
        rank, picture = clustered_ranks(g)
        for kind, (r, image) in {"single": (clustered_ranks(g, 200, 1)[0], None), "several": (rank, picture), "forgotten": (rank, None)}.items():
            scores = ranking_scores(as_ranks(r, 1000, image), ks=(1, 5))
            for name, value in true.items(): inside[kind][name].append(scores[name].ci.low <= value <= scores[name].ci.high)
    for name in true:
        assert 0.92 <= np.mean(inside["single"][name]) <= 0.99, name
        assert 0.92 <= np.mean(inside["several"][name]) <= 0.99, name
        if name != "median-rank": assert np.mean(inside["forgotten"][name]) < 0.9, name # few whole numbers are left for a median


def test_paired_differences_by_other_means():
    g = np.random.default_rng(1)
    a, b = np.minimum(g.geometric(0.2, 400), 100), np.minimum(g.geometric(0.15, 400), 100)
    frame = compare_ranks(as_ranks(a), as_ranks(b)).set_index("metric")
    won, lost = ((a <= 5) & (b > 5)).sum(), ((a > 5) & (b <= 5)).sum()
    assert frame.loc["recall@5", "p"] == pytest.approx(binomtest(int(won), int(won + lost)).pvalue)
    tested = ttest_1samp(1/a - 1/b, 0)
    low, high = tested.confidence_interval(0.95)
    assert frame.loc["mrr", ["p", "ci_low", "ci_high"]].to_list() == pytest.approx([tested.pvalue, low, high])
    assert frame.loc["median-rank", "difference"] == np.median(a) - np.median(b)
    assert (frame["ci_low"] <= frame["difference"]).all() and (frame["difference"] <= frame["ci_high"]).all()
    assert (frame["p_holm"] >= frame["p"]).all() and "fails" not in frame.index
    swapped = compare_ranks(as_ranks(b), as_ranks(a)).set_index("metric")
    np.testing.assert_allclose(swapped["difference"], -frame["difference"])
    np.testing.assert_allclose(swapped["p"].drop("median-rank"), frame["p"].drop("median-rank"))


def test_rare_misses_of_few_pictures_have_an_interval_that_holds_the_truth():
    g = np.random.default_rng(5)
    image, held = np.repeat(np.arange(8), 4), []
    for _ in range(400):
        low, high, *_ = _differing_shares(*(g.random((2, 32)) < [[.98], [.95]]).astype(float), image, .95)
        held.append(low <= .03 <= high)
    assert np.mean(held) >= .93 # Student's over pictures: 84 %


@pytest.mark.slow
def test_equal_models_differ_as_seldom_as_the_level_says():
    g = np.random.default_rng(2)
    alarms = {"single": [], "several": [], "forgotten": []}
    for _ in range(150):
        (a, picture), b = clustered_ranks(g, 40), clustered_ranks(g, 40)[0]
        found = {"several": (a, b, picture), "forgotten": (a, b, None), "single": (a[::5], b[::5], None)}
        for kind, (x, y, image) in found.items():
            frame = compare_ranks(as_ranks(x, 1000, image), as_ranks(y, 1000, image), ks=(1,)).set_index("metric")
            alarms[kind].append(frame.loc[["recall@1", "mrr"], "p"].to_numpy() < 0.05)
    rate = {kind: np.mean(values, axis=0) for kind, values in alarms.items()}
    assert (rate["single"] <= 0.1).all() and (rate["several"] <= 0.1).all()
    assert (rate["forgotten"] > 0.1).all() # why the pictures must be known


