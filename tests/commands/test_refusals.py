"What is refused is refused before any work, in one line, and leaves nothing behind."
import pytest

from commands import cli


@pytest.fixture
def place(tmp_path):
    "Two pairs of texts and a folder with nothing of use in it."
    (tmp_path/"refs.txt").write_text("a dog near the sea\na cat on a mat\n"*6)
    (tmp_path/"hyp.txt").write_text("a dog at the sea\na cat on the mat\n"*6)
    (tmp_path/"blank.txt").write_text("\n"*20)
    (tmp_path/"empty").mkdir()
    return tmp_path


def refused(line: str, place) -> str:
    "The one line that a refused command prints; nothing else is printed, and no file or folder is new."
    before = sorted(place.rglob("*"))
    done = cli(*line.split(), cwd=place)
    lines = done.stderr.splitlines()
    assert done.returncode == 2 and done.stdout == "" and len(lines) == 1 and lines[0].startswith("error: "), (done.stdout, done.stderr)
    assert [p for p in sorted(place.rglob("*")) if p not in before and p.name != "cache"] == []
    return lines[0]


@pytest.mark.parametrize("line, says", [
    ("probe images --target empty --metrics psnr --scale quick", "empty"),
    ("probe translation --target blank.txt --pred blank.txt --metrics bleu --scale quick", "error"),
    ("probe captioning --target refs.txt --pred hyp.txt --metrics bleuu", "unknown metric 'bleuu'"),
    ("study colorization --data empty", "empty"),
    ("study colorization --data empty --model unnet", "did you mean unet?"), # names before data
    ("study colorization --data empty --select pnsr", "did you mean psnr"),
    ("study translation --data refs.txt --long chop", "chop"),
])
def test_a_refused_run_leaves_no_folder(line, says, place): assert says in refused(line, place)
