"Pictures on disk: runs that are killed, processes that share, packs that are damaged or foreign."
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch

import invariant_metrics
from commands import HUNG
from invariant_metrics.core import InputError
from invariant_metrics.encoders.cache import list_cache
from invariant_metrics.generators.pictures import PictureStore, imagined, pack_picture, picture_key, unpack_picture


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
        assert (unpack_picture(pack_picture(picture), shape[1:]) == picture).all()


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


RUN = """
import os, sys
sys.path.insert(0, sys.argv[1])
import torch
torch.set_num_threads(1)
import test_kept_pictures as here
from invariant_metrics.generators.pictures import PictureStore, imagined
counting = here.Counting(slow=float(sys.argv[4]), log=sys.argv[3])
store = PictureStore(counting, sys.argv[2], pack=4)
pictures = imagined(None, here.TEXTS, [1, 2, 3], store=store, batch=2)
assert (pictures[..., 0, 0, 0] == here.EXPECTED).all()
print(f"rank {os.environ.get('RANK', 0)} drew {len(counting.asked)}", flush=True)
"""


def command(tmp_path, slow, *launcher):
    script = tmp_path/"run.py"
    script.write_text(RUN)
    return [sys.executable, *launcher, str(script), str(Path(__file__).parent), str(tmp_path/"kept"), str(tmp_path/"log"), str(slow)]


def environment():
    return os.environ | {"PYTHONPATH": str(Path(invariant_metrics.__file__).parents[1]), "OMP_NUM_THREADS": "1"}


def test_a_killed_run_goes_on_where_it_was(tmp_path):
    run = subprocess.Popen(command(tmp_path, .05), env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    begun = time.monotonic()
    while len(packs(tmp_path/"kept")) < 5 and run.poll() is None and time.monotonic() - begun < HUNG: time.sleep(.01)
    run.send_signal(signal.SIGKILL)
    run.communicate()
    first = (tmp_path/"log").read_text().split("\n")[:-1]
    kept = sum(len(path.name) > 0 for path in packs(tmp_path/"kept"))*4
    assert 20 <= kept <= len(first) < 60
    done = subprocess.run(command(tmp_path, 0), env=environment(), capture_output=True, text=True, timeout=HUNG)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["rank", "0", "drew", str(60 - kept)]


def test_processes_share_the_texts(tmp_path):
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2"]
    done = subprocess.run(command(tmp_path, 0, *launcher), env=environment(), capture_output=True, text=True, timeout=HUNG)
    assert done.returncode == 0, done.stderr
    assert sorted(re.findall(r"rank \d drew 30", done.stdout)) == ["rank 0 drew 30", "rank 1 drew 30"] # two processes may print into one line
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
