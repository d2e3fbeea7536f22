"""Results become tables and sentences for the terminal, the report and the model card."""
