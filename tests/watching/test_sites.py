"""`find_sites` finds every attention layer of a model, and rejects models without one."""

import pytest
import torch
from torch import Tensor, nn
from transformers import AutoConfig, AutoModel, PreTrainedConfig, PreTrainedModel
from transformers.masking_utils import create_causal_mask
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from headwise.errors import ModelError
from headwise.watching import sites as sites_module
from headwise.watching.sites import Site, find_output_projection, find_sites, output_weight
from headwise.watching.watch import watch

from ..attention.tolerance import assert_same
from ..pruning.kin import KIN
from .helpers import allow_weights, each_family, family_model
from .tiny import attention_modules, build, output_projection
from .tiny_configs import FAMILIES, Family

pytestmark = allow_weights


def model_of(model_type: str, **sizes: object) -> PreTrainedModel:
    return AutoModel.from_config(AutoConfig.for_model(model_type, **sizes)).eval()


@each_family
def test_sites_are_the_attention_modules_of_the_family(name: str) -> None:
    family = FAMILIES[name]
    model, _ = family_model(name)
    sites, modules = find_sites(model), attention_modules(model, family)
    assert {site.name: site.module for site in sites} == modules
    assert {site.is_routed for site in sites} == {family.is_routed}
    for site in sites:
        assert site.output_projection is output_projection(model, family, site.name)


@each_family
def test_stacks_and_layers_are_in_order(name: str) -> None:
    model, _ = family_model(name)
    got = [(site.stack, site.layer) for site in find_sites(model)]
    want = {
        stack: [(stack, layer) for layer in range(facts.num_layers)]
        for stack, facts in FAMILIES[name].stacks.items()
    }
    assert sorted(got) == sorted(pair for layers in want.values() for pair in layers)
    for stack, layers in want.items():
        assert [pair for pair in got if pair[0] == stack] == layers
    assert [stack for stack, _ in got] == sorted((pair[0] for pair in got), key=[*dict(got)].index)


@each_family
def test_output_weight_has_a_row_for_each_head_dimension(name: str) -> None:
    model, _ = family_model(name)
    for site in find_sites(model):
        projection = site.output_projection
        weight = output_weight(projection)
        row = torch.randn(weight.shape[0], dtype=torch.float64)
        want = (
            projection(row[None])[0]
            if projection.bias is None
            else projection(row[None])[0] - projection.bias
        )
        assert_same(row @ weight, want, roundings=weight.shape[0])


def test_layers_that_share_a_module_have_call_indices() -> None:
    model, _ = family_model("albert")
    sites = find_sites(model)
    assert [(site.layer, site.call_index) for site in sites] == [(0, 0), (1, 1), (2, 2)]
    assert {type(site.layer_loop).__name__ for site in sites} == {"AlbertTransformer"}
    assert len({site.module for site in sites}) == 1


def test_layers_between_others_without_attention_keep_their_numbers() -> None:
    model, _ = family_model("llama")
    model = nn.ModuleDict({"layers": nn.ModuleList([nn.Identity(), model.model.layers[0]])})
    assert [(site.layer, site.name) for site in find_sites(model)] == [(1, "layers.1.self_attn")]


def test_layers_in_stages_are_numbered_in_order() -> None:
    attention = [family_model("llama")[0].model.layers[n].self_attn for n in range(3)]
    stages = nn.ModuleList([nn.ModuleList(attention[:2]), nn.ModuleList(attention[2:])])
    assert [(site.stack, site.layer) for site in find_sites(nn.ModuleDict({"stages": stages}))] == [
        ("", 0),
        ("", 1),
        ("", 2),
    ]


def test_stacks_without_a_known_name_get_their_path() -> None:
    first, second = (family_model("llama")[0].model.layers[n].self_attn for n in range(2))
    model = nn.ModuleDict({"query": nn.ModuleList([first]), "passage": nn.ModuleList([second])})
    assert [site.stack for site in find_sites(model)] == ["query", "passage"]


def test_two_stacks_with_one_name_get_their_paths() -> None:
    first, second = (family_model("llama")[0].model.layers[n].self_attn for n in range(2))
    model = nn.ModuleDict(
        {
            "encoder": nn.ModuleDict({"a": nn.ModuleList([first]), "b": nn.ModuleList([second])}),
        }
    )
    assert [site.stack for site in find_sites(model)] == ["encoder.a", "encoder.b"]


def test_unnamed_layers_next_to_cross_attention_are_the_decoder() -> None:
    sizes = {"n_layer": 2, "n_head": 2, "n_embd": 8, "vocab_size": 11, "add_cross_attention": True}
    sites = find_sites(model_of("gpt2", **sizes))
    assert [(site.stack, site.layer) for site in sites] == [
        ("decoder", 0),
        ("decoder", 1),
        ("cross", 0),
        ("cross", 1),
    ]


def test_a_single_attention_module_is_a_site() -> None:
    module = family_model("llama")[0].model.layers[1].self_attn
    [site] = find_sites(module)
    assert (site.stack, site.layer, site.name) == ("", 0, "")
    assert site.output_projection is module.o_proj


def test_a_model_without_attention_raises() -> None:
    model = model_of("mamba", hidden_size=8, num_hidden_layers=1, vocab_size=11, state_size=3)
    with pytest.raises(ModelError, match=r"MambaModel.*no attention"):
        find_sites(model)
    with pytest.raises(ModelError, match="MambaModel"), watch(model):
        pass


def test_unknown_attention_raises_with_its_class() -> None:
    layer = nn.TransformerEncoderLayer(8, 2, batch_first=True)
    with pytest.raises(ModelError, match=r"Sequential.*MultiheadAttention"):
        find_sites(nn.Sequential(layer))


def test_an_unrouted_model_without_weights_raises_with_its_class() -> None:
    model = model_of(
        "rwkv", hidden_size=8, attention_hidden_size=8, num_hidden_layers=2, vocab_size=11
    )
    with pytest.raises(ModelError, match=r"RwkvModel.*RwkvSelfAttention"):
        find_sites(model)


def test_sites_are_compared_by_value() -> None:
    module = nn.Identity()
    first, second = (Site("", 0, "a", module, None, is_routed=True) for _ in range(2))
    assert first == second


class OwnConfig(PreTrainedConfig):
    model_type = "own_model_of_a_test"


class OwnAttention(nn.Module):
    """Attention written outside transformers, through its interface."""

    def __init__(self, config: OwnConfig) -> None:
        super().__init__()
        self.config, self.is_causal = config, True
        self.qkv, self.out_proj = nn.Linear(12, 36), nn.Linear(12, 12)

    def forward(self, x: Tensor, attention_mask: Tensor | None) -> Tensor:
        parts = (part.unflatten(-1, (3, 4)).transpose(1, 2) for part in self.qkv(x).chunk(3, -1))
        attention = ALL_ATTENTION_FUNCTIONS[self.config._attn_implementation]
        mixed, _ = attention(self, *parts, attention_mask, scaling=0.5)
        return self.out_proj(mixed.flatten(2))


class OwnModel(PreTrainedModel):
    """A model that a user might write in a notebook."""

    config_class = OwnConfig
    _supports_sdpa = True

    def __init__(self, config: OwnConfig) -> None:
        super().__init__(config)
        self.layers = nn.ModuleList([OwnAttention(config) for _ in range(2)])

    def forward(self, x: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        mask = create_causal_mask(self.config, x, attention_mask, past_key_values=None)
        for layer in self.layers:
            x = x + layer(x, mask)
        return x


@pytest.mark.parametrize("padded", [False, True])
def test_a_model_defined_outside_transformers_is_watched(padded: bool) -> None:
    model = OwnModel(OwnConfig()).double().eval()
    model.config._attn_implementation_internal = "sdpa"
    x = torch.randn(2, 7, 12, dtype=torch.float64)
    mask = (torch.arange(7) < torch.tensor([[4], [7]])).long() if padded else None
    with torch.no_grad(), watch(model) as watched:
        got = model(x, mask)
    with torch.no_grad():
        want = model(x, mask)
    assert_same(got, want, roundings=2 * (12 + 7))
    assert [(call.layer, call.num_heads) for call in watched.calls] == [(0, 3), (1, 3)]
    seen = watched.calls[0].weights() > 0
    allowed = torch.ones(7, 7, dtype=torch.bool).tril().expand(2, 3, 7, 7).clone()
    if padded:
        allowed[0, :, :, 4:] = False
    assert torch.equal(seen, allowed)


@pytest.mark.parametrize(
    "family", [*FAMILIES.values(), *KIN.values()], ids=lambda family: family.name
)
def test_the_row_and_the_search_by_name_find_the_same_projection(
    family: Family, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = build(family)
    by_row = [site.output_projection for site in find_sites(model)]
    assert by_row == [output_projection(model, family, site.name) for site in find_sites(model)]
    monkeypatch.setattr(sites_module, "find_family", lambda module: None)
    modules = dict(model.named_modules())
    names = attention_modules(model, family)
    searched = {name: find_output_projection(name, modules) for name in names}
    assert searched == {name: output_projection(model, family, name) for name in names}


@pytest.mark.filterwarnings("error::UserWarning")
@pytest.mark.parametrize(
    "family", [*FAMILIES.values(), *KIN.values()], ids=lambda family: family.name
)
def test_no_attention_of_a_known_family_is_missed(family: Family) -> None:
    find_sites(build(family))


def test_left_out_attention_warns_at_the_callers_line() -> None:
    model = model_of(
        "minimax",
        hidden_size=8,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        vocab_size=11,
        intermediate_size=7,
        num_local_experts=2,
        layer_types=["linear_attention", "full_attention"],
    )
    message = r"MiniMaxModel.*MiniMaxLightningAttention"
    with pytest.warns(UserWarning, match=message) as caught:
        sites = find_sites(model)
    assert [site.layer for site in sites] == [1]
    assert [warning.filename for warning in caught] == [__file__]
