"""Shopping carts: prices, discounts, shipping and tax, in cents."""

from cartwright.cart import Cart
from cartwright.discounts import bulk, coupon, three_for_two
from cartwright.totals import receipt, shipping, tax

__all__ = ["Cart", "bulk", "coupon", "receipt", "shipping", "tax", "three_for_two"]
