"""Shapes that configs say in other words."""

import json
from pathlib import Path
from typing import Any

import pytest

from headwise.errors import ModelError
from headwise.planning.configs import shape_from
from headwise.planning.shapes import Shape

SIZES = {"hidden_size": 48, "num_attention_heads": 6, "num_hidden_layers": 7}


def shape(folder: Path, config: object) -> Shape:
    path = folder / "config.json"
    path.write_text(json.dumps(config), encoding="utf-8")
    return shape_from(str(path))


@pytest.mark.parametrize(
    ("said", "local"),
    [
        ({"sliding_window": 5}, 7),
        ({"sliding_window": 5, "use_sliding_window": False}, 0),
        ({"sliding_window": 5, "sliding_window_pattern": 3}, 5),  # layers 2 and 5 are global
        ({"local_attention": 5, "global_attn_every_n_layers": 3}, 4),  # layers 0, 3 and 6 are
        ({"sliding_window": 5, "layer_types": ["sliding_attention", "full_attention"] * 4}, 4),
    ],
)
def test_local_layers_are_counted(tmp_path: Path, said: dict[str, Any], local: int) -> None:
    found = shape(tmp_path, SIZES | {"model_type": "mistral"} | said)
    assert (found.num_layers, found.num_local) == (7, local)
    assert found.window == (5 if local else None)


@pytest.mark.parametrize(
    ("said", "kv_heads"),
    [
        ({"model_type": "gpt_bigcode", "multi_query": True}, 1),
        ({"model_type": "falcon"}, 1),
        ({"model_type": "falcon", "multi_query": False}, 6),
        ({"model_type": "llama", "num_key_value_heads": 2}, 2),
        ({"model_type": "llama"}, 6),
    ],
)
def test_kv_heads_are_found(tmp_path: Path, said: dict[str, Any], kv_heads: int) -> None:
    assert shape(tmp_path, SIZES | said).num_kv_heads == kv_heads


def test_the_text_part_of_a_model_of_several_is_read(tmp_path: Path) -> None:
    nested = {"model_type": "gemma3", "text_config": SIZES}
    assert shape(tmp_path, nested).d_model == 48


def test_what_is_no_config_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="is no config: it holds a list"):
        shape(tmp_path, [1, 2])
    with pytest.raises(ModelError, match="has 'six' for num_attention_heads: no size"):
        shape(tmp_path, SIZES | {"num_attention_heads": "six"})
