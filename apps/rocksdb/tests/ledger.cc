// A load for tests to kill: every write is a function of its number, so what a database must hold after any of them is known.
//
//   ledger URI run    opens the database, writes on from where it is, and says "acked N" when write N and all before it are synced
//   ledger URI copy   makes a checkpoint (links to its files) and a backup beside it, checks both, and removes them
//   ledger URI check  reads all of it, with RocksDB's checksums, and says "found N" if it holds exactly what N writes leave
//
// Small buffers and levels: flushes and compactions run all the time, and files come and go.

#include <rocksdb/convenience.h>
#include <rocksdb/db.h>
#include <rocksdb/env.h>
#include <rocksdb/filter_policy.h>
#include <rocksdb/table.h>
#include <rocksdb/utilities/backup_engine.h>
#include <rocksdb/utilities/checkpoint.h>
#include <rocksdb/write_batch.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <map>
#include <memory>
#include <string>
#include <vector>

using namespace ROCKSDB_NAMESPACE;

namespace {

const uint64_t kKeys = 3000;
const char* const kLast = "last";

uint64_t Mix(uint64_t word) {
  word += 0x9e3779b97f4a7c15ull;
  word = (word ^ (word >> 30)) * 0xbf58476d1ce4e5b9ull;
  word = (word ^ (word >> 27)) * 0x94d049bb133111ebull;
  return word ^ (word >> 31);
}

struct Step {
  std::string key;
  bool is_delete;
  std::string value;
};

Step StepOf(uint64_t number) {
  Step step;
  step.key = "key-" + std::to_string(Mix(number) % kKeys);
  step.is_delete = Mix(number + 1000000007) % 10 == 0;
  if (!step.is_delete) {
    uint64_t word = number;
    const size_t size = 100 + Mix(number + 7) % 1500;
    while (step.value.size() < size) {
      word = Mix(word);
      step.value.append(reinterpret_cast<const char*>(&word), sizeof(word));
    }
  }
  return step;
}

[[noreturn]] void Fail(const std::string& what) {
  printf("ended %s\n", what.c_str());
  fflush(stdout);
  // Not through destructors: the database may wait for a server that is gone.
  _Exit(3);
}

void Must(const Status& status, const char* what) {
  if (!status.ok()) Fail(std::string(what) + ": " + status.ToString());
}

uint64_t Last(DB* db) {
  std::string last;
  const Status status = db->Get(ReadOptions(), kLast, &last);
  if (status.IsNotFound()) return 0;
  Must(status, "last");
  return std::stoull(last);
}

void Run(DB* db) {
  for (uint64_t number = Last(db) + 1;; ++number) {
    const Step step = StepOf(number);
    WriteBatch batch;
    Must(step.is_delete ? batch.Delete(step.key) : batch.Put(step.key, step.value), "batch");
    Must(batch.Put(kLast, std::to_string(number)), "batch");
    WriteOptions options;
    options.sync = number % 16 == 0;
    Must(db->Write(options, &batch), "write");
    if (options.sync) {
      printf("acked %llu\n", static_cast<unsigned long long>(number));
      fflush(stdout);
    }
    if (number % 64 == 0) {
      // Reads beside flushes and compactions.
      std::string value;
      const Status status = db->Get(ReadOptions(), step.key, &value);
      if (step.is_delete ? !status.IsNotFound() : !status.ok() || value != step.value) Fail("a read is wrong");
    }
  }
}

void Check(DB* db) {
  const uint64_t last = Last(db);
  std::map<std::string, std::string> expected;
  for (uint64_t number = 1; number <= last; ++number) {
    Step step = StepOf(number);
    if (step.is_delete) {
      expected.erase(step.key);
    } else {
      expected[step.key] = std::move(step.value);
    }
  }
  if (last > 0) expected[kLast] = std::to_string(last);
  Must(db->VerifyChecksum(), "checksums");
  ReadOptions options;
  options.verify_checksums = true;
  std::unique_ptr<Iterator> iterator(db->NewIterator(options));
  auto next = expected.begin();
  for (iterator->SeekToFirst(); iterator->Valid(); iterator->Next(), ++next) {
    if (next == expected.end()) Fail("more keys than were written: " + iterator->key().ToString());
    if (iterator->key() != next->first) Fail(iterator->key().ToString() + " instead of " + next->first);
    if (iterator->value() != next->second) Fail("another value of " + next->first);
  }
  Must(iterator->status(), "iterator");
  if (next != expected.end()) Fail("missing: " + next->first);
  printf("found %llu\n", static_cast<unsigned long long>(last));
}

std::unique_ptr<DB> OpenAt(const Options& options, const std::string& path) {
  DB* opened = nullptr;
  Must(DB::Open(options, path, &opened), path.c_str());
  return std::unique_ptr<DB>(opened);
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
    Check(OpenAt(options, path).get());
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
  Options options;
  options.env = env;
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
  std::unique_ptr<DB> db = OpenAt(options, "/ledger");
  if (std::string(arguments[2]) == "run") {
    Run(db.get());
  }
  if (std::string(arguments[2]) == "copy") Copy(db.get(), options);
  Check(db.get());
  db.reset();
  return 0;
}
