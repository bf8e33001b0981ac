"Training what writes: the smoothed loss in fairseq's form, what invariants are shown, targets computed once, runs that go on."
import pytest
import torch
import torch.nn.functional as F

from invariant_metrics.core import InputError, Signature
from invariant_metrics.data.bilingual import make_sentences
from invariant_metrics.data.color import join_lab
from invariant_metrics.invariants.base import Invariant, get_invariant
from invariant_metrics.invariants.soft_text import TextInvariant
from invariant_metrics.models.generators import Shape, Translator
from invariant_metrics.models.text import BOS, EOS, PAD, Vocabulary
from invariant_metrics.training.augmented import AugmentedLoss, fork
from invariant_metrics.training.loop import Optim, Turn, fit, total
from invariant_metrics.training.text import (TextTargets, augmented_text, soft_texts, soft_truth, soft_view, text_batches, text_loss,
                                             text_targets, text_task)

WORLD = make_sentences(40, seed=4)
WORDS = Vocabulary.of([*WORLD.source, *WORLD.english])
SOURCE, TOKENS = WORDS.batch(WORLD.source, 32), WORDS.batch(WORLD.english, 32)


def translator(dropout=0.0): return Translator(WORDS, WORDS, Shape(width=16, hidden=16, heads=2, dropout=dropout, joint=True))


def batches(size=8, **options): return text_batches({"source": SOURCE}, TOKENS, WORDS, size, **options)


def flat(model): return torch.cat([p.detach().flatten() for p in model.parameters()])


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.3])
def test_the_smoothed_loss_is_written_out_by_hand(smoothing):
    "Word by word: (1 − ε) on the truth, ε/(V − 1) on each other entry, padding left out."
    logits = torch.randn(3, 5, 7, generator=torch.Generator().manual_seed(0))
    tokens = torch.tensor([[BOS, 4, 5, EOS, PAD, PAD], [BOS, 6, EOS, PAD, PAD, PAD], [BOS, 4, 4, 4, 4, EOS]])
    costs = []
    for row, line in zip(logits, tokens[:, 1:]):
        for z, y in zip(row, line):
            if y == PAD: continue
            p = z.exp()/z.exp().sum()
            costs.append(sum(-(1 - smoothing if v == y else smoothing/6)*p[v].log() for v in range(7)))
    assert torch.isclose(text_loss(logits, tokens, smoothing), torch.stack(costs).mean(), atol=1e-5)


def test_without_smoothing_the_loss_is_torchs_cross_entropy():
    net = translator()
    logits = net({"source": SOURCE}, TOKENS)
    assert torch.isclose(text_loss(logits, TOKENS, 0), F.cross_entropy(logits.flatten(0, 1), TOKENS[:, 1:].flatten(), ignore_index=PAD))
    with pytest.raises(InputError, match="do not belong"): text_loss(logits, TOKENS[:, 1:])


class Shares(TextInvariant):
    "Which words are said."
    seen = 0
    def bind(self, words, mode="expected"): return self
    def forward(self, texts): self.seen += len(texts.probs); return (texts.probs*texts.mask[..., None]).sum(1)/texts.mask.sum(1, keepdim=True)
    def distance(self, prediction, target): return (prediction - target).square().sum(1)


class Places(Shares):
    "Which word stands where."
    def forward(self, texts): self.seen += len(texts.probs); return texts.probs[..., 4:20]*texts.mask[..., None]
    def distance(self, prediction, target): return (prediction - target).square().sum((1, 2))


def own(kind): return kind(kind.__name__.lower(), Signature.of(invariant=kind.__name__))


def test_views_are_float32_distributions_over_words_alone():
    batch = batches()(0)
    seen = soft_view(translator()(batch, batch["tokens"]).bfloat16(), batch)
    assert seen.probs.dtype == torch.float32 and torch.allclose(seen.probs.sum(-1), torch.ones(()), atol=1e-5)
    lengths = [len(WORDS.encode(WORDS.decode(row))) for row in batch["tokens"].tolist()]
    assert seen.mask.sum(1).tolist() == lengths and torch.equal(seen.mask, soft_truth(batch).mask)


def test_a_sure_network_that_is_right_breaks_no_invariant_and_a_wrong_one_does():
    batch = batches()(0)
    right, wrong = 50*F.one_hot(batch["tokens"][:, 1:], len(WORDS)).float(), torch.zeros(8, batch["tokens"].shape[1] - 1, len(WORDS))
    for g in (own(Shares), own(Places)):
        assert g.loss(soft_view(right, batch), soft_truth(batch)).abs().max() < 1e-6 < g.loss(soft_view(wrong, batch), soft_truth(batch)).min()


@pytest.mark.parametrize("kind", [Shares, Places])
@pytest.mark.parametrize("limit", [256.0, 0.01])
def test_cached_targets_are_the_computed_ones_whatever_the_batch_is_padded_to(kind, limit):
    g = own(kind)
    cache = TextTargets(g, TOKENS, len(WORDS), limit=limit)
    assert limit > 1 or cache.kept < len(TOKENS)
    make = batches(caches={"g": cache})
    for i in range(6):
        batch = make(i)
        assert torch.equal(batch["targets"]["g"], g.value(soft_truth(batch))) and batch["targets"]["g"].dtype == torch.float32


def test_targets_are_computed_once_for_a_whole_run():
    loss = augmented_text(WORDS, {"shares": (own(Shares), 1.0)})
    g = loss.invariants["shares"][0]
    caches = text_targets(loss, TOKENS, WORDS)
    assert g.seen == len(TOKENS) + 1
    fit(Turn(translator(), loss), batches(caches=caches), 5)
    assert g.seen == len(TOKENS) + 1 + 5*8


@pytest.mark.parametrize("name", ["entities", "sentiment"])
def test_the_packages_own_invariants_train_a_translator(name):
    "A gradient reaches the network, none the frozen reader, and cached targets change nothing."
    loss = augmented_text(WORDS, {name: (get_invariant(name), 0.5)})
    caches, net = text_targets(loss, TOKENS, WORDS), translator()
    batch = batches(caches=caches)(0)
    terms, uncached = loss(net, batch), loss(net, {**batch, "targets": {}})
    assert torch.isclose(terms[name][1], uncached[name][1], atol=1e-5) and terms[name][1] > 0
    terms[name][1].backward()
    assert net.embedding.weight.grad.abs().sum() > 0
    assert not any(p.requires_grad for p in loss.invariants[name][0].parameters())


def test_alpha_zero_is_plain_training_bit_for_bit():
    nets = [translator(0.1), translator(0.1)]
    fit(Turn(nets[0], augmented_text(WORDS)), batches(), 6)
    log = fit(Turn(nets[1], augmented_text(WORDS, {"shares": (own(Shares), 0.0)})), batches(), 6)
    assert torch.equal(flat(nets[0]), flat(nets[1])) and (log.loc[log["term"] == "shares", "value"] > 0).all()


def test_a_run_that_was_stopped_goes_on_bit_for_bit_and_other_settings_are_refused(tmp_path):
    def run(steps_before, smoothing=0.1):
        net, loss = translator(0.1), augmented_text(WORDS, {"shares": (own(Shares), 0.5)}, smoothing)
        make = batches()
        def stop(i):
            if i == steps_before: raise RuntimeError("stopped")
            return make(i)
        return net, fit(Turn(net, loss), stop, 9, folder=tmp_path, save_every=2, settings=loss.settings)
    with pytest.raises(RuntimeError): run(5)
    resumed, log = run(99)
    whole = translator(0.1)
    fit(Turn(whole, augmented_text(WORDS, {"shares": (own(Shares), 0.5)})), batches(), 9)
    assert torch.equal(flat(resumed), flat(whole)) and len(log) == 9*3
    with pytest.raises(InputError, match="task loss = text-smoothing-0.1, not text-smoothing-0.2"): run(99, 0.2)


def test_a_translator_learns_its_sentences_by_heart():
    net = Translator(WORDS, WORDS, Shape(width=32, hidden=64, dropout=0.0, joint=True))
    log = fit(Turn(net, augmented_text(WORDS, smoothing=0.0), Optim(lr=1e-2)), batches(20), 90)
    assert log["value"][log["term"] == "task"].tail(3).mean() < 0.2
    said = net.texts({"source": SOURCE}, batch=16, length=30)
    assert sum(a == b for a, b in zip(said, WORLD.english)) >= 34


def test_batches_cut_padding_keep_owners_together_and_refuse_what_does_not_fit():
    features, owner = torch.arange(20.)[:, None, None].expand(20, 3, 2), torch.arange(20).repeat_interleave(2)
    make = text_batches({"features": features}, TOKENS, WORDS, 8, owner=owner, references=[[f"picture {i}"] for i in range(20)])
    for i in range(5):
        batch = make(i)
        assert (batch["tokens"] != PAD).any(0).all() and batch["features"].shape == (8, 3, 2) and batch["targets"] == {}
        assert [[f"picture {int(f[0, 0])}"] for f in batch["features"]] == batch["references"]
        rows = [next(k for k, row in enumerate(TOKENS) if torch.equal(row[:len(line)], line)) for line in batch["tokens"]]
        assert [int(owner[k]) for k in rows] == [int(f[0, 0]) for f in batch["features"]]
    with pytest.raises(InputError, match="of 40 texts, the training set has 39"): text_batches({"source": SOURCE}, TOKENS[1:], WORDS, 4, owner=owner)
    with pytest.raises(InputError, match="'source' has 20 items"): text_batches({"source": SOURCE[:20]}, TOKENS, WORDS, 4)
    with pytest.raises(InputError, match="'references' has 1 items"): text_batches({"source": SOURCE}, TOKENS, WORDS, 4, references=[["a"]])


def test_the_augmented_loss_finds_the_truth_where_it_is_told_to():
    "Colors by default, as before; anything else by `truth`."
    class Mean(Invariant):
        def forward(self, rgb): return rgb.mean((2, 3))
        def distance(self, prediction, target): return (prediction - target).abs().mean(1)
    L, ab, guess = torch.full((2, 1, 4, 4), 50.), torch.full((2, 2, 4, 4), 20.), torch.zeros(2, 2, 4, 4)
    g = Mean("mean", Signature.of(invariant="mean"))
    old = AugmentedLoss({"mean": (g, 1.0)}, predict=lambda model, batch: guess)
    new = AugmentedLoss({"mean": (g, 1.0)}, predict=lambda model, batch: guess, truth=lambda batch: batch["picture"])
    batch = {"L": L, "ab": ab}
    assert torch.isclose(old(None, batch)["mean"][1], new(None, {**batch, "picture": join_lab(L, ab)})["mean"][1])
    assert new(None, {**batch, "picture": join_lab(L, guess)})["mean"][1] < 1e-6


def test_the_task_is_named_in_the_settings_of_a_run():
    assert augmented_text(WORDS, smoothing=0.2).settings["task loss"] == text_task(0.2).__qualname__ == "text-smoothing-0.2"
    assert total(augmented_text(WORDS)(fork(translator()), batches()(0))).item() > 0
    assert soft_texts(TOKENS, len(WORDS)).probs.shape == (40, TOKENS.shape[1] - 1, len(WORDS))
