"""The page on speed and its pictures, and the results of which they are."""

from pathlib import Path

import pytest
import speed_page

ROOT = Path(__file__).parents[1]
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


def test_the_page_and_its_pictures_are_those_of_the_results():
    text = speed_page.PAGE.read_text(encoding="utf-8")
    assert speed_page.with_results(text) == text
    for name, svg in speed_page.pictures().items():
        assert (ROOT / "docs" / "img" / name).read_text(encoding="utf-8") == svg


def test_a_line_has_a_row_for_each_peer_and_the_limit():
    assert list(speed_page._rows(LINE)) == [
        "| Game: steps | 80 | 100 | Peer | 40 | 1.90 | 1.2x |",
        "| | | | limit: a generator | 160 | 0.50 | 90 |",
        "| | | | Other | not installed | | |",
    ]


def test_a_line_without_peers_has_its_goal():
    line = {**LINE, "limit": "", "missing": [], "rates": {"ours": OURS}}
    assert list(speed_page._rows(line)) == ["| Game: steps | 80 | 100 | | | | 90 |"]


def test_a_run_has_a_row_for_each_part_and_one_for_all():
    result = {
        "parts": ["playing", "learning"],
        "ours": {"playing": 2.0, "learning": 3.0},
        "by_hand": {"playing": 1.0, "learning": 4.0},
        "goal": 1.25,
    }
    found = {"date": "today", "python": "3.11", "packages": {}, "lines": result}
    assert speed_page._train_loop(found).splitlines()[-3:] == [
        "| playing | 2.00 | 1.00 | 2.00 |  |",
        "| learning | 3.00 | 4.00 | 0.75 |  |",
        "| all | 5.00 | 5.00 | 1.00 | at most 1.25 |",
    ]


def test_text_outside_the_marks_stays():
    page = f"# Title\n{speed_page.BEGIN}old\n{speed_page.END}Notes\n"
    text = speed_page.with_results(page)
    assert text.startswith(f"# Title\n{speed_page.BEGIN}")
    assert text.endswith(f"{speed_page.END}Notes\n")
    assert "old\n" not in text


def test_a_picture_has_a_point_for_each_size_and_series():
    svg = speed_page.picture("T", "n", (1, 10, 100), {"a": [1.0, 2.0, 4.0], "b": [5.0, 6.0, 7.0]})
    assert svg.count("<circle") == 6
    assert svg.count("<polyline") == 2
    # The smallest rate is at the lower end of the first size, the largest at the upper end.
    low, high = speed_page.HEIGHT - speed_page.MARGIN, speed_page.MARGIN
    assert f'<circle cx="{speed_page.MARGIN:.1f}" cy="{low:.1f}"' in svg.replace(
        'cx="60"', 'cx="60.0"'
    )
    assert f'cy="{high:.1f}"' in svg


def test_labels_of_two_series_are_on_two_sides_of_them():
    svg = speed_page.picture("T", "n", (1, 10), {"a": [1.0, 2.0], "b": [2.0, 1.0]})
    low, high = speed_page.HEIGHT - speed_page.MARGIN, speed_page.MARGIN
    assert svg.count(f'y="{low + 16.0}"') == svg.count(f'y="{high - 7.0}"') == 2


@pytest.mark.parametrize(
    ("rate", "text"), [(12_345, "12.3k"), (7.25, "7.25"), (1_002_078, "1M"), (999_900, "1M")]
)
def test_rates_are_short(rate, text):
    assert speed_page._short(rate) == text
