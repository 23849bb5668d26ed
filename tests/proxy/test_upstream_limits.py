"""An upstream's fields about limits beside the gateway's, for whatever an upstream sends."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.proxy.upstream_limits import COMBINE
from tests.http.limits import parse_list

OURS = (
    b'RateLimit-Policy: "a\\\\b";q=9;w=2\r\nRateLimit: "a\\\\b";r=5;t=2\r\n'
    b"X-RateLimit-Limit: 9\r\nX-RateLimit-Remaining: 5\r\nX-RateLimit-Reset: 1\r\n"
)


def combined(how: str, fields: bytes, added: bytes = OURS) -> dict[str, list[str]]:
    """The fields of the response, by their names in lower case."""
    theirs, ours = COMBINE[how](fields, added)
    lines = (theirs[2:] + b"\r\n" + ours if theirs else ours).decode("latin-1").split("\r\n")[:-1]
    found: dict[str, list[str]] = {}
    for line in lines:
        name, _, value = line.partition(":")
        found.setdefault(name.lower(), []).append(value.strip())
    return found


NAMES = st.sampled_from(
    (
        *(b"RateLimit", b"ratelimit-policy", b"RateLimit-Limit", b"RATELIMIT-REMAINING"),
        *(
            b"X-RateLimit-Limit",
            b"x-ratelimit-remaining",
            b"X-RateLimit-Reset",
            b"X-RateLimit-Used",
        ),
        *(b"X-Other", b"Retry-After"),
    )
)
VALUES = st.one_of(
    st.sampled_from((b'"x";r=3;t=4', b'"x";q=3, "y";q=4;qu="content-bytes"', b"4", b"6", b"")),
    st.text('"\\;=, \t09rqt-.:?', max_size=12).map(str.encode),
    st.binary(max_size=8).map(lambda value: value.translate(None, b"\r\n\0")),
)
FIELDS = st.lists(st.tuples(NAMES, VALUES), max_size=8).map(
    lambda fields: b"".join(b"\r\n%b: %b" % field for field in fields)
)


@given(how=st.sampled_from(tuple(COMBINE)), fields=FIELDS)
def test_no_name_is_sent_by_both(how: str, fields: bytes) -> None:
    """Whatever an upstream sends; other fields stay, and a merged list is a valid one."""
    before = combined("keep", fields, b"")
    after = combined(how, fields)
    for name, values in after.items():
        if "ratelimit" not in name:
            assert values == before[name]
        elif how != "keep" or name not in before:
            assert len(values) == 1 or name not in combined("keep", b"")
    assert before.keys() - after.keys() <= {name for name in before if "ratelimit" in name}
    if how == "merge":
        assert parse_list(after["ratelimit"][0])[0] == ("a\\b", {"r": 5, "t": 2})
        (left,) = after["x-ratelimit-remaining"]
        assert int(left) <= 5


@pytest.mark.parametrize(
    ("theirs", "sent"),
    [
        (b'"x";r=3;t=4', '"a\\\\b";r=5;t=2, "x";r=3;t=4'),
        (b'"x";r=3 ,\t"y\\"";r=1;pk=:YQ==:', '"a\\\\b";r=5;t=2, "x";r=3 ,\t"y\\"";r=1;pk=:YQ==:'),
        (b"limit=10, remaining=5, reset=3", '"a\\\\b";r=5;t=2'),
        (b'"x;r=3', '"a\\\\b";r=5;t=2'),
        (b'"x";r=3,', '"a\\\\b";r=5;t=2'),
        (b'"\xff";r=3', '"a\\\\b";r=5;t=2'),
        (b"", '"a\\\\b";r=5;t=2'),
    ],
)
def test_only_valid_items_are_merged(theirs: bytes, sent: str) -> None:
    """A list with anything else in it is one that clients ignore as a whole."""
    assert combined("merge", b"\r\nratelimit: " + theirs)["ratelimit"] == [sent]


def test_items_of_several_lines_are_merged_into_one() -> None:
    """A list may be split over lines (RFC 9651, section 3.1)."""
    fields = b'\r\nRateLimit: "x";r=3\r\nratelimit: "y";r=4\r\nRateLimit-Policy: "x";q=7'
    found = combined("merge", fields)
    assert found["ratelimit"] == ['"a\\\\b";r=5;t=2, "x";r=3, "y";r=4']
    assert found["ratelimit-policy"] == ['"a\\\\b";q=9;w=2, "x";q=7']


@pytest.mark.parametrize(
    ("theirs", "left"),
    [([b"4"], "4"), ([b"5"], "5"), ([b"6"], "5"), ([b"4", b"3"], "5"), ([b"many"], "5"), ([], "5")],
)
def test_the_more_restrictive_of_both_is_told(theirs: list[bytes], left: str) -> None:
    """With all that belongs to it; an upstream that does not say it validly says nothing."""
    lines = b"".join(b"\r\nx-ratelimit-remaining: %b" % one for one in theirs)
    found = combined("merge", b"\r\nX-RateLimit-Used: 8" + lines)
    assert found["x-ratelimit-remaining"] == [left]
    assert ("x-ratelimit-used" in found) == (left == "4")
    assert ("x-ratelimit-limit" in found) == (left != "4")


@pytest.mark.parametrize(("left", "is_sent"), [(b"4", True), (b"5", False)])
def test_fields_of_old_drafts_stay_if_they_are_stricter(left: bytes, is_sent: bool) -> None:
    """They have room for one limit, like `X-RateLimit-*`."""
    fields = b"\r\nRateLimit-Limit: 10, 10;w=60\r\nRateLimit-Remaining: %b" % left
    assert ("ratelimit-limit" in combined("merge", fields)) == is_sent
    assert "ratelimit-limit" not in combined("replace", fields)
    assert "ratelimit-limit" in combined("keep", fields)
    assert "ratelimit" not in combined("keep", fields)
