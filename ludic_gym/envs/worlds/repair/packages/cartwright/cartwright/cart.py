"""The lines of a cart."""


class Cart:
    """Items with a price in cents, a quantity and a weight in grams each."""

    def __init__(self):
        self.lines = {}

    def add(self, item, price, quantity=1, weight=0):
        """Add items; more of an item that is in the cart keep its first price."""
        if quantity < 1:
            raise ValueError(f"quantity must be 1 or more, got {quantity}")
        if price < 0:
            raise ValueError(f"price must not be negative, got {price}")
        if item in self.lines:
            old_price, old_quantity, old_weight = self.lines[item]
            self.lines[item] = (old_price, old_quantity + quantity, old_weight)
        else:
            self.lines[item] = (price, quantity, weight)

    def remove(self, item, quantity=None):
        """Remove some of an item, or all of it; the number that was removed."""
        if item not in self.lines:
            return 0
        price, present, weight = self.lines[item]
        if quantity is None or quantity >= present:
            del self.lines[item]
            return present
        self.lines[item] = (price, present - quantity, weight)
        return quantity

    def subtotal(self):
        """The sum of all lines."""
        return sum(price * quantity for price, quantity, _ in self.lines.values())

    def weight(self):
        """Grams of all items."""
        return sum(quantity * weight for _, quantity, weight in self.lines.values())

    def count(self):
        """The number of items."""
        return sum(quantity for _, quantity, _ in self.lines.values())
