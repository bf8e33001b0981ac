"A program as a judge: its answers come over unchanged, one process answers everything, and every way to fail is one line."
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
import torch

from commands import cli
from invariant_metrics.core import InputError, name_parts
from invariant_metrics.metrics.command_judge import CommandJudge, _open_judge
from invariant_metrics.metrics.metric import extract, get_metric
from invariant_metrics.runs import inside_run
from invariant_metrics.scoring.torch_metric import TorchMetric

HEAD = "import json, os, sys, time\ndef say(**answer): print(json.dumps(answer))\n"
LENGTH = HEAD + "for line in sys.stdin:\n    q = json.loads(line)\n    say(id=q['id'], score=len(q['prediction']))\n"


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    "Each test has a folder of its own, and no program outlives it."
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    _open_judge.cache_clear()


def program(body: str, name: str = "judge.py") -> str:
    Path(name).write_text(body)
    return f"cmd:{sys.executable} {name}"


def judge(body: str, **options) -> CommandJudge: return CommandJudge([sys.executable, "-c", HEAD + body], "judge", **{"timeout": 30, **options})


def texts(n: int) -> list[dict]: return [{"prediction": "x"*k} for k in range(n)]


def refused(call, said):
    with pytest.raises(InputError, match=said) as error: call()
    assert "\n" not in str(error.value)


def alive(pid: int) -> bool:
    try: os.kill(pid, 0)
    except ProcessLookupError: return False
    return not Path(f"/proc/{pid}/stat").exists() or Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"


def gone(pid: int) -> bool:
    deadline = time.monotonic() + 5
    while alive(pid) and time.monotonic() < deadline: time.sleep(0.02)
    return not alive(pid)


# --- what comes over

def test_answers_come_over_in_any_order_with_refusals_from_one_process():
    body = """
batch = []
for line in sys.stdin:
    batch.append(json.loads(line))
    if batch[-1]["left"]: continue
    sys.stderr.write("a batch\\n")
    for q in batch[1::2] + batch[::2]:
        n = len(q["prediction"])
        if n % 7 == 3: say(id=q["id"], refused="not this one")
        else: say(id=q["id"], score=n + os.getpid()/10**7)
    batch = []"""
    asked = judge(body, batch=8)
    found = [asked(texts(100)), asked(texts(5))]
    n = np.arange(100)
    assert np.array_equal(found[0].refused, n % 7 == 3) and np.array_equal(np.isnan(found[0].values), n % 7 == 3)
    told = np.concatenate([found[0].values[~found[0].refused] - n[n % 7 != 3], found[1].values[[0, 1, 2, 4]] - [0, 1, 2, 4]])
    assert np.ptp(told) < 1e-9 # one process number


def test_more_than_the_pipes_hold_goes_both_ways():
    "A program that writes much more than it reads, while it is sent ten times what a pipe holds."
    body = "for line in sys.stdin:\n    q = json.loads(line)\n    say(id=q['id'], score=len(q['prediction']), why=q['prediction']*3)\n"
    asked = [{"prediction": "ü\ud800"*(5000 + k)} for k in range(100)]
    assert judge(body)(asked).values.tolist() == [10000. + 2*k for k in range(100)]


def test_a_batch_is_ahead_of_the_one_that_is_answered():
    "Eight batches are there before the first is answered; the ninth is not."
    body = """
import select
data = b""
while data.count(b"\\n") < 16: data += os.read(0, 1 << 16)
time.sleep(0.1)
early = data.count(b"\\n") > 16 or bool(select.select([0], [], [], 0)[0])
for line in data.splitlines(): say(id=json.loads(line)["id"], score=int(early))
for line in os.fdopen(0): say(id=json.loads(line)["id"], score=2)"""
    assert judge(body, batch=2)(texts(40)).values.tolist() == [0]*16 + [2]*24


def test_what_a_program_is_not_handed(monkeypatch, place):
    monkeypatch.setenv("PYTHONPATH", str(place))
    body = "for line in sys.stdin: say(id=json.loads(line)['id'], score=int('PYTHONPATH' in os.environ))"
    assert judge(body)(texts(1)).values.tolist() == [0]


# --- every way to fail

def test_a_program_that_dies_is_asked_again_and_the_second_time_on_a_batch_is_an_error(place):
    body = """
for line in sys.stdin:
    q = json.loads(line)
    if len(q["prediction"]) in (3, 7) and not os.path.exists(q["prediction"]):
        open(q["prediction"], "w").close()
        os._exit(5)
    say(id=q["id"], score=len(q["prediction"]))"""
    asked = judge(body, batch=4)
    assert asked(texts(10)).values.tolist() == [*range(10)]
    always = judge("sys.stdin.readline(); sys.stderr.write('first\\nout of memory\\n'); sys.exit(9)")
    refused(lambda: always(texts(3)), "^judge ended with code 9: out of memory with 3 questions unanswered$")
    refused(lambda: judge("sys.stdin.readline(); os.kill(os.getpid(), 11)")(texts(1)), "was ended by SIGSEGV: nothing on standard error")
    once = judge("print(json.dumps({'id': json.loads(sys.stdin.readline())['id'], 'score': 1}))", restarts=0)
    assert once(texts(1)).values.tolist() == [1]
    refused(lambda: once(texts(1)), "ended with code 0")


def test_a_program_that_hangs_ends_with_its_children(place):
    body = "import subprocess\nchild = subprocess.Popen(['sleep', '60'])\nopen('pids', 'w').write(f'{os.getpid()} {child.pid}')\nsys.stdin.read()"
    start = time.monotonic()
    refused(lambda: judge(body, timeout=0.5)(texts(3)), "did not answer 3 questions within 0.5 s; give a longer timeout=.*flush")
    assert time.monotonic() - start < 20 and all(map(gone, map(int, Path("pids").read_text().split())))


def test_a_child_that_holds_the_pipe_does_not_keep_a_dead_program_alive():
    body = "import subprocess\nsubprocess.Popen(['sleep', '60'])\nsys.stdin.readline()\nsys.exit(3)"
    refused(lambda: judge(body, restarts=0)(texts(1)), "ended with code 3")


def test_an_interrupt_ends_the_program(place):
    asked = judge("open('pid', 'w').write(str(os.getpid()))\nsys.stdin.read()")
    def interrupt():
        while not (Path("pid").exists() and Path("pid").read_text()): time.sleep(0.02)
        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT) # as a terminal does
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    threading.Thread(target=interrupt).start()
    try:
        with pytest.raises(KeyboardInterrupt): asked(texts(1))
    finally: signal.signal(signal.SIGINT, before)
    assert gone(int(Path("pid").read_text()))


@pytest.mark.parametrize("body, said", [
    ("print('loading the model')", "a line that is no JSON object: 'loading the model'"), ("print('[1]')", "no JSON object"), ("print('NaN')", "no JSON object"),
    ("say(id='nobody', score=1)", "question 'nobody', which nobody asked"), ("say(id=0, score=1)", "question 0, which nobody asked"),
    ("say(id='0', score=1); say(id='0', score=1)", "question '0' twice"), ("say(id='0', score='0.5')", "score '0.5' for question '0'"),
    ("say(id='0', score=True)", "score True"), ("say(id='0', score=float('nan'))", "score nan"), ("say(id='0', score=None)", "score None"), ("say(id='0')", "no score"),
    ("say(score=1); say(score=2)", "an answer without an id"), ("say(error='no key for the server')", "^judge: no key for the server$")])
def test_what_is_no_answer(body, said):
    refused(lambda: judge(f"lines = [sys.stdin.readline() for _ in range(2)]; {body}; sys.stdin.read()")(texts(2)), said)


def test_commands_that_cannot_be(place):
    refused(lambda: get_metric("cmd:no-such-program x"), "cannot start no-such-program: No such file")
    for command, said in [("cmd:", "names no program"), ("cmd:better=lower", "names no program"), ("cmd:python 'judge.py", "No closing quotation"),
                          ("cmd:better=less x", "better is higher or lower, not 'less'"), ("cmd:inputs=sounds x", "unknown inputs"), ("cmd:CUDA=0 x", "unknown option of a command 'CUDA'.*cmd:env NAME=VALUE"),
                          ("cmd:timeout=0 x", "timeout"), ("cmd:inputs=images source=true x", "sees no source")]:
        refused(lambda: get_metric(command), said)


# --- as a metric

def test_a_metric_by_command_and_its_signature(place):
    hello = HEAD + "say(name='my judge', version=3, higher_is_better=False)\n" + LENGTH.removeprefix(HEAD)
    metric = get_metric(program(hello))
    assert (metric.name, metric.higher_is_better) == ("my-judge", False)
    parts = dict(metric.signature.items)
    assert (parts["judge"], parts["judge_version"], parts["sees"]) == ("my_judge", "3", "prediction-references") and len(parts["files"]) == 12
    assert extract([metric], ["a", "abc"], ["x", "y"])["my-judge"].pred.tolist() == [1, 3]
    plain = get_metric(program(LENGTH) .replace("cmd:", "cmd:better=lower name=short compares=false "))
    assert (plain.name, plain.higher_is_better, plain.compares) == ("short", False, False)
    assert extract([plain], ["abcd"])["short"].pred.tolist() == [4]
    assert get_metric(program(LENGTH + "# changed")).signature != get_metric(program(LENGTH)).signature
    copied = TorchMetric(program(LENGTH))
    copied.update(["ab"], ["x"])
    assert float(copied.compute()) == 2


def test_a_judge_that_wants_the_source(place):
    command = program(LENGTH.replace("q['prediction']", "q['source']")).replace("cmd:", "cmd:source=true ")
    assert extract([get_metric(command)], ["a"], ["b"], ["source"])["judge"].pred.tolist() == [6]
    refused(lambda: extract([get_metric(command)], ["a"], ["b"]), "needs the texts")


def test_pictures_come_as_files_that_do_not_stay(place):
    body = HEAD + """
from PIL import Image
for line in sys.stdin:
    q = json.loads(line)
    a, b = [Image.open(f).getpixel((0, 0))[0] for f in (q["prediction"], *q["references"])]
    with open("files", "a") as files: files.write(q["prediction"] + "\\n")
    say(id=q["id"], score=b - a)
"""
    metric = get_metric(program(body).replace("cmd:", "cmd:inputs=images better=lower "))
    pictures = torch.linspace(0, 1, 6)[:, None, None, None].expand(6, 3, 8, 8)
    assert extract([metric], pictures, pictures.flip(0))["judge"].pred.tolist() == [255, 153, 51, -51, -153, -255]
    files = Path("files").read_text().split()
    assert len(files) == 7 and not any(Path(f).exists() for f in files)


def test_standard_error_is_kept_in_the_folder_of_a_run(place):
    with inside_run(place):
        metric = get_metric(program(HEAD + "sys.stderr.write('model loaded\\n')\n" + LENGTH.removeprefix(HEAD)))
        extract([metric], ["a"], ["b"])
    assert [f.read_text() for f in (place/"judges").iterdir()] == ["model loaded\n"]


def test_a_command_takes_the_rest_of_its_word():
    assert name_parts("bleu-4, cmd:python judge.py a,b") == ["bleu-4", "cmd:python judge.py a,b"]


def test_by_the_command_line(place):
    command = program(LENGTH)
    Path("hyp.txt").write_text("a red boat\na tree\na dog\n")
    Path("ref.txt").write_text("a boat\nan oak\nthe dog\n")
    done = cli("score", f"rouge-l,{command}", "--pred", "hyp.txt", "--target", "ref.txt", "--format", "json", cwd=place)
    assert done.returncode == 0, done.stderr
    values = {name: found["value"] for name, found in next(iter(json.loads(done.stdout)["result"]["scores"].values())).items()}
    assert values["judge"] == pytest.approx((10 + 6 + 5)/3)
    done = cli("probe", "captioning", "--scale", "quick", "--families", "object-replaced,color-replaced", "--metrics", command, "--out", "run", cwd=place)
    assert done.returncode == 0, done.stderr
    assert "judge" in done.stdout and (place/"run"/"judges").is_dir()
