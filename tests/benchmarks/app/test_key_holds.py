"""The summary of how long keys were held."""

from benchmarks.app.key_holds import KEYS, summary


def test_a_summary_names_the_key_that_was_held_longest() -> None:
    runs = [
        {
            "opened_s": 1.0 + number,
            "longest_hold_while_opening_ms": 20.0,
            "pages": {page: [(page, 1.0), ("s", 5.0 + number)] for page in KEYS},
        }
        for number in range(2)
    ]
    found = summary(runs)
    assert found["opened_s"] == [1.0, 2.0]
    assert found["pages"]["3"] == {
        "keys": 4,
        "median_ms": 3.0,
        "longest_ms": 6.0,
        "longest_key": "s",
    }
