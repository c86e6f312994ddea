"""The page on speed, and the results of which it is."""

import json

import speed_page

OURS = {"median": 80.0, "best": 100.0, "ratio": 1.0}
LINE = {
    "what": "Game: steps",
    "goal": 90.0,
    "goal_ratio": 1.2,
    "limit": "a generator",
    "missing": ["Other"],
    "rates": {
        "ours": OURS,
        "Peer": {"median": 40.0, "best": 50.0, "ratio": 1.9},
        "a generator": {"median": 160.0, "best": 200.0, "ratio": 0.5},
    },
}


def test_the_page_is_that_of_the_results():
    text = speed_page.PAGE.read_text(encoding="utf-8")
    assert speed_page.with_results(text) == text


def test_a_line_has_a_row_for_each_peer_and_the_limit_and_one_without_peers_its_goal(
    tmp_path, monkeypatch
):
    alone = {**LINE, "what": "Alone", "limit": "", "missing": [], "rates": {"ours": OURS}}
    found = {"date": "today", "python": "3.11", "packages": {}, "lines": [LINE, alone]}
    (tmp_path / "rows.json").write_text(json.dumps(found))
    monkeypatch.setattr(speed_page, "RESULTS", tmp_path)
    (section,) = speed_page.sections()
    assert section.splitlines()[-4:] == [
        "| Game: steps | 80 | 100 | Peer | 40 | 1.90 | 1.2x |",
        "| | | | limit: a generator | 160 | 0.50 | 90 |",
        "| | | | Other | not installed | | |",
        "| Alone | 80 | 100 | | | | 90 |",
    ]


def test_text_outside_the_marks_stays():
    page = f"# Title\n{speed_page.BEGIN}old\n{speed_page.END}Notes\n"
    text = speed_page.with_results(page)
    assert text.startswith(f"# Title\n{speed_page.BEGIN}")
    assert text.endswith(f"{speed_page.END}Notes\n")
    assert "old\n" not in text
