// The load of ledger.hpp on RocksDB with its own files.
//
//   power-rocksdb FOLDER run|check   as there

#include <rocksdb/db.h>
#include <rocksdb/write_batch.h>
#include <unistd.h>

namespace kv = ROCKSDB_NAMESPACE;
#include "ledger.hpp"
#include "rocksdb.hpp"

int main(int count, char** arguments) {
  if (count != 3) return 2;
  // Nobody waits for it forever.
  alarm(120);
  kv::Options options = ledger::SmallOptions();
  std::unique_ptr<kv::DB> db = ledger::OpenAt(options, std::string(arguments[1]) + ledger::kPath);
  if (std::string(arguments[2]) == "run") ledger::Run(db.get());
  ledger::Must(db->VerifyChecksum(), "checksums");
  ledger::Check(db.get());
  db.reset();
  return 0;
}
