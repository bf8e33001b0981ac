"Pictures on disk: runs that are killed, processes that share, packs that are damaged or foreign."
import json
import time
from pathlib import Path

import numpy as np
import pytest
import torch

from commands import HUNG, started, torchrun
from invariant_metrics.core import InputError
from invariant_metrics.encoders.cache import list_cache
from invariant_metrics.generators.kept_pictures import PictureStore, imagined, _pack_picture, picture_key, _unpack_picture


class Counting:
    "A gray level for each text and seed; remembers what it was asked."
    name, size, tokens, language, batch = "counting", (8, 8), None, "", 4
    def __init__(self, about="1", slow=0., log=None): self.about, self.slow, self.log, self.asked = about, slow, log, []
    def describe(self): return {"generator": self.name, "about": self.about}
    def __call__(self, texts, seeds):
        time.sleep(self.slow)
        self.asked += zip(texts, seeds)
        if self.log:
            with open(self.log, "a") as file: file.writelines(f"{t} {s}\n" for t, s in zip(texts, seeds))
        return torch.stack([torch.full((3, 8, 8), (7*int(t) + s) % 256, dtype=torch.uint8) for t, s in zip(texts, seeds)])


TEXTS = [str(k) for k in range(20)]
EXPECTED = torch.tensor([[(7*k + s) % 256 for s in (1, 2, 3)] for k in range(20)])


def packs(folder): return sorted(Path(folder).glob("pictures-*.safetensors"))


@pytest.mark.parametrize("shape", [(3, 8, 8), (3, 5, 9), (3, 1, 1)])
def test_a_packed_picture_comes_back_bit_by_bit(shape):
    for seed in range(5):
        picture = np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)
        assert (_unpack_picture(_pack_picture(picture), shape[1:]) == picture).all()


def test_nothing_is_drawn_twice(tmp_path):
    counting = Counting()
    first = imagined(counting, TEXTS[:10], [1, 2], tmp_path)
    assert (first[..., 0, 0, 0] == EXPECTED[:10, :2]).all() and len(counting.asked) == 20
    more = imagined(counting, [*TEXTS, "3"], [1, 2, 3], tmp_path)
    assert (more[:20, ..., 0, 0, 0] == EXPECTED).all() and torch.equal(more[20], more[3]) and len(set(counting.asked)) == len(counting.asked) == 60
    again = Counting()
    assert torch.equal(imagined(again, [*TEXTS, "3"], [1, 2, 3], tmp_path), more) and again.asked == []
    row, = list_cache(tmp_path)
    assert row["files"] == len(packs(tmp_path)) and json.loads(row["settings"]) == again.describe()


def test_a_store_is_looked_through_once(tmp_path):
    store = PictureStore(Counting(), tmp_path, pack=8)
    for k in range(0, 20, 5): imagined(None, TEXTS[k:k + 5], [1], store=store)
    assert len(store.generator.asked) == 20 and len(store.places) == 20
    fresh = PictureStore(Counting(), tmp_path)
    pictures = torch.cat([imagined(None, TEXTS[k:k + 5], [1], store=fresh) for k in range(0, 20, 5)])
    assert (pictures[:, 0, 0, 0, 0] == EXPECTED[:, 0]).all() and fresh.generator.asked == []


@pytest.mark.parametrize("harm", ["a byte", "half of it", "nothing left", "text"])
def test_what_is_damaged_is_said_and_drawn_again(tmp_path, harm):
    whole = imagined(Counting(), TEXTS, [1], tmp_path)
    path, = packs(tmp_path)
    content = bytearray(path.read_bytes())
    if harm == "a byte": content[-3] ^= 4
    path.write_bytes({"a byte": content, "half of it": content[:len(content)//2], "nothing left": b"", "text": b"not a pack at all"}[harm])
    counting = Counting()
    with pytest.warns(UserWarning, match="was damaged and is removed"): assert torch.equal(imagined(counting, TEXTS, [1], tmp_path), whole)
    assert len(counting.asked) == 20
    again = Counting()
    assert torch.equal(imagined(again, TEXTS, [1], tmp_path), whole) and again.asked == []


def test_pictures_of_another_generator_are_never_taken(tmp_path):
    imagined(Counting("1"), TEXTS, [1], tmp_path)
    other = Counting("2")
    imagined(other, TEXTS, [1], tmp_path)
    assert len(other.asked) == 20
    mine, foreign = (PictureStore(Counting(about), tmp_path) for about in "13")
    mine.look()
    path = mine.places[picture_key("0", 1)][0]
    kind = path.name.rsplit("-", 1)[0]
    from invariant_metrics.files import digest
    path.rename(path.with_name(path.name.replace(kind, f"pictures-{digest(foreign.about)}")))
    with pytest.warns(UserWarning, match="pictures of another generator"): imagined(None, TEXTS[:3], [1], store=foreign)
    assert len(foreign.generator.asked) == 3 and foreign.found["foreign"] == 1


def test_ctrl_c_loses_nothing(tmp_path):
    class Interrupted(Counting):
        def __call__(self, texts, seeds):
            if len(self.asked) == 12: raise KeyboardInterrupt
            return super().__call__(texts, seeds)
    with pytest.raises(KeyboardInterrupt): imagined(Interrupted(), TEXTS, [1], tmp_path)
    counting = Counting()
    assert (imagined(counting, TEXTS, [1], tmp_path)[:, 0, 0, 0, 0] == EXPECTED[:, 0]).all() and len(counting.asked) == 8


def drawn(folder: Path, slow: float = 0.) -> int: # pictures
    "How many one process draws of what is not kept yet."
    counting = Counting(slow=slow, log=folder/"log")
    pictures = imagined(None, TEXTS, [1, 2, 3], store=PictureStore(counting, folder/"kept", pack=4), batch=2)
    assert (pictures[..., 0, 0, 0] == EXPECTED).all()
    return len(counting.asked)


def test_a_killed_run_goes_on_where_it_was(tmp_path):
    run = started(drawn, tmp_path, .05)
    begun = time.monotonic()
    while len(packs(tmp_path/"kept")) < 5 and run.is_alive() and time.monotonic() - begun < HUNG: time.sleep(.01)
    run.kill()
    run.join()
    first = (tmp_path/"log").read_text().split("\n")[:-1]
    kept = sum(len(path.name) > 0 for path in packs(tmp_path/"kept"))*4
    assert 20 <= kept <= len(first) < 60
    assert drawn(tmp_path) == 60 - kept


def test_processes_share_the_texts(tmp_path):
    assert torchrun(drawn, tmp_path) == [30, 30]
    assert len(set((tmp_path/"log").read_text().split("\n")[:-1])) == 60


@pytest.mark.parametrize("made, says", [(lambda n: torch.zeros(n, 3, 8, 9, dtype=torch.uint8), "8, 9"), (lambda n: torch.zeros(n, 3, 8, 8), "float32"),
                                        (lambda n: [1]*n, "made list"), (lambda n: torch.zeros(n - 1, 3, 8, 8, dtype=torch.uint8), "expected")])
def test_what_is_no_picture_is_refused(tmp_path, made, says):
    class Wrong(Counting):
        def __call__(self, texts, seeds): return made(len(texts))
    with pytest.raises(InputError, match=says): imagined(Wrong(), TEXTS, [1], tmp_path)
    assert not packs(tmp_path)


def test_where_nothing_can_be_kept_is_said_before_anything_is_drawn(tmp_path):
    (tmp_path/"file").write_text("")
    counting = Counting()
    with pytest.raises(InputError, match="the cache folder"): imagined(counting, TEXTS, [1], tmp_path/"file"/"inside")
    assert counting.asked == []
