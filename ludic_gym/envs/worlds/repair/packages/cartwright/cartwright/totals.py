"""Totals of carts, with discounts and shipping."""

FREE_FROM = 5000
STEPS = ((500, 390), (2000, 590), (10000, 990))
HEAVY = 1990


def shipping(cart, discounted):
    """Shipping by weight; free for a discounted sum of 50 euros or more, and for no items."""
    if not cart.lines or discounted >= FREE_FROM:
        return 0
    for most, price in STEPS:
        if cart.weight() <= most:
            return price
    return HEAVY


def tax(amount, percent):
    """The tax contained in an amount, rounded to the nearest cent, halves up."""
    return (2 * amount * percent + (100 + percent)) // (2 * (100 + percent))


def receipt(cart, discounts=(), percent=19):
    """All sums by name. Discounts are functions of the cart; together they take all at most."""
    subtotal = cart.subtotal()
    discount = min(subtotal, sum(one(cart) for one in discounts))
    delivery = shipping(cart, subtotal - discount)
    total = subtotal - discount + delivery
    return {
        "subtotal": subtotal,
        "discount": discount,
        "shipping": delivery,
        "total": total,
        "tax": tax(total, percent),
    }
