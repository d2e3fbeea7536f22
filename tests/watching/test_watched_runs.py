"""Watching notices modules that skip the interface, and leaves transformers' own hooks alone."""

from typing import Any

import pytest
from torch import Tensor, nn
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from headwise.errors import ModelError
from headwise.watching.sites import find_sites
from headwise.watching.watch import watch

from .helpers import run
from .tiny import eagerly, tiny


def test_hooks_that_transformers_adds_during_the_check_stay() -> None:
    model, inputs = tiny("llama")
    sites = find_sites(model)
    with sites[0].module.register_forward_hook(lambda *_: None):
        with watch(model):
            model(**inputs, output_attentions=True)
        with eagerly(model):
            assert len(model(**inputs, output_attentions=True).attentions) == len(sites)


def test_a_model_whose_attention_is_never_called_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model, inputs = tiny("llama")
    kind = type(find_sites(model)[0].module)

    def skip(self: nn.Module, hidden_states: Tensor, *_: Any, **__: Any) -> tuple[Tensor, None]:
        if hidden_states is None:
            ALL_ATTENTION_FUNCTIONS.get("eager")
        return hidden_states, None

    monkeypatch.setattr(kind, "forward", skip)
    with pytest.raises(ModelError, match=f"{kind.__name__}.* ran, but did not use"):
        with watch(model):
            run(model, inputs)
