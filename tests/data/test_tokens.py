"Tokens: the Treebank tokenizer does what the Java program does, and every name gives the tokenizer it says."
import gzip
import importlib.util
import json
import pickle
import random
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from real_data import data_path

from invariant_metrics.core import InputError
from invariant_metrics.data.tokens import _caption_tokens, get_tokenizer, language_tokenizer, _ptb_tokens
from invariant_metrics.data.tokens import _tokenizer_names

OBSERVED = r"""
I don't know; he'll do it, can't he? | I do n't know ; he 'll do it , ca n't he ?
CAN'T won't shan't ain't y'all | CA N'T wo n't sha n't ai n't y' all
cannot Cannot gonna gotta wanna lemme gimme | can not Can not gon na got ta wan na lem me gim me
cannots gonnas kinda dunno | cannots gonnas kinda dunno
'tis 'Twas the '90s | 't is 'T was the '90s
Rock 'n' roll, rock'n'roll, fish'n'chips | Rock 'n' roll , rock 'n' roll , fish 'n' chips
o'clock O'Neil d'Artagnan ma'am Hawai'i c'mon | o'clock O'Neil d'Artagnan ma'am Hawai'i c'mon
the boys' dog's 1990's 70s' | the boys ' dog 's 1990 's 70s '
I'd've shouldn't've it's-a | I 'd 've should n't 've it 's - a
it’s don’t o’clock ’em | it 's do n't o’clock ’em
isn`t it`s don´t | is n`t it ` s don ´ t
"Hello," he said. "It's 'fine'." | `` Hello , '' he said . `` It 's ` fine ' . ''
" ab " 5" x | '' ab '' 5 '' x
“curly” ‘single’ «guill» | `` curly '' ` single ' `` guill ''
(a) [b] {c} -LRB- | -LRB- a -RRB- -LSB- b -RSB- -LCB- c -RCB- -LRB-
wait... wait.... wait.. wait . . . end… | wait ... wait ... wait . . wait ... end ...
a--b a---b a—b a–b a - b | a -- b a -- b a -- b a -- b a - b
well-known X-ray T-shirt 20-year-old U.S.-based non-U.S. | well-known X-ray T-shirt 20-year-old U.S.-based non-U.S.
and/or a/b/c/d 1/2 w/ w/o 24/7 | and/or a/b/c / d 1/2 w / w/o 24/7
board.Cabbage is | board.Cabbage is
Mr. Smith, Dr. Who and Mrs. Jones vs. Prof. X. | Mr. Smith , Dr. Who and Mrs. Jones vs. Prof. X.
at Acme Inc. | at Acme Inc. .
at Acme Inc. The man | at Acme Inc. . The man
at Acme Inc. and | at Acme Inc. and
the U.S. The man in the U.S. Army at 5 p.m. | the U.S. . The man in the U.S. Army at 5 p.m.
Plan A. The man saw J. Smith | Plan A . The man saw J. Smith
No. 5 or no. | No. 5 or no .
a cat., a dog.: | a cat. , a dog. :
$5.50 US$5 C$10 £5 €10 5¢ 50% | $ 5.50 US$ 5 C$ 10 # 5 $ 10 5 cents 50 %
1,000 1,000.50 .5 -5 +5 10:30am 5pm 5th 3.5mm | 1,000 1,000.50 .5 -5 +5 10:30 am 5pm 5th 3.5 mm
1 1/2 ½ 5½ 3.5-inch | 1 1/2 1/2 5 1/2 3.5-inch
12/25/1999 1999-12-25 (555) 123-4567 | 12/25/1999 1999-12-25 -LRB-555-RRB- 123-4567
a.b@c.com www.google.com http://x.org/a?b=c google.com/path | a.b@c.com www.google.com http://x.org/a?b=c google.com/path
AT&T H&amp;R a & b &lt; the&apos;s &quot;a&quot; | AT&T H&R a & b < the 's `` a ''
#tag @user #1 C++ C# | #tag @user # 1 C++ C#
:) :-) ;-( :P ^_^ <3 | :-RRB- :--RRB- ;--LRB- :P ^_^ < 3
<b>bold</b> <br/> a < b | <b> bold </b> <br/> a < b
naïve São Straße Ελλάδα Москва 日本語 हिन्दी | naïve São Straße Ελλάδα Москва 日本語 हिन्दी
ab😀cd ❤️ © 25°C | ab cd ❤ © 25 ° C
!! ?! ... ** __ ,, | !! ?! ... ** __ , ,
"""


@pytest.mark.parametrize("line", [line for line in OBSERVED.splitlines() if line], ids=lambda line: line[:30])
def test_tokens_observed_in_java(line):
    text, _, tokens = line.partition(" | ")
    assert _ptb_tokens(text) == tokens.split()


def test_caption_tools_lower_case_and_drop_punctuation_but_not_brackets():
    assert _caption_tokens('A "Man" (isn\'t) here; is he? No...') == "a man -lrb- is n't -rrb- here is he no".split()


def rows(name: str) -> list[dict]:
    path = data_path(name)
    with (gzip.open if path.suffix == ".gz" else open)(path, "rt", encoding="utf-8") as file: return [json.loads(line) for line in file]


def share(texts: list[str], tokenized: list[str]) -> float:
    assert len(texts) == len(tokenized) > 200
    return sum(_caption_tokens(text) == line.split() for text, line in zip(texts, tokenized)) / len(texts)


def test_all_flickr8k_references_and_candidates_are_equal():
    stored = {row["image_id"]: row["references"] for row in rows("flickr8k_expert/ptb_tokenized_references.jsonl.gz")}
    pairs = [pair for row in rows("flickr8k_expert/images.jsonl") for pair in zip(row["references"], stored[row["image_id"]], strict=True)]
    assert share(*map(list, zip(*pairs))) == 1
    scored, judged = rows("flickr8k_expert/pycocoevalcap_scores.jsonl.gz"), rows("flickr8k_expert/judgments.jsonl")
    assert share([judged[row["row"]]["candidate"] for row in scored], [row["ptb_candidate"] for row in scored]) == 1


def test_all_coco_demo_captions_are_equal():
    stored = {row["image_id"]: row for row in rows("coco_captions/fakecap_partial_pycocoevalcap.jsonl.gz")}
    pairs = []
    for row in rows("coco_captions/fakecap_partial.jsonl"):
        kept = stored[row["image_id"]]
        pairs += [(row["caption"], kept["ptb_candidate"]), *zip(row["references"], kept["ptb_references"], strict=True)]
    assert share(*map(list, zip(*pairs))) == 1


def java_lines(texts: list[str]) -> list[list[str]]:
    "The Java program's tokens, each text followed by an empty line: what it makes of a text alone."
    if not shutil.which("java"): pytest.skip("no java")
    if importlib.util.find_spec("pycocoevalcap") is None: pytest.skip("pycocoevalcap, which carries the Java tokenizer, is not installed")
    from pycocoevalcap.tokenizer import ptbtokenizer
    jar = Path(ptbtokenizer.__file__).parent/ptbtokenizer.STANFORD_CORENLP_3_4_1_JAR
    with tempfile.NamedTemporaryFile("w", suffix=".txt", encoding="utf-8") as file:
        file.write("".join(f"{text}\n\n" for text in texts)); file.flush()
        command = ["java", "-cp", str(jar), "edu.stanford.nlp.process.PTBTokenizer", "-preserveLines", "-encoding", "utf-8", file.name]
        lines = subprocess.run(command, capture_output=True, check=True).stdout.decode().split("\n")
    assert len(lines) >= 2*len(texts)
    return [line.split() for line in lines[:2*len(texts):2]]


def test_java_itself_on_mixed_sentences_whole_and_damaged():
    chance, texts = random.Random(0), [line.partition(" | ")[0] for line in OBSERVED.splitlines() if line]
    real = [text for row in rows("summarization/summeval_thumb_refs.jsonl.gz")[:40] for text in row["refs"]]
    real += [text for row in rows("multi30k/train_2000.jsonl.gz")[:60] for text in (row["en"], row["de"])]
    assert [_ptb_tokens(t) for t in texts + real] == java_lines(texts + real)
    damaged = []
    for text in texts*4 + real:
        at, sign = chance.randrange(len(text)), chance.choice(list(".,!?'\"-()/&$%:;") + ["’", " ", "...", "--", "'s", "n't", "U.S.", "5"])
        damaged.append(" ".join((text[:at] + sign + text[at + chance.randint(0, 1):]).split()))
    equal = [_ptb_tokens(t) == j for t, j in zip(damaged, java_lines(damaged))]
    assert sum(equal)/len(equal) > 0.97


@settings(max_examples=300)
@given(st.text(max_size=60) | st.text("aA1 .'\"-()&;:<>/@#$ntsU…’\u0301\xad\n\t", max_size=40))
def test_any_text_has_tokens_without_white_space(text):
    for tokenize in (_ptb_tokens, _caption_tokens, get_tokenizer("none")):
        tokens = tokenize(text)
        assert tokens == tokenize(text) and all(token and not any(c.isspace() for c in token) for token in tokens)


@settings(max_examples=100)
@given(st.lists(st.sampled_from("a man isn't (here) . U.S. The 5 No. Inc. <b> :) \" '90s . . x 1,000".split()), max_size=8))
def test_remembered_pieces_change_nothing(pieces):
    from invariant_metrics.data.tokens import _scan
    assert _ptb_tokens(" ".join(pieces)) == _scan(" ".join(pieces))


@settings(max_examples=200)
@given(st.text("aB1 .,'\"-&;:<>/@$\n\t…’\x85", max_size=30) | st.lists(st.sampled_from("1. .5 , &amp;lt; <skipped> 5- -5 a.b,c 1,000. (x) $".split() + ["-\n"])).map(" ".join))
def test_13a_by_pieces_is_13a_of_the_line_and_captions_by_pieces_are_those_of_the_text(text):
    from sacrebleu.tokenizers.tokenizer_13a import Tokenizer13a
    from invariant_metrics.data.tokens import _in_captions
    assert get_tokenizer("13a")(text) == Tokenizer13a()(text).split()
    assert _caption_tokens(text) == _in_captions(_ptb_tokens(text))


def test_the_small_scanner_of_ascii_is_the_large_one():
    from invariant_metrics.data.tokens import _scanner
    chance = random.Random(0)
    for _ in range(3000):
        text = "".join(chance.choice("aAnNtTsS1.,'\"-()&;:<>/@#$! bU") for _ in range(chance.randint(0, 25)))
        assert [(m.lastgroup, m.group()) for m in _scanner(True).finditer(text)] == [(m.lastgroup, m.group()) for m in _scanner(False).finditer(text)]


def test_nothing_and_lines():
    assert _ptb_tokens("") == _caption_tokens(" \n") == _caption_tokens("...") == []
    assert _caption_tokens("a man\nwith a dog.\r\n") == "a man with a dog".split()


def test_names_give_sacrebleus_tokenizers():
    from sacrebleu.metrics.bleu import _get_tokenizer
    text = "“It's”  a 10-day, 1,000.50 $ trip; 中文测试。 Über-großes Haus?"
    for name in ("13a", "intl", "char", "zh"): assert get_tokenizer(name)(text) == _get_tokenizer(name)()(text).split()
    assert set(_tokenizer_names()) >= {"none", "ptb", "ptb-all", "13a", "intl", "char", "zh", "ja-mecab", "ko-mecab"}
    assert pickle.loads(pickle.dumps(get_tokenizer("13a")))(text) == get_tokenizer("13a")(text)


def test_what_is_refused():
    with pytest.raises(InputError, match="did you mean 13a"): get_tokenizer("13")
    with pytest.raises(InputError, match="download"): get_tokenizer("flores200")
    with pytest.raises(InputError, match=r"no tokenizer is set for language 'xx' .*de.*name one"): language_tokenizer("xx")
    for name, package in (("ja-mecab", "MeCab"), ("ko-mecab", "mecab_ko")):
        if importlib.util.find_spec(package) is None:
            with pytest.raises(InputError, match=r"pip install 'sacrebleu\["): get_tokenizer(name)


def test_languages():
    assert [language_tokenizer(x) for x in ("en", "en-US", "de", "zh_Hant", "JA", "ko", "th", "hi")] == \
        ["ptb", "ptb", "13a", "zh", "ja-mecab", "ko-mecab", "char", "intl"]
