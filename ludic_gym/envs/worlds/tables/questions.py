"""Questions about tables of sales: their answers from the columns, and programs that find them.

The two are independent: an answer comes from the clean columns in memory, a program reads and
cleans the files.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from ludic_gym.envs.core.base import between, pick, shuffled
from ludic_gym.envs.worlds.tables.sales import (
    CATEGORIES,
    CHANNELS,
    PRODUCTS,
    REGIONS,
    Sales,
)

MONTHS = ("January", "February", "March", "April", "May", "June", "July", "August", "September",
          "October", "November", "December")  # fmt: skip


@dataclass(frozen=True, slots=True)
class TableQuestion:
    """A question, its answer (nan if the table has no rows for it), and a Python expression.

    The expression is over `rows`, a list of dictionaries as `PROGRAM` reads them.
    """

    text: str
    answer: float
    expression: str


Maker = Callable[[Sales, np.random.Generator], TableQuestion]
PROGRAM = """\
import csv, os, statistics

products = {{}}
if os.path.exists("products.csv"):
    products = {{line["product"]: line for line in csv.DictReader(open("products.csv"))}}
rows = []
for line in {{line["order"]: line for line in csv.DictReader(open("sales.csv"))}}.values():
    row = {{name: value.strip().lower() for name, value in line.items()}}
    row["units"] = int(row["units"])
    row["price"] = float(row["price"].replace("eur", ""))
    row["revenue"] = row["units"] * row["price"]
    row["month"] = int(row["day"][5:7])
    if products:
        about = products[row["product"]]
        row["category"] = about["category"]
        row["profit"] = row["units"] * (row["price"] - float(about["cost"]))
    rows.append(row)
print(round({expression}, 2))
"""


def revenue(sales: Sales, rng: np.random.Generator) -> TableQuestion:
    """Revenue of a region."""
    region = pick(rng, REGIONS)
    text = f"What is the total revenue (units times price) of the region {region}?"
    answer = float(np.sum(sales.revenue[sales.region == region]))
    return TableQuestion(text, answer, f"sum({_values('revenue', region=region)})")


def mean_price(sales: Sales, rng: np.random.Generator) -> TableQuestion:
    """Price per unit in a channel, over all units."""
    channel = pick(rng, CHANNELS)
    text = (
        f"What is the average price of a unit sold through the channel {channel}, that is, the "
        "revenue of the channel divided by its number of units?"
    )
    mask = sales.channel == channel
    answer = (
        float(np.sum(sales.revenue[mask]) / np.sum(sales.units[mask])) if mask.any() else np.nan
    )
    units = _values("units", channel=channel)
    return TableQuestion(text, answer, f"sum({_values('revenue', channel=channel)}) / sum({units})")


def share(sales: Sales, rng: np.random.Generator) -> TableQuestion:
    """Share of a channel in the revenue of a region."""
    region, channel = pick(rng, REGIONS), pick(rng, CHANNELS)
    text = (
        f"What percentage of the revenue (units times price) of the region {region} came through "
        f"the channel {channel}?"
    )
    here = sales.region == region
    both = here & (sales.channel == channel)
    answer = (
        float(100 * sales.revenue[both].sum() / sales.revenue[here].sum()) if both.any() else np.nan
    )
    part, whole = (
        _values("revenue", region=region, channel=channel),
        _values("revenue", region=region),
    )
    return TableQuestion(text, answer, f"100 * sum({part}) / sum({whole})")


def median(sales: Sales, rng: np.random.Generator) -> TableQuestion:
    """Median revenue of a month's orders."""
    month = between(rng, 1, 12)
    text = f"What is the median revenue (units times price) of the orders of {MONTHS[month - 1]}?"
    found = sales.revenue[sales.month == month]
    answer = float(np.median(found)) if len(found) else np.nan
    return TableQuestion(text, answer, f"statistics.median({_values('revenue', month=month)})")


def deviation(sales: Sales, rng: np.random.Generator) -> TableQuestion:
    """Standard deviation of a region's revenue per order."""
    region = pick(rng, REGIONS)
    text = (
        "What is the sample standard deviation (with n - 1) of the revenue (units times price) per "
        f"order in the region {region}?"
    )
    found = sales.revenue[sales.region == region]
    answer = float(np.std(found, ddof=1)) if len(found) > 1 else np.nan
    return TableQuestion(text, answer, f"statistics.stdev({_values('revenue', region=region)})")


def rated(sales: Sales, rng: np.random.Generator) -> TableQuestion:
    """Revenue of two products' orders without a rating."""
    first, second = shuffled(rng, PRODUCTS)[:2]
    text = (
        f"What is the total revenue (units times price) of the orders of the products {first} and "
        f"{second} that have no rating?"
    )
    # Two products: a single one may have no order without a rating.
    mask = np.isin(sales.product, (first, second)) & np.isnan(sales.rating)
    answer = float(sales.revenue[mask].sum()) if mask.any() else np.nan
    test = f'r["product"] in {(first, second)!r} and r["rating"] == ""'
    return TableQuestion(text, answer, f'sum(r["revenue"] for r in rows if {test})')


def profit(sales: Sales, rng: np.random.Generator) -> TableQuestion:
    """Profit of a category in a region, which needs both tables."""
    category, region = pick(rng, CATEGORIES), pick(rng, REGIONS)
    text = (
        "The profit of an order is its units times the difference of price and cost. What is the "
        f"total profit of the category {category} in the region {region}?"
    )
    mask = _in_category(sales, category) & (sales.region == region)
    answer = float(_profits(sales)[mask].sum()) if mask.any() else np.nan
    values = _values("profit", category=category, region=region)
    return TableQuestion(text, answer, f"sum({values})")


def best_month(sales: Sales, rng: np.random.Generator) -> TableQuestion:
    """Profit of the best month of a category."""
    category = pick(rng, CATEGORIES)
    text = (
        "The profit of an order is its units times the difference of price and cost. In the month "
        f"in which the category {category} had its highest total profit, how high was it?"
    )
    mask = _in_category(sales, category)
    if not mask.any():
        return TableQuestion(text, np.nan, "0")
    # Months are 1 to 12, so that index 0 stays empty.
    totals = np.bincount(sales.month[mask], weights=_profits(sales)[mask], minlength=13)
    test = f'r["category"] == {category!r} and r["month"] == m'
    total = f'sum(r["profit"] for r in rows if {test})'
    answer = float(totals[1:].max())
    return TableQuestion(text, answer, f"max({total} for m in range(1, 13))")


def spread(sales: Sales, rng: np.random.Generator) -> TableQuestion:
    """Difference of mean revenue between two categories."""
    first, second = shuffled(rng, CATEGORIES)[:2]
    text = (
        f"By how much is the mean revenue (units times price) per order of the category {first} "
        f"higher than that of the category {second}? The answer may be negative."
    )
    parts = [sales.revenue[_in_category(sales, name)] for name in (first, second)]
    answer = float(parts[0].mean() - parts[1].mean()) if all(map(len, parts)) else np.nan
    means = [f"statistics.mean({_values('revenue', category=name)})" for name in (first, second)]
    return TableQuestion(text, answer, " - ".join(means))


EASY: tuple[Maker, ...] = (revenue, mean_price, share)
MEDIUM: tuple[Maker, ...] = (*EASY[1:], median, deviation, rated)
KINDS: Mapping[str, tuple[Maker, ...]] = MappingProxyType(
    {"easy": EASY, "medium": MEDIUM, "hard": (median, deviation, rated, profit, best_month, spread)}
)


def _values(name: str, **conditions: str | int) -> str:
    """A list expression of a column's values in the rows that meet the conditions."""
    # Programs compare texts in lower case, because the case of regions is untidy.
    given = {k: v.lower() if isinstance(v, str) else v for k, v in conditions.items()}
    tests = [f'r["{column}"] == {value!r}' for column, value in given.items()]
    return f'[r["{name}"] for r in rows if {" and ".join(tests)}]'


def _in_category(sales: Sales, category: str) -> np.ndarray:
    names = [name for name, found in sales.category.items() if found == category]
    return np.isin(sales.product, names)


def _profits(sales: Sales) -> np.ndarray:
    costs = np.array([sales.cost[str(name)] for name in sales.product])
    profits: np.ndarray = sales.units * (sales.price - costs)
    return profits
