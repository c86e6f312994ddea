from dataclasses import replace
from pathlib import Path

from envs_registry.catalog import CATALOG
from envs_registry.page import environments_page, reference_page, row
from envs_registry.speeds import SPEEDS

DOCS = Path(__file__).parents[2] / "docs"


def test_the_page_is_what_the_catalogue_says():
    remedy = "run: python -m envs_registry.page > docs/environments.md"
    assert (DOCS / "environments.md").read_text(encoding="utf-8") == environments_page(), remedy


def test_the_reference_has_the_class_of_every_environment():
    page = (DOCS / "reference" / "environments.md").read_text(encoding="utf-8")
    remedy = "run: python -m envs_registry.page --reference > docs/reference/environments.md"
    assert page == reference_page(), remedy
    assert "\n::: ludic_gym.envs.games.tic_tac_toe.TicTacToeEnv\n" in page


def test_every_environment_is_on_the_page():
    assert all(f"| `{entry.id}` |" in environments_page() for entry in CATALOG)


def test_a_line_names_views_and_rates():
    assert row(CATALOG[0]) == (
        "| `ludic/TicTacToe-v0` | Three in a row, against random or perfect play, or between two "
        "agents. | Gymnasium, AEC, Parallel | 0.585 | 0.990 | 1.0 |\n"
    )


def test_an_environment_whose_speed_says_nothing_has_a_dash():
    assert row(replace(CATALOG[0], id="mine/Slow-v0")).endswith("| 0.585 | 0.990 | - |\n")


def test_speeds_are_of_environments_that_exist_over_that_of_tic_tac_toe():
    assert SPEEDS.keys() <= {entry.id for entry in CATALOG}
    assert min(SPEEDS.values()) > 0
    assert SPEEDS["ludic/TicTacToe-v0"] == 1.0
