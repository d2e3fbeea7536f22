"""Views: tables for the terminal and the report, made of what other folders measured."""
