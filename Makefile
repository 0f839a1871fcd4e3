.PHONY: setup run demo test night check book bench install rocksdb leveldb

# Packages and toolchain components on a fresh machine, without asking.
setup:
	@scripts/setup.sh

# Starts a server with two tenants on an emulated SSD in diecut-data/; prints how to connect; Ctrl-C stops it.
run: setup
	cargo build --release --quiet -p diecut-cli
	target/release/diecut serve --setup setups/two-tenants.toml

# A reader beside a flooding writer under all four isolation levels, in virtual time.
demo: setup
	cargo run --release --quiet -p diecut-cli -- demo noisy-neighbour

# Everything that must hold: check, unit and model tests, real Linux hosts. Ends with a table of minutes.
test:
	@scripts/setup.sh rocksdb leveldb vlfs power book
	cargo xtask ci

# Long seeds of the simulated stack, then every fuzz target for FUZZ_MINUTES. FIRST_SEED=N starts elsewhere.
FUZZ_MINUTES ?= 10
SEEDS ?= 3000
FIRST_SEED ?= 2000
night: setup
	cargo xtask night --fuzz-minutes $(FUZZ_MINUTES) --seeds $(SEEDS) --first-seed $(FIRST_SEED)

# What can be said of the code without running it: format, lints, arrows, documents.
check: setup
	cargo xtask check

# The pages as a book, with every link followed: target/book/html/index.html.
book:
	@scripts/setup.sh book
	cargo xtask book

# The server against the raw socket loop, against fio on a file, and the engines alone, one configuration, one run; a quarter of an hour. Server
# and load take a core each: run it on a machine at rest. BENCH="--json" or BENCH="--only a" change what is done. Instructions are
# counted under valgrind, which is installed too, as fio is. Files of 10 GiB lie in this folder meanwhile.
bench:
	@scripts/setup.sh bench
	cargo build --release --quiet -p diecut-bench -p diecut-cli --bins
	cargo build --release --quiet -p diecut-bench --examples
	cargo build --release --quiet -p diecut-sim --example steady_writes
	target/release/diecut-bench all $(BENCH)

# The C interface of erase blocks for applications: diecut.h, libdiecut.so, libdiecut.a, diecut.pc. DESTDIR is for packages.
PREFIX ?= /usr/local
install: setup
	cargo build --release --quiet -p diecut-abi
	@DESTDIR=$(DESTDIR) scripts/install.sh $(PREFIX)

# RocksDB's plug-in for erase blocks: target/release/libdiecut_rocksdb.so, for LD_PRELOAD or for linking.
rocksdb:
	@scripts/setup.sh rocksdb
	cargo build --release --quiet -p diecut-blockfile-abi
	@scripts/plugin.sh rocksdb target/release

# LevelDB's: target/release/libdiecut_leveldb.so, for LD_PRELOAD or for linking.
leveldb:
	@scripts/setup.sh leveldb
	cargo build --release --quiet -p diecut-blockfile-abi
	@scripts/plugin.sh leveldb target/release
