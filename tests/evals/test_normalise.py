"""Values in text: every spelling of one value is the same value, and another one is not."""

import pytest

from evals.judges.claims import clean, find_values, same_value


def same(one: str, other: str) -> bool:
    gold, answer = find_values(clean(one)), find_values(clean(other))
    assert gold and answer, (gold, answer)
    return len(gold) == len(answer) and all(map(same_value, gold, answer))


@pytest.mark.parametrize(
    ("spellings", "another"),
    [
        (["$12,400", "12,400 dollars", "$12.4k", "US$ 12400"], "12,400 euros"),
        (["12.4k", "$12,400"], "$12,401"),
        (["$3.2 million", "$3.2M", "$3.2MM", "3,200,000 dollars"], "$3.3 million"),
        (["5.5 cents", "$0.055"], "$5.50"),
        (["£412.50", "four hundred and twelve pounds fifty", "GBP 412.50"], "$412.50"),
        (["20%", "twenty percent", "20 pct"], "$20"),
        (["2½ %", "two and a half percent", "2.5 per cent"], "2%"),
        (["two thirds", "⅔", "2 out of every 3", "67%"], "three quarters"),
        (["twenty-five people", "25"], "26"),
        (["two hundred and five", "205"], "250"),
        (["a dozen", "12"], "20"),
        (["in triplicate", "3 copies"], "2 copies"),
        (["the 7th edition", "seventh edition"], "sixth edition"),
        (["two weeks", "14 days", "2-week"], "2 days"),
        (["18 months", "18-month", "a year and a half"], "18 weeks"),
        (["2 hours 45 minutes", "2h45", "165 minutes"], "2 hours"),
        (["Two and a half years", "30 months", "2½ years"], "2 years 5 months"),
        (["1,400 MW", "1400 megawatts"], "1,400 miles"),
        (["77 °F", "25 degrees Celsius"], "77 °C"),
        (["(713) 555-0148", "713.555.0148", "+1 713 555 0148"], "713-555-0149"),
        (["Kim.Ward@Example.com", "kim.ward@example.com."], "kim@example.com"),
        (["room EB49C1", "eb49c1", "EB-49C1"], "EB49C2"),
        (["invoice #20391", "Invoice no. 20391", "#20391"], "#20392"),
        (["v4.10.2", "4.10.2"], "4.10.3"),
        (["https://x.example/a", "https://x.example/a."], "https://x.example/b"),
        (["3:30 p.m.", "15:30", "3.30 PM", "half past three in the afternoon"], "3:30 am"),
        (["3:30", "15:30"], "4:30"),
        (["noon", "12:00 pm"], "midnight"),
        (["3-4 pm", "15:00 to 16:00"], "3-5 pm"),
        (["9:30 in the evening", "21:30"], "9:30 am"),
        (["14:30 UTC", "14:30 GMT"], "14:30 Eastern"),
        (["4 pm Central", "16:00 (Chicago)"], "4 pm EST"),
        (["31 August", "the last day of August"], "30 August"),
        (["September 2003", "9/2003"], "9/2002"),
    ],
)
def test_spellings_of_one_value(spellings: list[str], another: str) -> None:
    for one in spellings:
        assert not same(one, another), one
        for other in spellings:
            assert same(one, other), (one, other)
