"""The Learn page: lessons, class, replays of papers, glossary and limits."""
