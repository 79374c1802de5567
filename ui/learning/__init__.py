"""The Learn page: lessons, paper replays, glossary, limits of the model."""
