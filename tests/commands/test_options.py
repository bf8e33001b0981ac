"Options: one name has one meaning, choices are those of the package, help and completion show them, and nothing begins before they are right."
import json
import os
import re
from contextlib import redirect_stdout
from io import StringIO

import pytest
import typer

from commands import cli
from invariant_metrics.commands import imagine_commands as imagine, judge_commands as judge, lclip_commands as lclip, rank_commands as rank, score_commands as score, shell # the first five put their commands on the application
from invariant_metrics.signatures import option_facts


def all_commands(group, path: str = "") -> dict: # path -> command
    found = {}
    for name, command in group.commands.items(): found |= all_commands(command, f"{path}{name} ") if hasattr(command, "commands") else {f"{path}{name}": command}
    return found


COMMANDS = all_commands(typer.main.get_command(shell.app))
OPTIONS = [(path, p) for path, command in COMMANDS.items() for p in command.params if p.param_type_name == "option"]


def values(option) -> tuple: # of a choice
    return tuple(option.metavar.strip("[]").split("|")) if option.metavar else ()


def test_every_option_is_in_the_table_and_has_a_help():
    assert len(OPTIONS) > 400
    assert [(path, p.opts[0]) for path, p in OPTIONS if p.name not in option_facts() or not re.search(r"[.?…]$", p.help or "")] == []
    assert {*option_facts()} <= {p.name for command in COMMANDS.values() for p in command.params}, "a word that no command has"


def test_an_option_of_one_name_has_one_kind_of_value():
    ON_PURPOSE = {"--ci": "the ways of score, and those of a correlation with people", "--statistic": "any of agree's, two of styles, three of measurement",
                  "--layer": "one, or several of styles", "--aspect": "collect and measurement take several, agree reads one", 
                  "--pairs": "how many in contested, whether they are printed in agree", "--parts": "each study has its own", "--long": "a study may drop pairs; drawing refuses or cuts",
                  "--teacher": "several in lclip distill"}
    found = {}
    for path, p in OPTIONS: found.setdefault(p.opts[0], {}).setdefault((p.multiple, p.is_flag, values(p)), []).append(path)
    assert {name for name, kinds in found.items() if len(kinds) > 1} == {*ON_PURPOSE}


def test_choices_are_those_of_the_package():
    from invariant_metrics.lclip.run_lclip import _LCLIP_PARTS
    from invariant_metrics.lclip.supervision import RECIPES
    from invariant_metrics.people.draws import GENERALIZATIONS
    from invariant_metrics.people.judged_scores import RATINGS
    from invariant_metrics.people.labeling import _TASKS
    from invariant_metrics.people.score_table import UNITS
    from invariant_metrics.people.styles import FORMS
    from invariant_metrics.probes.own_texts import _BASES
    from invariant_metrics.runs import RUN_SCALES
    from invariant_metrics.scoring.inference import METHODS
    from invariant_metrics.studies.run_study import _GRID_NAMES, _STUDY_PARTS
    from invariant_metrics.training.rewards import SCALES
    known = {"--scale": RUN_SCALES, "--base": _BASES, "--unit": UNITS, "--generalize": GENERALIZATIONS, "--ratings": RATINGS, "--task": _TASKS,
             "--grid": _GRID_NAMES, "--scales": SCALES, "--recipe": RECIPES}
    here = {(path, p.opts[0]): set(values(p)) for path, p in OPTIONS}
    for (_, name), given in here.items():
        if name in known: assert given == set(known[name]), name
    assert here["study", "--parts"] == {*_STUDY_PARTS} and here["lclip study", "--parts"] == {*_LCLIP_PARTS}
    assert here["score", "--ci"] == {*METHODS, "none"} and here["styles rank", "--ci"] == set(FORMS)


@pytest.mark.parametrize("line, says", [
    ("score psnr --pred nowhere --target nowhere --ci bogus", "unknown interval method 'bogus'; known: auto, bootstrap"),
    ("score psnr --pred nowhere --target nowhere --format yaml", "unknown format 'yaml'"),
    ("score psnr --pred nowhere --target nowhere --reps 1", "--reps"), ("score psnr --pred nowhere --target nowhere --confidence 95", "--confidence"),
    ("score psnr --pred nowhere --target nowhere --seed -1", "--seed"), ("score psnr --pred nowhere --target nowhere --option tokenizer", "is not like NAME=VALUE"),
    ("score psnr --pred nowhere --target nowhere --permutations many", "--permutations"), ("study colorization --data nowhere --grid fll", "did you mean full?"),
    ("study colorization --data nowhere --parts probe,trainig", "did you mean training?"), ("study colorization --data nowhere --alphas a,b", "list of numbers"),
    ("study colorization --workers 0", "--workers"), ("probe images --target nowhere --base refs", "unknown base 'refs'"), ("probe images --target nowhere --side 2", "--side"),
    ("agree nowhere.csv --unit items", "did you mean item?"), ("agree nowhere.csv --generalize all", "unknown population"), ("agree nowhere.csv --figure a.doc", "unknown ending of a figure '.doc'"),
    ("agree nowhere.csv --statistic tau-d", "unknown statistic"), ("agree nowhere.csv --reader score", "--reader score is not like NAME=VALUE"),
    ("agree collect nowhere --task chioce --out page.html", "did you mean choice?"), ("agree collect nowhere --task choice --out page.pdf", "name it page.html"),
    ("power bleu --pred nowhere --target nowhere --confidence 2", "--confidence"), ("power bleu --pred nowhere --target nowhere --figure a.doc", "ending of a figure"),
    ("styles nowhere --real nowhere --labels nowhere --ci bootstrap", "unknown interval method"), ("styles nowhere --real nowhere --labels nowhere --statistic tau", "unknown statistic 'tau'"),
    ("lclip distill nowhere --contrastive-scale abc", "--contrastive-scale is learn or a number, not 'abc'"),
    ("lclip distill nowhere --contrastive-scale 100,1", "--contrastive-scale is learn or a number"),
    ("lclip distill nowhere --contrastive-scale 100", "--contrastive-scale would change nothing"), ("lclip distill nowhere --precision fp8", "unknown precision"),
    ("lclip distill nowhere --loss single --reduction sum", "--reduction sum would change nothing"),
    ("lclip distill nowhere --without Equalize", "--without would change nothing"),
    ("stats nowhere --out x.npz --random-parts -1", "--random-parts")])
def test_options_are_refused_before_anything_is_looked_for(line, says, tmp_path):
    done = cli(*line.split(), cwd=tmp_path)
    assert done.returncode == 2 and len(done.stderr.splitlines()) == 1 and says in done.stderr, done.stderr


@pytest.mark.parametrize("line", ["score psnr --pred ours theirs --target truth", "power psnr --pred ours theirs --target truth", "probe images --target truth --pred ours theirs"])
def test_several_folders_after_one_option_are_understood_or_explained(line, tmp_path):
    for name in ("ours", "theirs", "truth"): (tmp_path/name).mkdir()
    done = cli(*line.split(), cwd=tmp_path)
    assert done.returncode == 2 and "theirs is a folder" in done.stderr and "(theirs/)" in done.stderr and "--pred theirs" in done.stderr
    done = cli(*line.replace("theirs", "theirs/").split(), cwd=tmp_path)
    assert "is a folder;" not in done.stderr # it goes on, and finds no pictures


def test_help_shows_choices_exit_codes_and_completion(tmp_path):
    text = " ".join(cli("--help", cwd=tmp_path).stdout.split())
    assert "Exit codes: 0 done; 2 refused or failed" in text and "130 interrupted" in text and "--install-completion" in text
    assert "[quick|default|full]" in cli("probe", "metrics", "--help", cwd=tmp_path).stdout


@pytest.mark.parametrize("words, offers", [("score --ci b", "bootstrap"), ("study colorization --scale f", "full"), ("ag", "agree"), ("score psnr,ss", "psnr,ssim"), ("probe metrics ca", "captioning"),
                                           ("study tra", "translation"), ("score --metrics cider-", "cider-d"), ("score --weights incep", "inception="), ("weights fetch incep", "inception")])
def test_the_shell_completes_names_and_choices(words, offers, monkeypatch):
    line = f"invariant-metrics {words}"
    monkeypatch.setenv("_INVARIANT_METRICS_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", line)
    monkeypatch.setenv("COMP_CWORD", str(len(line.split()) - 1))
    with redirect_stdout(StringIO()) as out, pytest.raises(SystemExit): shell.main([])
    assert out.getvalue().split() == [offers]


def test_long_commands_can_be_quiet_and_leave_no_setting_behind(tmp_path):
    assert {path for path, p in OPTIONS if p.opts[0] == "--quiet"} == {*COMMANDS}
    seen = []
    (tmp_path/"a.txt").write_text("a dog\na cat\n"*10)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("invariant_metrics.core.few_threads", lambda: seen.append(os.environ.get("INVARIANT_METRICS_QUIET")))
        for flag in ([], ["--quiet"]): assert cli("score", "chrf", "--pred", "a.txt", "--target", "a.txt", *flag, cwd=tmp_path).returncode == 0
        assert seen == [None, "1"] and "INVARIANT_METRICS_QUIET" not in os.environ
        patch.setenv("INVARIANT_METRICS_QUIET", "0") # said by the user, who finds it again
        assert cli("score", "chrf", "--pred", "a.txt", "--target", "a.txt", "--quiet", cwd=tmp_path).returncode == 0
        assert seen[2:] == ["1"] and os.environ["INVARIANT_METRICS_QUIET"] == "0"


def test_json_is_short_for_its_format(tmp_path):
    short, full = (cli("weights", "list", *words, cwd=tmp_path).stdout for words in (["--json"], ["--format", "json"]))
    assert short == full and json.loads(short)["kind"] == "weights"


def test_tables_for_people_say_direction_confidence_and_signature(tmp_path):
    things = ["dog", "cat", "car", "bicycle", "sea", "mountain"]
    (tmp_path/"hyp.txt").write_text("".join(f"a {a} near the {b}\n" for a in things for b in things))
    (tmp_path/"ref.txt").write_text("".join(f"the {a} is {'near' if a < b else 'behind'} a {b}\n" for a in things for b in things))
    words = ["score", "chrf,ter", "--pred", "hyp.txt", "--target", "ref.txt", "--confidence", "0.9"]
    table, latex, csv = (cli(*words, "--format", form, cwd=tmp_path).stdout for form in ("table", "latex", "csv"))
    assert "chrf ↑" in table and "ter ↓" in table and "90 % low" in table and "corrected" not in table
    assert r"chrf $\uparrow$" in latex and r"90 \% low" in latex and r"\caption{" in latex and "chrf" in latex.split(r"\caption{")[1].splitlines()[0]
    head, first, *_ = csv.splitlines()
    assert {"metric", "better", "value", "ci_low", "ci_high", "confidence", "signature"} <= set(head.split(",")) and "higher" in first and "metric:chrf" in first


def test_help_shows_what_is_mostly_used_and_help_all_the_rest(tmp_path):
    short, whole = (cli("score", word, cwd=tmp_path).stdout for word in ("--help", "--help-all"))
    assert "Mostly used" in short and "--pred" in short and "--permutations" not in short and "--help-all" in short
    assert "--permutations" in whole and "--pred" in whole and len(whole) > 2*len(short)
    assert "--help-all" not in cli("lclip", "export", "--help", cwd=tmp_path).stdout # of few options all are shown
