// A load for tests to kill: every write is a function of its number, so what a database must hold after any of them is known.
//
//   run    opens the database, writes on from where it is, and says "acked N" when write N and all before it are synced
//   check  reads all of it, with the database's checksums, and says "found N" if it holds exactly what N writes leave
//
// RocksDB and LevelDB, whose interfaces have this much in common, bring what differs in a program of their own. It includes this
// after the database's headers and `namespace kv = ...`.

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <string>

namespace ledger {

const uint64_t kKeys = 3000;
const char* const kPath = "/ledger";
const char* const kLast = "last";

inline uint64_t Mix(uint64_t word) {
  word += 0x9e3779b97f4a7c15ull;
  word = (word ^ (word >> 30)) * 0xbf58476d1ce4e5b9ull;
  word = (word ^ (word >> 27)) * 0x94d049bb133111ebull;
  return word ^ (word >> 31);
}

// So many bytes that do not compress, and a few more.
inline std::string Bytes(uint64_t seed, size_t size) {
  std::string bytes;
  while (bytes.size() < size) {
    seed = Mix(seed);
    bytes.append(reinterpret_cast<const char*>(&seed), sizeof(seed));
  }
  return bytes;
}

struct Step {
  std::string key;
  bool is_delete;
  std::string value;
};

inline Step StepOf(uint64_t number) {
  Step step;
  step.key = "key-" + std::to_string(Mix(number) % kKeys);
  step.is_delete = Mix(number + 1000000007) % 10 == 0;
  if (!step.is_delete) step.value = Bytes(number, 100 + Mix(number + 7) % 1500);
  return step;
}

[[noreturn]] inline void Fail(const std::string& what) {
  printf("ended %s\n", what.c_str());
  fflush(stdout);
  // Not through destructors: the database may wait for a server that is gone.
  _Exit(3);
}

inline void Must(const kv::Status& status, const std::string& what) {
  if (!status.ok()) Fail(what + ": " + status.ToString());
}

inline std::unique_ptr<kv::DB> OpenAt(const kv::Options& options, const std::string& path) {
  kv::DB* opened = nullptr;
  Must(kv::DB::Open(options, path, &opened), path);
  return std::unique_ptr<kv::DB>(opened);
}

inline uint64_t Last(kv::DB* db) {
  std::string last;
  const kv::Status status = db->Get(kv::ReadOptions(), kLast, &last);
  if (status.IsNotFound()) return 0;
  Must(status, "last");
  return std::stoull(last);
}

[[noreturn]] inline void Run(kv::DB* db) {
  for (uint64_t number = Last(db) + 1;; ++number) {
    const Step step = StepOf(number);
    kv::WriteBatch batch;
    if (step.is_delete) {
      batch.Delete(step.key);
    } else {
      batch.Put(step.key, step.value);
    }
    batch.Put(kLast, std::to_string(number));
    kv::WriteOptions options;
    options.sync = number % 16 == 0;
    Must(db->Write(options, &batch), "write");
    if (options.sync) {
      printf("acked %llu\n", static_cast<unsigned long long>(number));
      fflush(stdout);
    }
    if (number % 64 == 0) {
      // Reads beside flushes and compactions.
      std::string value;
      const kv::Status status = db->Get(kv::ReadOptions(), step.key, &value);
      if (step.is_delete ? !status.IsNotFound() : !status.ok() || value != step.value) Fail("a read is wrong");
    }
  }
}

inline void Check(kv::DB* db) {
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
  kv::ReadOptions options;
  options.verify_checksums = true;
  std::unique_ptr<kv::Iterator> iterator(db->NewIterator(options));
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

}  // namespace ledger
