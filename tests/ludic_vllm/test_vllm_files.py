"""Params in folders of safetensors, and the checks before a server takes them."""

import pytest
import torch
from safetensors.torch import save_file

from ludic_vllm.files import format_of, params_in, require_formats

PARAMS = {"a": torch.arange(6.0).view(2, 3), "b": torch.full((5,), 7, dtype=torch.int8)}
FORMATS = {name: format_of(param) for name, param in PARAMS.items()}


def write(folder):
    for name, param in PARAMS.items():
        save_file({name: param}, folder / f"{name}.safetensors")


def test_params_come_from_all_files_of_a_folder_and_outlive_them(tmp_path):
    write(tmp_path)
    found = dict(params_in(tmp_path))
    for path in tmp_path.iterdir():
        path.unlink()
    assert {name: param.tolist() for name, param in found.items()} == {
        name: param.tolist() for name, param in PARAMS.items()
    }
    require_formats(found, FORMATS)


def test_a_folder_without_files_and_a_torn_file_are_refused(tmp_path):
    with pytest.raises(ValueError, match="must see the folder"):
        dict(params_in(tmp_path / "elsewhere"))
    write(tmp_path)
    torn = tmp_path / "a.safetensors"
    torn.write_bytes(torn.read_bytes()[:-1])
    with pytest.raises(ValueError, match=r"a\.safetensors cannot be read"):
        dict(params_in(tmp_path))


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"a": torch.zeros(3, 2)}, r"no params of a \[3, 2\] float32 \(here it is \[2, 3\]"),
        ({"a": torch.zeros(2, 3).half()}, r"a \[2, 3\] float16"),
        ({"b": torch.zeros(5)}, r"b \[5\] float32"),
        ({"c": torch.zeros(1)}, r"no params of c \[1\]"),
        ({"b": None}, "the update lacks b"),
    ],
)
def test_params_of_another_model_are_named(changes, reason):
    params = {n: p for n, p in {**PARAMS, **changes}.items() if p is not None}
    with pytest.raises(ValueError, match=reason):
        require_formats(params, FORMATS, {torch.float32, torch.bfloat16})


def test_floating_point_numbers_may_have_another_precision_where_the_server_allows_it():
    short = {**PARAMS, "a": PARAMS["a"].bfloat16()}
    require_formats(short, FORMATS, {torch.bfloat16})
    with pytest.raises(ValueError, match="bfloat16"):
        require_formats(short, FORMATS)


def test_the_first_four_wrong_names_are_listed():
    params = {f"p{i}": torch.zeros(1) for i in range(6)}
    with pytest.raises(ValueError, match=r"p0 .*, p3 \[1\] float32 and 2 more"):
        require_formats(params, {})
