"""Experimental."""

import torch
from headwise.pruning.refit.normal_equations import NormalEquations
from headwise.pruning.refit.refit import best_correction, projection_at, LayerFit, _bias
from headwise.pruning.surgery.output_biases import add_output_biases
from headwise.watching.hooks import record
from headwise.watching.running import forward_batch, real_queries
from headwise.watching.sites import find_sites, output_weight


def collect(uncut, heads, samples_by_register, counts):
    sites = [s for s in find_sites(uncut) if any(h.layer_name == s.layer_name for h in heads)]
    modules = {s.layer_name: projection_at(s) for s in sites}
    sums = {}
    for register, samples in samples_by_register.items():
        for sample in samples:
            with torch.no_grad(), record(modules) as calls:
                forward_batch(uncut, sample.inputs)
            for call in calls:
                site = next(s for s in sites if s.layer_name == call.name)
                W = output_weight(modules[call.name]).detach()
                n = counts[call.name][0]
                d = W.shape[0] // n
                cut = [h.head for h in heads if h.layer_name == call.name]
                is_cut = torch.zeros(n, dtype=torch.bool)
                is_cut[cut] = True
                cols = is_cut.repeat_interleave(d)
                x = call.input
                rows = real_queries(uncut, sample.inputs, site.stack, x)
                x = x[rows]
                key = (call.name, register)
                if key not in sums:
                    sums[key] = NormalEquations(int((~cols).sum()), W.shape[1], has_bias=True)
                sums[key].add(x[:, ~cols], x[:, cols] @ W[cols])
    return sums


def one_pass(cut, sums, registers, variant, ridges=None):
    add_output_biases(cut)
    fits = []
    sites = {s.layer_name: s for s in find_sites(cut)}
    for layer in dict.fromkeys(k[0] for k in sums):
        fit, held = sums[layer, ""], [sums[layer, r] for r in registers]
        if ridges is not None:
            best, ridge = fit.solve(ridges), ridges
        else:
            ridge, best, worst = best_correction(fit, held, variant)
        p = projection_at(sites[layer])
        if best is not None:
            with torch.no_grad():
                output_weight(p).add_(best.weight.to(output_weight(p)))
                _bias(p).add_(best.bias.to(p.bias))
        fits.append((layer, ridge))
    return fits
