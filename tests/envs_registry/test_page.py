from pathlib import Path

from envs_registry import CATALOG
from envs_registry.page import environments_page, row

PAGE = Path(__file__).parents[2] / "docs" / "environments.md"


def test_the_page_is_what_the_catalogue_says():
    remedy = "run: python -m envs_registry.page > docs/environments.md"
    assert PAGE.read_text(encoding="utf-8") == environments_page(), remedy


def test_every_environment_is_on_the_page():
    assert all(f"| `{entry.id}` |" in environments_page() for entry in CATALOG)


def test_a_line_names_views_and_rates():
    assert row(CATALOG[0]) == (
        "| `ludic/TicTacToe-v0` | Three in a row, against random or perfect play, or between two "
        "agents. | Gymnasium, AEC, Parallel | 0.585 | 0.990 |\n"
    )
