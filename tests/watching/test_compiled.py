"""Compiled models run uncompiled while they are watched, silenced or gated, and only then."""

from contextlib import AbstractContextManager
from typing import Any

import pytest
import torch
from torch import nn

from headwise.watching.gates import gate, mean_outputs, silence
from headwise.watching.watch import watch

from .helpers import run
from .tiny import output_of, tiny

pytestmark = pytest.mark.slow
each_kind = pytest.mark.parametrize("name", ["bert", "llama"])


class Compiled:
    """A tiny model behind `torch.compile`, with a backend that counts how often its graphs run."""

    def __init__(self, name: str) -> None:
        self.plain, self.inputs = tiny(name)
        self.graph_runs = 0
        torch._dynamo.reset()
        self.model: Any = torch.compile(self.plain, backend=self.count)
        self.want = output_of(run(self.model, self.inputs))
        assert self.graph_runs

    def count(self, graph: torch.fx.GraphModule, _: Any) -> Any:
        def counted(*args: Any) -> Any:
            self.graph_runs += 1
            return graph(*args)

        return counted

    def assert_is_compiled(self) -> None:
        before = self.graph_runs
        assert torch.equal(output_of(run(self.model, self.inputs)), self.want)
        assert self.graph_runs > before


def block(compiled: Compiled, model: nn.Module, verb: str) -> AbstractContextManager[Any]:
    if verb == "watch":
        return watch(model)
    if verb == "silence":
        return silence(model, "L0H1")
    return gate(model, {"L1": torch.zeros(compiled.plain.config.num_attention_heads)})


@each_kind
@pytest.mark.parametrize("verb", ["watch", "silence", "gate"])
def test_a_compiled_model_gives_the_plain_models_result(name: str, verb: str) -> None:
    compiled = Compiled(name)
    with block(compiled, compiled.plain, verb):
        want = output_of(run(compiled.plain, compiled.inputs))
    before = compiled.graph_runs
    with block(compiled, compiled.model, verb):
        got = output_of(run(compiled.model, compiled.inputs))
    assert torch.equal(got, want)
    assert compiled.graph_runs == before
    compiled.assert_is_compiled()


def test_every_call_of_a_compiled_model_is_recorded() -> None:
    compiled = Compiled("llama")
    with watch(compiled.model) as watched:
        run(compiled.model, compiled.inputs)
    assert [call.layer for call in watched.calls] == [0, 1, 2]
    assert len(mean_outputs(compiled.model, [compiled.inputs]).by_layer) == 3


def test_a_model_stays_compiled_after_blocks_that_end_in_any_order() -> None:
    compiled = Compiled("bert")
    first, second = watch(compiled.model), silence(compiled.model, "L0H0")
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    before = compiled.graph_runs
    run(compiled.model, compiled.inputs)
    assert compiled.graph_runs == before
    second.__exit__(None, None, None)
    compiled.assert_is_compiled()
