"""Adjusts the remaining weights so that a cut model acts like the uncut one."""
