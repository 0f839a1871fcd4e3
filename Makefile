.PHONY: test check

# Everything that must hold, on a fresh machine.
test:
	cargo fmt --all --check
	cargo test --workspace

check:
	cargo fmt --all --check
	cargo clippy --workspace --all-targets -- -D warnings
