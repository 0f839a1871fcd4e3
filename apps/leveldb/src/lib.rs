//! LevelDB on erase blocks: a plug-in in C++ (`plugin/diecut_leveldb.cc`), which this crate only tests.
//!
//! Place in the flow: LevelDB calls the plug-in's `Env`; it calls the C interface of files (`apps/blockfile-abi`), whose store
//! appends to erase blocks of a vSSD. `make leveldb` builds it. Programs that are linked with a distribution's LevelDB load it with
//! `LD_PRELOAD` and name the vSSD in `DIECUT_LEVELDB`; others link with it (`include/diecut_leveldb.h`).
//!
//! Invariants: what LevelDB synced is durable, with all that came before.
//!
//! What it does not know: erase blocks; no line of it touches their interface.
