.PHONY: setup test check

# Packages and toolchain components on a fresh machine, without asking.
setup:
	@scripts/setup.sh

# Everything that must hold: check, unit and model tests, real Linux hosts. Ends with a table of minutes.
test: setup
	cargo xtask ci

# What can be said of the code without running it: format, lints, arrows, documents.
check: setup
	cargo xtask check
