//! RocksDB on erase blocks: a plug-in in C++ (`plugin/diecut_rocksdb.cc`), which this crate only tests.
//!
//! Place in the flow: RocksDB calls the plug-in's `FileSystem`; it calls the C interface of files
//! (`apps/blockfile-abi`), whose store appends to erase blocks of a vSSD. `make rocksdb` builds it; `db_bench` and other programs
//! of a distribution load it with `LD_PRELOAD`, through RocksDB's registry of objects.
//!
//! Invariants: what RocksDB synced is durable. Files that it thinks to live about as long share erase blocks.
//!
//! What it does not know: erase blocks; no line of it touches their interface.
