"""The Compare page: headline, tiles, figures, the window, and the tabs below them."""
