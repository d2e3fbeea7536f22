"""HeadTable, Trace and CutPlan made visible; nothing is measured here."""
