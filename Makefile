.PHONY: test check

# Everything that must hold, on a fresh machine.
test: check
	cargo test --workspace

# What can be said of the code without running it: format, lints, arrows, documents.
check:
	cargo xtask check
