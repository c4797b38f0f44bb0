"""The grammar of filters, and what text from anybody does to it."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import xq
from xq.operators.failures import failure_of
from xq.operators.filters import LONGEST_FILTER, MOST_VALUES, Term, number, parse, quoted, seconds

READ = {
    "": [],
    "state:buried": [Term("state", ":", ("buried",))],
    "state:R,R": [Term("state", ":", ("R",))],
    "-tube:mail": [Term("tube", ":", ("mail",), True)],
    "age>1h age<2d": [Term("age", ">", ("1h",)), Term("age", "<", ("2d",))],
    "refused": [Term("", ":", ("refused",))],
    "a,b": [Term("", ":", ("a,b",))],
    "error:'connection refused'": [Term("error", ":", ("connection refused",))],
    'error:"a,b",c': [Term("error", ":", ("a,b", "c"))],
    r'error:"a \"b\" \\"': [Term("error", ":", ('a "b" \\',))],
    '"state:buried"': [Term("", ":", ("state:buried",))],
    "tube:mail,''": [Term("tube", ":", ("mail", ""))],
    "url:http://a:80/?b=c": [Term("url", ":", ("http://a:80/?b=c",))],
}

WRONG = {
    "a state:": "the term 'state:' is none",
    "state:R,": "is none",
    "age>": "is none",
    "-": "is none",
    '""': "is none",
    'error:"refused': "is none",
    'error:"a"b': "stands in quotes",
    '"a",b': "is none",
    "a\0b": "zero byte",
    "a\ud800": "half of a character",
    "a" * (LONGEST_FILTER + 1): "at most 2,000 characters",
    "state:" + ",".join(map(str, range(MOST_VALUES))) + " a": "at most 50 values",
}

texts = st.one_of(
    st.text(max_size=200),
    st.lists(st.sampled_from(["a", "state", ":", ">", ">=", "=", ",", "-", '"', "'", "\\", " ", "%", "_", "1h"])).map(
        "".join
    ),
)


@pytest.mark.parametrize("text", READ)
def test_a_filter_is_read_as_terms(text):
    assert parse(text) == READ[text]


@pytest.mark.parametrize("text", WRONG, ids=range(len(WRONG)))
def test_a_filter_that_is_none_is_refused_with_the_term_that_is_wrong(text):
    with pytest.raises(xq.BadValue, match=WRONG[text]):
        parse(text)


@settings(max_examples=1_000, derandomize=True, deadline=None)
@given(text=texts)
def test_any_text_is_a_filter_that_reads_as_itself_or_is_refused(text):
    with suppress(xq.BadValue):
        found = parse(text)
        assert parse(" ".join(map(str, found))) == found


@settings(max_examples=500, derandomize=True, deadline=None)
@given(value=st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1, max_size=100))
def test_any_value_can_be_quoted(value):
    tube, word = Term("tube", ":", (value,)), Term("", ":", (value,), True)
    assert parse(f"tube:{quoted(value)} -{quoted(value)}") == [tube, word]


def test_numbers_and_spans_of_time_are_read():
    term = Term("size", ">", ("1",))
    assert [number(term, each) for each in ("5", "-5", "2.5", "5.0", str(2**63 - 1))] == [5, -5, 2.5, 5, 2**63 - 1]
    assert [seconds(term, each) for each in ("90s", "5m", "1.5h", "2d")] == [90, 300, 5400, 172_800]
    for wrong in ("", "a", "1e5", "nan", "inf", "0x1", "\N{ARABIC-INDIC DIGIT FIVE}x", str(2**63), "9" * 40):
        with pytest.raises(xq.BadValue, match="needs a number"):
            number(term, wrong)
    for wrong in ("", "1", "1w", "-1h", "h", "1h1m", "9" * 40 + "d"):
        with pytest.raises(xq.BadValue, match="needs a span of time"):
            seconds(term, wrong)


# errors of the same kind

SAME = {
    "TimeoutError: no answer after 30 s\nTraceback": ("TimeoutError", "no answer after <n> s"),
    "KeyError: 'a'": ("KeyError", "<text>"),
    'ValueError: can\'t read "a b" of row 7': ("ValueError", "can't read <text> of row <n>"),
    "app.errors.Refused: user 3f2504e0-4f89-11d3-9a0c-0305e82c3301": ("app.errors.Refused", "user <uuid>"),
    "OSError: at 0x7f3a, commit 3f2504e04f89, face": ("OSError", "at <hex>, commit <hex>, face"),
    "RuntimeError": ("RuntimeError", ""),
    "connection refused: 10.0.0.1:80": ("", "connection refused: <n>"),
    None: ("", ""),
}


def test_what_varies_in_an_error_has_a_placeholder():
    for error, parts in SAME.items():
        found = failure_of(error)
        assert (found.error, found.message) == parts
    one, other = failure_of("E: row 1 of 'a'"), failure_of("E: row 22 of 'b c'\nmore")
    assert one.id == other.id != failure_of("F: row 1 of 'a'").id


HOSTILE = ["'", '"', "`'", "a", "a-", "1.", "0x", "12345678-", "a1", "'\"", "Z.", "\\", "-", "a:"]


@pytest.mark.parametrize("text", HOSTILE)
def test_a_hostile_error_or_filter_is_read_in_one_pass(text):
    assert len(failure_of("E: " + text * (500 // len(text))).id) == 12
    with suppress(xq.BadValue):
        assert parse('"' * ("\\" in text) + text * ((LONGEST_FILTER - 1) // len(text)))
