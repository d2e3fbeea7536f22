"""Lesson: a warm-up and seven steps on the learner's own sentence and a model's real weights.

In: a subject and a text. Out: steps with a text, one thing to do, one question and the numbers that
the browser draws. Every number comes from a trace, a watched pass or a gated one.

What `figures` hold, by step. Every step but the warm-up has `place`: `model`, `layer`, `head`,
`name` (L5H11), `position`, `token`, `tokens` (of the text, special ones included), `is_special` (a
truth value for each) and `is_cut` (whether the text was longer). Long vectors show 8 numbers.

- `warm-up`: `tokens`, `heads` (names), `formulas` and `shapes` by step, and the steps themselves as
  nested lists: `input, queries, keys, values, scores, scaled, masked, weights, mixed, concat, Wo,
  contributions, output`.
- `why-many`: `keys`, the tokens that are compared (without special ones and the first, if others
  are left); `heads`, a list of rows over them, scaled up to one, `{name, weights, entropy, largest,
  largest_key (a token), resting}`: what of the whole row is left out; `single`, of their average;
  `mean_entropy` and `mean_largest` of the heads. Entropies are in nats.
- `projections`: `input` (all of it, or null), `query`, `key`, `value` of the token in the head;
  `kv_head, is_grouped`, `d_model`, `shapes`, a list of `{step, formula, shape}`.
- `heads`: `d_model, d_key, d_value, num_heads, num_kv_heads, num_tokens`; `columns`, first and one
  past the last of the head; `kv_head_of` for each head; `groups`, for each KV head its heads;
  `table`, rows `{num_heads, d_key, numbers, scores, multiply_adds, remarks, is_own}`: numbers of a
  token's queries, scores of this text, and multiply-adds that they take.
- `scores`: `scores`, `scale`, `softcap` (or null), `added` (null for a token that is blocked),
  `sink` (or null), `scaled`, `weights`; `drag`, `{key, score, weight}` before any drag, where any
  score may be dragged; `step`, what a score grows by for 1 after scaling. The weights are the
  softmax of `scores x scale`, capped as `softcap tanh(x / softcap)`, plus `added`, over the tokens
  that are not blocked; a sink takes part in the sum alone.
- `mixing`: `kv_head, d_value, weights`, `values` and `parts` (weight times value; a row a token, 8
  numbers each), `mixed`, `lengths` (of every token's whole part), `difference` (largest, between
  the sum of parts and the mixed vector).
- `output`: `d_model, d_value, segregation_concat, segregation_output, difference` (largest, between
  the output and what the heads and the bias add), `adds_up`, `output`, `bias` (or null), `heads`, a
  list of `{name, columns, concat, concat_length, contribution, length, share, touched}`.
- `spare`: `unit` (cosine, nats or loss), `measure` (in words), `has_roles`, `role_words` by role;
  `next`, what a causal model would go on with, `{token, probability}`; `heads`, missed most first,
  `{name, head, rank, value, effect, share, roles (null without a table), next}`: `effect` is 0 for
  none, `next` holds the probabilities of the same tokens without the head.
"""

from headwise.explorer.lesson.facts import facts_of
from headwise.explorer.lesson.first_steps import heads, projections, warm_up, why_many
from headwise.explorer.lesson.last_steps import mixing, output, scores, spare
from headwise.explorer.lesson.quiz import STEPS, LessonStep, as_json, check
from headwise.heads import HeadTable
from headwise.pruning.setting import Subject

__all__ = ["STEPS", "LessonStep", "as_json", "check", "lesson"]


def lesson(
    subject: Subject,
    text: str,
    *,
    layer: int | None = None,
    head: int | None = None,
    position: int | None = None,
    table: HeadTable | None = None,
) -> tuple[LessonStep, ...]:
    """The warm-up and the seven steps, on the first tokens of a text.

    What is left open is chosen: the last word, and the sharpest head that looks from it mostly at
    one other word, in a layer whose heads differ. With a table of a scan, the last step tells the
    roles of the layer's heads.
    """
    facts = facts_of(subject, text, layer=layer, head=head, position=position, table=table)
    told = (why_many, projections, heads, scores, mixing, output, spare)
    steps = (warm_up(), *(tell(facts) for tell in told))
    assert tuple(step.name for step in steps) == STEPS
    return steps
