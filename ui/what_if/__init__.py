"""The slider that redraws results while it moves."""
