// The load of ledger.hpp on RocksDB with its own files.
//
//   power-rocksdb FOLDER run|check   as there
//
// Small buffers and levels: flushes and compactions run all the time, and files come and go.

#include <rocksdb/db.h>
#include <rocksdb/write_batch.h>
#include <unistd.h>

namespace kv = ROCKSDB_NAMESPACE;
#include "ledger.hpp"

int main(int count, char** arguments) {
  if (count != 3) return 2;
  // Nobody waits for it forever.
  alarm(120);
  kv::Options options;
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
  std::unique_ptr<kv::DB> db = ledger::OpenAt(options, std::string(arguments[1]) + ledger::kPath);
  if (std::string(arguments[2]) == "run") ledger::Run(db.get());
  ledger::Must(db->VerifyChecksum(), "checksums");
  ledger::Check(db.get());
  db.reset();
  return 0;
}
