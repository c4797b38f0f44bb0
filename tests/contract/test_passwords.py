"""No error shows the password of a URL."""

from __future__ import annotations

import traceback

import pytest

import xq

URLS = (
    "pg://u:SECRET@h:1/db",
    "postgresql://u:SECRET@h:port/db",
    "postgresql://u:SECRET/@h/db",
    "postgresql://u:SECRET[@h/db",
    "postgresql://u:SECRET\u2100@h/db",
    "postgresql://u:SECRET@h",
    "mariadb://h:port/db?password=SECRET",
    "pg://h/db?password=SECRET",
    "sqlite://u:SECRET@h",
    "u:SECRET@h/db",
    "u:SECRET://h/db",
    "host=h password=SECRET",
    b"postgresql://u:SECRET@h/db",
    {"password": "SECRET"},
)


def test_tubes_show_no_part_of_a_url_that_names_no_database():
    for url in URLS:
        with pytest.raises((xq.BadValue, xq.BadType)) as refused:
            xq.Tubes(url)
        told = "".join(traceback.format_exception(refused.value))
        assert "SECRET" not in told, url
