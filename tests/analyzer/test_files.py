import pytest

from decodescope.analyzer.errors import InputError
from decodescope.analyzer.files import write_json
from decodescope.analyzer.schema.report import Finding


def test_json_for_people_is_indented_and_ends_with_a_newline(tmp_path):
    path = tmp_path / "result.json"
    write_json(path, Finding("code", "a sentence"))
    assert path.read_text() == '{\n  "code": "code",\n  "message": "a sentence"\n}\n'
    assert [found.name for found in tmp_path.iterdir()] == ["result.json"]


def test_a_folder_that_does_not_exist_is_an_input_error(tmp_path):
    with pytest.raises(InputError, match="cannot be written"):
        write_json(tmp_path / "none" / "result.json", {})
