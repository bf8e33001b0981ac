"The store of captions: exact neighbors, published filters, what is kept, what is refused."
import sys
import types

import pytest
import torch

from invariant_metrics.core import InputError, torch_rng
from invariant_metrics.encoders import caption_store as module
from invariant_metrics.encoders.caption_store import CaptionStore, caption_store, largest_products, retrieve
from invariant_metrics.encoders.image_text import image_text, write_random_clip


def drawn(n, d=6, seed=0): return torch.nn.functional.normalize(torch.randn(n, d, generator=torch_rng(seed, "store")), dim=1)


@pytest.mark.parametrize("block", [1, 3, 7, 40, 1000])
def test_blocks_find_what_one_sort_finds(block):
    keys, queries = drawn(40), drawn(5, seed=1)
    assert torch.equal(largest_products(queries, keys, 15, block), (queries @ keys.T).argsort(1, descending=True)[:, :15])


def test_faiss_is_used_where_it_is(monkeypatch):
    class Flat:
        def __init__(self, d): self.d = d
        def add(self, keys): self.keys = keys
        def search(self, queries, k):
            products = queries @ self.keys.T
            return products, (-products).argsort(1)[:, :k]
    monkeypatch.setitem(sys.modules, "faiss", types.SimpleNamespace(IndexFlatIP=Flat))
    monkeypatch.setattr(module.importlib.util, "find_spec", lambda name: name == "faiss")
    keys, queries = drawn(40), drawn(5, seed=1)
    assert torch.equal(largest_products(queries, keys, 15), (queries @ keys.T).argsort(1, descending=True)[:, :15])


def test_filters_are_the_published_ones():
    keys = drawn(60)
    store = CaptionStore(tuple(f"c{i}" for i in range(60)), tuple(i//5 for i in range(60)), keys)
    queries = torch.stack([keys[5*i] for i in range(12)]) # each nearest to a caption of its own
    found = retrieve(store, queries, range(12))
    for i, row in enumerate(found):
        order = (keys @ queries[i]).argsort(descending=True)[:15].tolist()
        assert row == [f"c{k}" for k in order if k//5 != i][:7] and len(row) == 7
    assert retrieve(store, queries[:1], ["nobody"])[0][0] == "c0"


def test_vectors_are_kept_by_caption_and_encoder(tmp_path, monkeypatch):
    monkeypatch.setenv("INVARIANT_METRICS_CACHE", str(tmp_path/"cache"))
    towers = [image_text(write_random_clip(tmp_path/f"{seed}", seed=seed)) for seed in (0, 1)]
    captions = ["a cat", "a dog", "a boat"]
    def make(model, texts): return caption_store(model, texts, range(len(texts)), len)
    first = make(towers[0], captions)
    monkeypatch.setattr(type(towers[0]), "texts", lambda *a, **k: pytest.fail("computed again"))
    assert torch.equal(make(towers[0], captions[::-1]).vectors, first.vectors.flip(0))
    monkeypatch.undo()
    monkeypatch.setenv("INVARIANT_METRICS_CACHE", str(tmp_path/"cache"))
    assert not torch.equal(make(towers[1], captions).vectors, first.vectors)


def test_what_is_refused(tmp_path):
    towers = image_text(write_random_clip(tmp_path/"clip"))
    with pytest.raises(InputError, match="the store of captions is empty: none of 0 has 1 to 25 entries"): caption_store(towers, [], [], len)
    with pytest.raises(InputError, match="2 captions and 1 owners"): caption_store(towers, ["a", "b"], [0], len)
    store = CaptionStore(("a", "b", "c", "d"), (0, 0, 1, 1), drawn(4))
    with pytest.raises(InputError, match="2 pictures find fewer than 4 captions of other pictures, 0 among them; the store holds 4"):
        retrieve(store, drawn(2), [0, 1])
