"""Places name every attention layer of a model, and refuse a model that has none to be watched."""

import pytest
import torch
from torch import Tensor, nn
from transformers import AutoConfig, AutoModel, PreTrainedConfig, PreTrainedModel
from transformers.masking_utils import create_causal_mask
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from headwise.errors import ModelError
from headwise.watching.sites import Site, find_sites, output_weight
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
def test_places_are_the_attention_modules_of_the_family(name: str) -> None:
    family = FAMILIES[name]
    model, _ = family_model(name)
    places, modules = find_sites(model), attention_modules(model, family)
    assert {place.name: place.module for place in places} == modules
    assert {place.is_routed for place in places} == {family.is_routed}
    for place in places:
        assert place.output_projection is output_projection(model, family, place.name)


@each_family
def test_stacks_and_layers_are_named_and_in_order(name: str) -> None:
    model, _ = family_model(name)
    got = [(place.stack, place.layer) for place in find_sites(model)]
    want = {
        stack: [(stack, layer) for layer in range(facts.num_layers)]
        for stack, facts in FAMILIES[name].stacks.items()
    }
    assert sorted(got) == sorted(one for layers in want.values() for one in layers)
    for stack, layers in want.items():
        assert [one for one in got if one[0] == stack] == layers
    assert [stack for stack, _ in got] == sorted((one[0] for one in got), key=[*dict(got)].index)


@each_family
def test_the_output_weight_has_a_row_for_each_number_that_a_head_gives(name: str) -> None:
    model, _ = family_model(name)
    for place in find_sites(model):
        projection = place.output_projection
        weight = output_weight(projection)
        one = torch.randn(weight.shape[0], dtype=torch.float64)
        want = (
            projection(one[None])[0]
            if projection.bias is None
            else projection(one[None])[0] - projection.bias
        )
        assert_same(one @ weight, want, roundings=weight.shape[0])


def test_layers_that_share_a_module_take_turns() -> None:
    model, _ = family_model("albert")
    places = find_sites(model)
    assert [(place.layer, place.turn) for place in places] == [(0, 0), (1, 1), (2, 2)]
    assert {type(place.loop).__name__ for place in places} == {"AlbertTransformer"}
    assert len({place.module for place in places}) == 1


def test_a_model_with_gaps_between_its_attention_layers_keeps_their_numbers() -> None:
    model, _ = family_model("llama")
    model = nn.ModuleDict({"layers": nn.ModuleList([nn.Identity(), model.model.layers[0]])})
    assert [(place.layer, place.name) for place in find_sites(model)] == [(1, "layers.1.self_attn")]


def test_layers_in_stages_are_counted_through() -> None:
    attention = [family_model("llama")[0].model.layers[n].self_attn for n in range(3)]
    stages = nn.ModuleList([nn.ModuleList(attention[:2]), nn.ModuleList(attention[2:])])
    assert [
        (place.stack, place.layer) for place in find_sites(nn.ModuleDict({"stages": stages}))
    ] == [
        ("", 0),
        ("", 1),
        ("", 2),
    ]


def test_stacks_without_a_known_name_are_called_by_their_path() -> None:
    first, second = (family_model("llama")[0].model.layers[n].self_attn for n in range(2))
    model = nn.ModuleDict({"query": nn.ModuleList([first]), "passage": nn.ModuleList([second])})
    assert [place.stack for place in find_sites(model)] == ["query", "passage"]


def test_two_stacks_of_one_name_are_told_apart() -> None:
    first, second = (family_model("llama")[0].model.layers[n].self_attn for n in range(2))
    model = nn.ModuleDict(
        {
            "encoder": nn.ModuleDict({"a": nn.ModuleList([first]), "b": nn.ModuleList([second])}),
        }
    )
    assert [place.stack for place in find_sites(model)] == ["encoder.a", "encoder.b"]


def test_a_decoder_beside_cross_attention_is_called_so() -> None:
    sizes = {"n_layer": 2, "n_head": 2, "n_embd": 8, "vocab_size": 11, "add_cross_attention": True}
    places = find_sites(model_of("gpt2", **sizes))
    assert [(place.stack, place.layer) for place in places] == [
        ("decoder", 0),
        ("decoder", 1),
        ("cross", 0),
        ("cross", 1),
    ]


def test_an_attention_module_alone_is_a_place() -> None:
    module = family_model("llama")[0].model.layers[1].self_attn
    [place] = find_sites(module)
    assert (place.stack, place.layer, place.name) == ("", 0, "")
    assert place.output_projection is module.o_proj


def test_a_model_without_attention_is_refused_by_name() -> None:
    model = model_of("mamba", hidden_size=8, num_hidden_layers=1, vocab_size=11, state_size=3)
    message = "MambaModel cannot be watched: no module of it looks like attention"
    with pytest.raises(ModelError, match=message):
        find_sites(model)
    with pytest.raises(ModelError, match=message), watch(model):
        pass


def test_attention_of_an_unknown_kind_is_refused_with_its_class() -> None:
    layer = nn.TransformerEncoderLayer(8, 2, batch_first=True)
    message = r"Sequential cannot be watched: its attention \(MultiheadAttention\) neither asks"
    with pytest.raises(ModelError, match=message):
        find_sites(nn.Sequential(layer))


def test_an_unrouted_transformers_model_that_hides_its_weights_is_refused_with_its_class() -> None:
    model = model_of(
        "big_bird",
        hidden_size=8,
        num_attention_heads=2,
        num_hidden_layers=1,
        vocab_size=11,
        intermediate_size=7,
    )
    with pytest.raises(ModelError, match=r"BigBirdModel cannot be watched.*BigBird\w*Attention"):
        find_sites(model)


def test_a_place_is_compared_by_what_it_names() -> None:
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


@pytest.mark.filterwarnings("error::UserWarning")
@pytest.mark.parametrize("family", [*FAMILIES.values(), *KIN.values()], ids=lambda one: one.name)
def test_nothing_is_missed_in_a_family_that_is_known(family: Family) -> None:
    find_sites(build(family))


def test_attention_that_is_left_out_is_named_where_it_was_asked() -> None:
    model = model_of(
        "bigbird_pegasus",
        d_model=8,
        encoder_layers=1,
        decoder_layers=1,
        encoder_attention_heads=2,
        decoder_attention_heads=2,
        vocab_size=11,
        encoder_ffn_dim=7,
        decoder_ffn_dim=7,
    )
    message = r"BigBirdPegasusModel is watched in part: its BigBird\w*Attention.* neither asks"
    with pytest.warns(UserWarning, match=message) as said:
        places = find_sites(model)
    assert {place.stack for place in places} == {"decoder", "cross"}
    assert [one.filename for one in said] == [__file__]
