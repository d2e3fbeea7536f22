"""If shapes are checked, a wrong one raises an error."""

import jaxtyping
import pytest
import torch

from headwise.attention.attend import attend


def test_a_wrong_shape_is_noticed(pytestconfig: pytest.Config) -> None:
    if not pytestconfig.getoption("--jaxtyping-packages"):
        pytest.skip("shapes are not checked in this run; make test has one in which they are")
    queries = torch.zeros(2, 3, 4)
    with pytest.raises(jaxtyping.TypeCheckError, match="parameter 'queries'"):
        attend(queries, queries, queries)
