"""Puts what lies outside of packages into the wheel: the app's entry, its pages and settings."""

from __future__ import annotations

from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

FILES = (
    "app.py",
    ".streamlit/config.toml",
    *map(str, sorted(Path("pages").glob("*.py"))),
    *map(str, sorted(path for path in Path("docs").rglob("*") if path.suffix in (".md", ".png"))),
)


class WithApp(build_py):
    """Copies the files that ``trainyard app`` serves into trainyard/app/."""

    def run(self) -> None:
        """Build the packages, then add the app."""
        super().run()
        for file in FILES:
            target = Path(self.build_lib, "trainyard", "app", file)
            self.mkpath(str(target.parent))
            self.copy_file(file, str(target))


setup(cmdclass={"build_py": WithApp})
