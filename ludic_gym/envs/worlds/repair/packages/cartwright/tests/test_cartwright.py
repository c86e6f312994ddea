import unittest

from cartwright import Cart, bulk, coupon, receipt, shipping, tax


class CartwrightTest(unittest.TestCase):
    def setUp(self):
        self.cart = Cart()
        self.cart.add("mug", 800, quantity=2, weight=300)

    def test_sums(self):
        self.assertEqual((self.cart.subtotal(), self.cart.count()), (1600, 2))

    def test_no_bulk(self):
        self.assertEqual(bulk(self.cart), 0)

    def test_coupon(self):
        self.assertEqual(coupon(self.cart, 100), 100)

    def test_shipping(self):
        self.assertEqual(shipping(self.cart, 1600), 590)

    def test_tax(self):
        self.assertEqual(tax(11900, 19), 1900)

    def test_total(self):
        self.assertEqual(receipt(self.cart)["total"], 2190)


if __name__ == "__main__":
    unittest.main()
