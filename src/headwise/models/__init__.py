"""A name, a folder or a module becomes a LoadedModel; facts about model families."""
