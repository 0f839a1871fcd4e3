// The load of ledger.hpp on RocksDB.
//
//   rocksdb-ledger URI run|check   as there
//   rocksdb-ledger URI copy        makes a checkpoint (links to its files) and a backup beside it, checks both, and removes them

#include <rocksdb/convenience.h>
#include <rocksdb/db.h>
#include <rocksdb/env.h>
#include <rocksdb/filter_policy.h>
#include <rocksdb/table.h>
#include <rocksdb/utilities/backup_engine.h>
#include <rocksdb/utilities/checkpoint.h>
#include <rocksdb/write_batch.h>
#include <unistd.h>

#include <ctime>
#include <vector>

namespace kv = ROCKSDB_NAMESPACE;
#include "ledger.hpp"
#include "rocksdb.hpp"

using namespace ROCKSDB_NAMESPACE;
using namespace ledger;

namespace {

void CheckAll(DB* db) {
  Must(db->VerifyChecksum(), "checksums");
  Check(db);
}

void Copy(DB* db, const Options& options) {
  Checkpoint* made = nullptr;
  Must(Checkpoint::Create(db, &made), "checkpoint");
  std::unique_ptr<Checkpoint> checkpoint(made);
  // In a folder of another name until it is whole, which RocksDB then renames.
  Must(checkpoint->CreateCheckpoint("/copies-checkpoint"), "checkpoint");
  std::vector<LiveFileMetaData> files;
  db->GetLiveFilesMetaData(&files);
  if (files.empty()) Fail("there are no files to link");
  for (const LiveFileMetaData& file : files) {
    bool same = false;
    Must(options.env->AreFilesSame("/ledger" + file.name, "/copies-checkpoint" + file.name, &same), "links");
    if (!same) Fail(file.name + " was copied, not linked");
    uint64_t seconds = 0;
    Must(options.env->GetFileModificationTime("/ledger" + file.name, &seconds), "time");
    const uint64_t now = static_cast<uint64_t>(time(nullptr));
    if (seconds > now || seconds + 3600 < now) Fail("a file of another time: " + std::to_string(seconds));
  }
  BackupEngine* engine = nullptr;
  Must(BackupEngine::Open(options.env, BackupEngineOptions("/copies-backup"), &engine), "backup");
  std::unique_ptr<BackupEngine> backup(engine);
  Must(backup->CreateNewBackup(db, true), "backup");
  Must(backup->VerifyBackup(1, true), "backup");
  Must(backup->RestoreDBFromLatestBackup("/copies-restored", "/copies-restored"), "restore");
  for (const char* path : {"/copies-checkpoint", "/copies-restored"}) {
    CheckAll(OpenAt(options, path).get());
    Must(DestroyDB(path, options), "destroy");
  }
  Must(backup->DeleteBackup(1), "backup");
}

}  // namespace

int main(int count, char** arguments) {
  if (count != 3) return 2;
  // Nobody waits for it forever.
  alarm(120);
  Env* env = nullptr;
  std::shared_ptr<Env> guard;
  Must(Env::CreateFromUri(ConfigOptions(), "", arguments[1], &env, &guard), "environment");
  Options options = SmallOptions();
  options.env = env;
  std::unique_ptr<DB> db = OpenAt(options, kPath);
  if (std::string(arguments[2]) == "run") Run(db.get());
  if (std::string(arguments[2]) == "copy") Copy(db.get(), options);
  CheckAll(db.get());
  db.reset();
  return 0;
}
