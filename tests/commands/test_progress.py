"What is shown while work goes on: a bar on a terminal, a line every tenth elsewhere, nothing where nobody wants it."
import io
import sys

import pytest

from invariant_metrics.core import announce, progress


class Terminal(io.StringIO):
    def isatty(self): return True


@pytest.fixture
def shown(monkeypatch):
    "What progress writes on a standard error of this kind."
    def run(stream: io.StringIO, total: int = 200, **options) -> str:
        monkeypatch.setattr(sys, "stderr", stream)
        seen = list(progress(range(total), "tiles", **options))
        with progress(desc="pairs", total=total, **options) as bar:
            for _ in range(total): bar.update()
            bar.set_postfix({"loss": "1"}, refresh=False)
            bar.clear()
        announce("the page is written")
        assert seen == list(range(total))
        return stream.getvalue()
    return run


def test_a_file_gets_a_line_for_every_tenth_and_no_bar(shown):
    text = shown(io.StringIO(), delay=0)
    lines = text.splitlines()
    assert "\r" not in text and len(lines) == 21 and lines[-1] == "the page is written"
    assert [line.split(", ")[0] for line in lines[:10]] == [f"tiles: {p} %" for p in range(10, 101, 10)]
    assert lines[10].startswith("pairs: 10 %, 20 of 200")


def test_work_that_goes_on_starts_where_it_was_left(shown):
    with_rest = shown(io.StringIO(), delay=0, initial=120).splitlines()
    assert with_rest[0].startswith("tiles: 70 %")


def test_a_terminal_gets_a_bar(shown):
    text = shown(Terminal(), delay=0)
    assert "\r" in text and "tiles: 100%" in text


def test_short_work_is_not_worth_a_line(shown):
    assert shown(io.StringIO()) == "the page is written\n"


@pytest.mark.parametrize("stream", [io.StringIO, Terminal])
def test_quiet_and_disabled_bars_show_nothing(shown, monkeypatch, stream):
    assert "tiles" not in shown(stream(), delay=0, disable=True)
    monkeypatch.setenv("INVARIANT_METRICS_QUIET", "1")
    assert shown(stream(), delay=0) == ""
