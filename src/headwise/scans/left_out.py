"""Left out: the parts of a model whose attention a scan did not measure, and the reasons.

In: a model and the sums of its scan. Out: a reason for each stack or class of modules.
"""

import warnings

from torch import nn

from headwise.measures.head_sums import LayerKey
from headwise.scans.sums import ScanSums
from headwise.watching.sites import Site, find_sites, find_unknown

DID_NOT_RUN = "it did not run on what was read"
UNKNOWN = "its modules neither use transformers' attention interface nor return their weights"


def find_left_out(model: nn.Module, sums: ScanSums) -> dict[str, str]:
    """Reason for each stack, layer or class of modules whose heads are not in the table."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about the classes that are named here
        sites = find_sites(model)
    unknown = find_unknown([site.name for site in sites], dict(model.named_modules()))
    reasons = dict.fromkeys(sorted({type(module).__name__ for module in unknown}), UNKNOWN)
    by_stack: dict[str, list[Site]] = {}
    for site in sites:
        by_stack.setdefault(site.stack, []).append(site)
    for stack, members in by_stack.items():
        missing = [site for site in members if _key(site) not in sums.heads.num_heads]
        if len(missing) == len(members):
            reasons[stack or "all layers"] = sums.left_out.get(members[0].layer_name, DID_NOT_RUN)
        else:
            reasons |= {
                site.layer_name: sums.left_out.get(site.layer_name, DID_NOT_RUN) for site in missing
            }
    return reasons


def _key(site: Site) -> LayerKey:
    return site.stack, site.layer
