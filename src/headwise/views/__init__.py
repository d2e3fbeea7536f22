"""Turn results into tables and sentences for the terminal, the report and the model card."""
