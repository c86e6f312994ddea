"""Discounts: functions of a cart that return cents to take off."""


def bulk(cart, least=10, percent=5):
    """A percentage of each line of at least that many items, rounded down per line."""
    return sum(
        price * quantity * percent // 100
        for price, quantity, _ in cart.lines.values()
        if quantity >= least
    )


def three_for_two(cart, items):
    """Of these items together, every third one is free: the cheapest ones."""
    prices = []
    for item in items:
        price, quantity, _ = cart.lines.get(item, (0, 0, 0))
        prices += [price] * quantity
    prices.sort()
    return sum(prices[: len(prices) // 3])


def coupon(cart, value, least=0):
    """A fixed value if the subtotal is at least `least`, but never more than the subtotal."""
    subtotal = cart.subtotal()
    if subtotal < least:
        return 0
    return min(value, subtotal)
