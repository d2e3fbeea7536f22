"""Adjusts the remaining weights so that a cut model behaves more like the uncut one."""
