"""Fixtures of the tests of the Python client and of other packages' extensions."""

from installed_packages import install_package  # noqa: F401
