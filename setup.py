"""Installs the package as settings.ini describes it, the one place where versions and requirements are written."""
import configparser
from pathlib import Path

from setuptools import find_packages, setup

here = Path(__file__).parent
config = configparser.ConfigParser(delimiters=["="])
config.read(here / "settings.ini", encoding="utf-8")
cfg = config["DEFAULT"]


def requirements(extra: str) -> list[str]:
    "What an extra installs: its own packages, and those of the extras that it brings."
    brought = [package for other in cfg.get(f"{extra}_extras", "").split() for package in requirements(other)]
    return list(dict.fromkeys([*cfg.get(f"{extra}_requirements", "").split(), *brought]))


extras = {key.rpartition("_")[0] for key in cfg if key.endswith(("_requirements", "_extras"))}

setup(
    name=cfg["lib_name"],
    version=cfg["version"],
    description=cfg["description"],
    long_description=(here / "README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    author=cfg["author"],
    author_email=cfg["author_email"],
    url=cfg["git_url"],
    license="Apache-2.0",
    keywords=cfg["keywords"],
    classifiers=[
        "Development Status :: 3 - Alpha",
        "Intended Audience :: Science/Research",
        "Natural Language :: English",
        "Programming Language :: Python :: 3.11",
        "Programming Language :: Python :: 3.12",
        "Programming Language :: Python :: 3.13",
    ],
    python_requires=f">={cfg['min_python']}",
    package_dir={"": "."}, # an editable install puts this folder on the path, so no folder of the package's name is taken for it
    packages=find_packages(include=["invariant_metrics", "invariant_metrics.*"]),
    package_data={"invariant_metrics": ["py.typed", "assets/*", "assets/**/*"]},
    install_requires=cfg["requirements"].split(),
    extras_require={extra: requirements(extra) for extra in sorted(extras)},
    entry_points={"console_scripts": cfg["console_scripts"].split(), "nbdev": [f"{cfg['lib_path']}={cfg['lib_path']}._modidx:d"]},
    zip_safe=False,
)
