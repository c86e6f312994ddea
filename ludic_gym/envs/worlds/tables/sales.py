"""Generated tables of sales, clean in memory and untidy in their files."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date, timedelta

import numpy as np

from ludic_gym.envs.core.base import between, pick

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
    base = {name: float(between(rng, 1000, 30000)) / 100 for name in PRODUCTS}
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
    text = written([head, *(lines[int(i)] for i in order)])
    return text.encode(), "\n".join(text.splitlines()[:4])


def products_file(sales: Sales) -> bytes:
    """The file products.csv."""
    lines = [[name, sales.category[name], f"{sales.cost[name]:.2f}"] for name in PRODUCTS]
    return written([["product", "category", "cost"], *lines]).encode()


def written(lines: Iterable[Sequence[str]]) -> str:
    """The lines as CSV."""
    file = io.StringIO()
    csv.writer(file, lineterminator="\n").writerows(lines)
    return file.getvalue()
