"""Generated tables of sales, and questions about them.

The two are independent: an answer comes from the clean columns in memory, a program reads and
cleans the files.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta

import numpy as np

from ludic_gym.envs.core.base import pick, random_int, random_order

REGIONS = ("North", "South", "East", "West", "Coast", "Hills")
CHANNELS = ("shop", "online", "phone")
PRODUCTS = ("lamp", "chair", "desk", "sofa", "shelf", "rug", "clock", "stool", "mirror", "vase")
CATEGORIES = ("light", "wood", "textile", "decor")
FIRST_DAY = date(2024, 1, 1)
DAYS = 366


@dataclass(frozen=True, slots=True)
class Sales:
    """Columns of the table, one value per order.

    month: 1 to 12. rating: 1 to 5, nan where it is missing. cost, category: by product.
    """

    day: tuple[str, ...]
    month: np.ndarray
    region: np.ndarray
    channel: np.ndarray
    product: np.ndarray
    units: np.ndarray
    price: np.ndarray
    rating: np.ndarray
    cost: dict[str, float]
    category: dict[str, str]

    @property
    def revenue(self) -> np.ndarray:
        """Units times price, per order."""
        product: np.ndarray = self.units * self.price
        return product


def drawn_sales(rows: int, missing: float, rng: np.random.Generator) -> Sales:
    """A table of that many orders. missing: share of the ratings that are missing."""
    days = [FIRST_DAY + timedelta(days=int(n)) for n in rng.integers(DAYS, size=rows)]
    # Of a product; each order differs from it by up to 30 %.
    base = {name: float(random_int(rng, 1000, 30000)) / 100 for name in PRODUCTS}
    product = rng.choice(PRODUCTS, size=rows)
    factors = rng.integers(70, 131, size=rows) / 100
    rating = rng.integers(1, 6, size=rows).astype(float)
    rating[rng.random(rows) < missing] = np.nan
    return Sales(
        day=tuple(day.isoformat() for day in days),
        month=np.array([day.month for day in days]),
        region=rng.choice(REGIONS, size=rows),
        channel=rng.choice(CHANNELS, size=rows),
        product=product,
        units=rng.integers(1, 13, size=rows),
        price=np.round(np.array([base[name] for name in product]) * factors, 2),
        rating=rating,
        cost={name: round(0.6 * price, 2) for name, price in base.items()},
        category={name: pick(rng, CATEGORIES) for name in PRODUCTS},
    )


def sales_file(
    sales: Sales, *, repeated: int, untidy: bool, rng: np.random.Generator
) -> tuple[bytes, str]:
    """The file sales.csv, and its first lines as text.

    repeated: number of lines that occur twice. untidy: regions differ in case and white space, and
    some prices have a currency before them.
    """
    lines = [
        [
            str(1000 + i), sales.day[i], str(sales.region[i]), str(sales.channel[i]),
            str(sales.product[i]), str(int(sales.units[i])), f"{sales.price[i]:.2f}",
            "" if np.isnan(sales.rating[i]) else str(int(sales.rating[i])),
        ]
        for i in range(len(sales.day))
    ]  # fmt: skip
    if untidy:
        for line in lines:
            line[2] = pick(rng, (line[2], line[2].lower(), line[2].upper(), f" {line[2]} "))
            line[6] = pick(rng, (line[6], line[6], f"EUR {line[6]}"))
    # After the untidiness: a repeated line is repeated letter by letter.
    doubled = [lines[int(i)] for i in rng.permutation(len(lines))[:repeated]]
    lines = [*lines, *doubled]
    order = rng.permutation(len(lines))
    head = ["order", "day", "region", "channel", "product", "units", "price", "rating"]
    text = file_text([head, *(lines[int(i)] for i in order)])
    return text.encode(), "\n".join(text.splitlines()[:4])


def products_file(sales: Sales) -> bytes:
    """The file products.csv."""
    lines = [[name, sales.category[name], f"{sales.cost[name]:.2f}"] for name in PRODUCTS]
    return file_text([["product", "category", "cost"], *lines]).encode()


def file_text(lines: Iterable[Sequence[str]]) -> str:
    """The lines as CSV."""
    file = io.StringIO()
    csv.writer(file, lineterminator="\n").writerows(lines)
    return file.getvalue()


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
    month = random_int(rng, 1, 12)
    text = f"What is the median revenue (units times price) of the orders of {MONTHS[month - 1]}?"
    revenues = sales.revenue[sales.month == month]
    answer = float(np.median(revenues)) if len(revenues) else np.nan
    return TableQuestion(text, answer, f"statistics.median({_values('revenue', month=month)})")


def deviation(sales: Sales, rng: np.random.Generator) -> TableQuestion:
    """Standard deviation of a region's revenue per order."""
    region = pick(rng, REGIONS)
    text = (
        "What is the sample standard deviation (with n - 1) of the revenue (units times price) per "
        f"order in the region {region}?"
    )
    revenues = sales.revenue[sales.region == region]
    answer = float(np.std(revenues, ddof=1)) if len(revenues) > 1 else np.nan
    return TableQuestion(text, answer, f"statistics.stdev({_values('revenue', region=region)})")


def rated_orders(sales: Sales, rng: np.random.Generator) -> TableQuestion:
    """Revenue of two products' orders without a rating."""
    first, second = random_order(rng, PRODUCTS)[:2]
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
    first, second = random_order(rng, CATEGORIES)[:2]
    text = (
        f"By how much is the mean revenue (units times price) per order of the category {first} "
        f"higher than that of the category {second}? The answer may be negative."
    )
    parts = [sales.revenue[_in_category(sales, name)] for name in (first, second)]
    answer = float(parts[0].mean() - parts[1].mean()) if all(map(len, parts)) else np.nan
    means = [f"statistics.mean({_values('revenue', category=name)})" for name in (first, second)]
    return TableQuestion(text, answer, " - ".join(means))


EASY: tuple[Maker, ...] = (revenue, mean_price, share)
MEDIUM: tuple[Maker, ...] = (*EASY[1:], median, deviation, rated_orders)
KINDS: Mapping[str, tuple[Maker, ...]] = {
    "easy": EASY,
    "medium": MEDIUM,
    "hard": (median, deviation, rated_orders, profit, best_month, spread),
}


def _values(name: str, **conditions: str | int) -> str:
    """A list expression of a column's values in the rows that meet the conditions."""
    # Programs compare texts in lower case, because the case of regions is untidy.
    wanted = {k: v.lower() if isinstance(v, str) else v for k, v in conditions.items()}
    tests = [f'r["{column}"] == {value!r}' for column, value in wanted.items()]
    return f'[r["{name}"] for r in rows if {" and ".join(tests)}]'


def _in_category(sales: Sales, category: str) -> np.ndarray:
    names = [name for name, other in sales.category.items() if other == category]
    return np.isin(sales.product, names)


def _profits(sales: Sales) -> np.ndarray:
    costs = np.array([sales.cost[str(name)] for name in sales.product])
    profits: np.ndarray = sales.units * (sales.price - costs)
    return profits
