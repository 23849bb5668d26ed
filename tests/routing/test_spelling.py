"""Names of header fields as applications behind CGI and the like read them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gateway.routing.spelling import headers_of, is_misspelled, reserved_name, spellings_of

NAMES = st.text("abAB09-_.~!", min_size=1, max_size=8)


@given(name=NAMES, other=NAMES)
def test_names_that_an_application_takes_for_each_other_are_one(name: str, other: str) -> None:
    """Any character but a letter or digit equals a hyphen, and case is ignored."""
    folded = ["".join(c if c.isalnum() else "_" for c in one.lower()) for one in (name, other)]
    are_one = reserved_name(name.encode()) == reserved_name(other.encode())
    assert are_one == (folded[0] == folded[1])


@given(known=st.lists(NAMES, min_size=1, max_size=4), sent=NAMES)
def test_a_reserved_name_passes_in_the_spellings_that_are_looked_at(
    known: list[str], sent: str
) -> None:
    """In any case of its letters; another spelling of one is refused, another name is not."""
    reserved = spellings_of(known)
    is_known = sent.lower() in {name.lower() for name in known}
    is_like_one = reserved_name(sent.encode()) in {reserved_name(name.encode()) for name in known}
    assert is_misspelled(sent.encode(), reserved) == (is_like_one and not is_known)
    assert not is_misspelled(known[0].upper().encode(), reserved)


def test_key_words_name_header_fields() -> None:
    """And other things as well, which are left out."""
    assert headers_of(["ip", "header:x-a", "cookie:x-b", "header:x-c"]) == ["x-a", "x-c"]
