"""What somebody has run: named, tagged, compared, passed on and deleted."""
