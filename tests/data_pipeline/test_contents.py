"""What leaves is counted: addresses wherever they stand, and no id of a mail among them."""

from data_pipeline.sharing import Addresses, Contents, json_lines

ANN, BOB, EVE = "ann@harbor.example", "bob@harbor.example", "eve@evil.example"


def count(*values: object) -> int:
    addresses = Addresses()
    for each in values:
        addresses.add(each)
    return len(addresses)


def test_an_address_counts_once_wherever_it_stands() -> None:
    assert count({"inbox": ANN}, [f"Write to Ann <{ANN.upper()}>."], (f"{ANN}, {BOB}",)) == 2
    assert count({"inboxes": {ANN: "train", BOB: "test"}}, None, 3, True, 0.5) == 2
    assert count("nobody", "user@host", "@", {}) == 0


def test_a_text_that_is_json_is_taken_apart() -> None:
    # Read as it stands, the escape before the address would be part of it.
    observation = f'{{"from":"Bob <{BOB}>","body":"Hi\\n{ANN}"}}\n{{"note":"one turn left"}}'
    assert count({"content": observation}) == 2
    assert count({"content": observation}, {"content": f"Hi\n{ANN}"}, BOB) == 2


def test_ids_of_mails_are_no_addresses() -> None:
    row = {
        "message_ids": ["<7.ann@harbor.example>"],
        "sources": ["<8.ann@harbor.example>"],
        "handles": {"m1": "<9.ann@harbor.example>"},
        "content": '{"message_id":"<10.ann@harbor.example>"}',
        "reason": "cites <7.ann@harbor.example>, which has no answer",
    }
    assert count(row) == 0
    assert count({"reason": row["reason"]}, row) == 0
    assert count(row, EVE) == 1


def test_json_lines() -> None:
    assert list(json_lines('{"a":1}\n[2]')) == [{"a": 1}, [2]]
    for text in ("", "word", '{"a":1', '{"a":1}\nword', '"text"', "[" * 100_000):
        assert list(json_lines(text)) == []


def test_as_data() -> None:
    assert Contents(1, 2, 3, 4, 5, ("so",)).to_json() == {
        "questions": 1, "answers": 2, "mails": 3, "inboxes": 4, "addresses": 5, "notes": ["so"],
    }  # fmt: skip
