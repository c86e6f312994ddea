"""`benchmarks/rates.py`: rates, and ratios of works that are measured side by side."""

from rates import Rate, kept_line, rates_of, ratio_of


def test_a_ratio_is_the_median_of_those_of_the_rounds():
    # The machine runs four times as fast in the second round, twice in the third.
    ours, other = rates_of([[10.0, 40.0, 30.0], [5.0, 20.0, 10.0]])
    assert ours == Rate(30.0, 40.0, 1.0)
    # 2, 2 and 3; the medians' is 3.
    assert other == Rate(10.0, 20.0, 2.0)
    assert ratio_of(ours, other) == 2.0


def test_without_common_rounds_it_is_that_of_the_medians():
    assert ratio_of(Rate(30.0, 40.0), Rate(10.0, 20.0)) == 3.0


def test_a_result_has_the_ratio_of_each_rate():
    line = kept_line("x", {"ours": Rate(30.0, 40.0, 1.0), "peer": Rate(10.0, 20.0, 2.5)})
    assert {name: each["ratio"] for name, each in line["rates"].items()} == {"ours": 1, "peer": 2.5}
