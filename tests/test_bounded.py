"""Files that someone else may have written: what is no file, too long or nested too deep is refused in a sentence."""

import os
import tomllib

import pytest

from sottovoce.bounded import MAX_TOML_BYTES, read_bounded, read_toml
from sottovoce.consortium.agreement import read_agreement
from sottovoce.data.schema import read_schema
from sottovoce.errors import SpecError
from sottovoce.node.runfile import read_run
from sottovoce.node.site import read_site

DEEP, LONG = "a = " + "[" * 900 + "]" * 900, "a = " + "9" * 5000


@pytest.mark.parametrize("read", [read_agreement, read_schema, read_run, read_site])
@pytest.mark.parametrize("text", [DEEP, LONG, "#" * (MAX_TOML_BYTES + 1)])
def test_every_reader_of_toml_refuses_in_a_sentence(read, text, tmp_path):
    path = tmp_path / "x.toml"
    path.write_text(text)
    with pytest.raises(SpecError):
        read(path)


@pytest.mark.parametrize("read", [read_agreement, read_schema, read_run, read_site])
def test_no_reader_waits_for_a_pipe(read, tmp_path):
    os.mkfifo(tmp_path / "x.toml")
    with pytest.raises(SpecError):
        read(tmp_path / "x.toml")


def test_what_fits_is_read_and_nothing_more(tmp_path):
    path = tmp_path / "x"
    path.write_bytes(b"a = 1")
    assert read_bounded(path, 5) == b"a = 1" and read_toml(path) == {"a": 1}
    with pytest.raises(OSError, match="more than 4 bytes"):
        read_bounded(path, 4)
    path.write_bytes(b"a = ")
    with pytest.raises(tomllib.TOMLDecodeError):
        read_toml(path)
