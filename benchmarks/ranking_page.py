"""How long the page of a ranking takes to write, and a browser to list, filter and open: 34,026 pictures and about 28,817 failures.

    python benchmarks/ranking_page.py [PICTURES]     (default 34026; needs Chromium on the PATH)

Kept in nbs/results/ranking_page.csv. A reader should have the first list within a second and a filter within 100 ms.
"""
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]/"tests"))

import pandas as pd
from drawn_corpus import drawn_annotations
from drawn_ranking import drawn_ranking
from pipe_browser import browser

from invariant_metrics.rankings.ranking_report import write_ranking_page

TIMED = """const $ = id => document.getElementById(id), tell = (id, kind) => $(id).dispatchEvent(new Event(kind, {bubbles: true}));
const start = performance.now(); %s; document.body.offsetHeight; return performance.now() - start"""
STEPS = {"sort by CA, first": "$('sort').value = 'ca'; tell('sort', 'change')", "sort by rank, again": "$('sort').value = 'rank'; tell('sort', 'change')",
         "filter by class": "document.querySelector('#kinds button').click()", "no filter": "document.querySelector('#found button').click()",
         "filter by words": "$('words').value = 'man tree'; tell('words', 'input')", "no words": "$('words').value = ''; tell('words', 'input')",
         "filter by concept": "document.querySelector('#offers [data-concept]').dispatchEvent(new MouseEvent('mousedown', {bubbles: true, cancelable: true}))",
         "filter by its place": "$('role').value = '1'; tell('role', 'change')"}
OPEN = """const start = performance.now(), seen = new Promise(done => new MutationObserver((_, o) => { o.disconnect(); done(performance.now() - start); })
  .observe(document.getElementById('opened'), {childList: true})); location.hash = '#failure-%d'; return seen"""


def until(page, condition: str) -> None:
    while not page.script(f"return Boolean({condition})"): time.sleep(0.05)


def measured(path: Path) -> dict[str, float]: # what -> milliseconds
    with browser(path) as page:
        page.view(1280)
        until(page, "performance.getEntriesByName('ready').length")
        marks = {name: page.script(f"return performance.getEntriesByName('{name}')[0].startTime") for name in ("first-list", "ready")}
        found = {"first list": marks["first-list"], "everything unpacked": marks["ready"]}
        page.script("const e = document.getElementById('concept'); e.focus(); e.value = 'tree'; e.dispatchEvent(new Event('input', {bubbles: true}))")
        until(page, "document.querySelector('#offers [data-concept]')")
        for what, code in STEPS.items(): found[what] = page.script(TIMED % code)
        for failure in (10, 20_000): found[f"open failure {failure}"] = page.script(OPEN % failure)
        assert not page.console(), page.console()
        return found


def main() -> None:
    result = drawn_ranking(drawn_annotations(int(sys.argv[1]) if len(sys.argv) > 1 else 34_026), {"drawn": 0.153})
    with tempfile.TemporaryDirectory() as folder:
        start = time.process_time()
        path = write_ranking_page(result, folder)
        rows = [("failures", len(result.models[0].explanations.frame), ""), ("write the page", time.process_time() - start, "s of CPU"), ("size", path.stat().st_size / 1e6, "MB")]
        rows += [(what, value, "ms") for what, value in measured(path).items()]
    frame = pd.DataFrame(rows, columns=["what", "value", "unit"]).round({"value": 1})
    print(frame.to_string(index=False))
    frame.to_csv(Path(__file__).parents[1]/"nbs/results/ranking_page.csv", index=False)


if __name__ == "__main__": main()
