"""Makes a LoadedModel from a name, a folder or a module; contains facts about model families."""
