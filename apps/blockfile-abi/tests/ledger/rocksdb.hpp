// What RocksDB is opened with for the load of ledger.hpp. Small buffers and levels: flushes and compactions run all the time, and files come and go.
// LEDGER_DIRECT in the environment: past the page cache.

#pragma once

#include <rocksdb/options.h>

#include <cstdlib>

namespace ledger {

inline ROCKSDB_NAMESPACE::Options SmallOptions() {
  ROCKSDB_NAMESPACE::Options options;
  options.create_if_missing = true;
  options.paranoid_checks = true;
  options.write_buffer_size = 256 << 10;
  options.target_file_size_base = 256 << 10;
  options.max_bytes_for_level_base = 1 << 20;
  options.max_bytes_for_level_multiplier = 4;
  options.max_background_jobs = 4;
  options.max_total_wal_size = 1 << 20;
  options.keep_log_file_num = 2;
  options.max_log_file_size = 1 << 20;
  if (getenv("LEDGER_DIRECT") != nullptr) {
    options.use_direct_io_for_flush_and_compaction = true;
    options.use_direct_reads = true;
  }
  return options;
}

}  // namespace ledger
