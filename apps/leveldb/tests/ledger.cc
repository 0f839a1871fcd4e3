// The load of ledger.hpp on LevelDB, in a program that links with the plug-in.
//
//   leveldb-ledger URI run|check    as there; check says "compacted N", too: what the info LOGs know of, this one's and the last one's
//   leveldb-ledger URI files        calls what LevelDB's own use of an Env leaves out
//   leveldb-ledger URI fillrandom   300,000 values of 800 bytes at random keys of 20, in an empty database, with LevelDB's defaults,
//                                   or with buffers and tables of LEDGER_MIB
//   leveldb-ledger URI overwrite    the same into the one that is there
//
// The load has small buffers: flushes and compactions run all the time, and files come and go.

#include <leveldb/db.h>
#include <leveldb/env.h>
#include <leveldb/write_batch.h>

#include <chrono>
#include <vector>

namespace kv = leveldb;
#include "diecut_leveldb.h"
#include "ledger.hpp"

using namespace leveldb;
using namespace ledger;

namespace {

void Expect(bool holds, const char* what) {
  if (!holds) Fail(std::string("not so: ") + what);
}

uint64_t Compactions(Env* env) {
  uint64_t count = 0;
  for (const char* name : {"/LOG.old", "/LOG"}) {
    std::string log;
    const Status status = ReadFileToString(env, std::string(kPath) + name, &log);
    if (!status.IsNotFound()) Must(status, name);
    for (size_t at = log.find("Compacted "); at != std::string::npos; at = log.find("Compacted ", at + 1)) ++count;
  }
  return count;
}

std::string Content(Env* env, const std::string& name) {
  std::string content;
  Must(ReadFileToString(env, name, &content), name);
  return content;
}

template <typename Made>
std::unique_ptr<Made> Opened(Env* env, Status (Env::*open)(const std::string&, Made**), const std::string& name) {
  Made* made = nullptr;
  Must((env->*open)(name, &made), name);
  return std::unique_ptr<Made>(made);
}

// Folders, names, ends of files and locks, as Env's header promises them.
void Files(Env* env, const Options& options) {
  std::string folder;
  Must(env->GetTestDirectory(&folder), "test folder");
  Expect(env->FileExists(folder), "the test folder is there");
  const std::string one = folder + "/one", other = folder + "//./other/";
  Opened(env, &Env::NewWritableFile, one)->Append("0123456789");
  auto appended = Opened(env, &Env::NewAppendableFile, one);
  Must(appended->Append("abc"), "append");
  Expect(Content(env, one) == "0123456789abc", "what was written is read before it is closed, behind what was there");
  Must(appended->Close(), "close");
  auto sequential = Opened(env, &Env::NewSequentialFile, one);
  char scratch[16];
  Slice read;
  Must(sequential->Skip(8), "skip");
  Must(sequential->Read(sizeof(scratch), &read, scratch), "read");
  Expect(read == "89abc", "a sequential read stops at the end");
  Must(sequential->Read(sizeof(scratch), &read, scratch), "read");
  Expect(read.empty(), "and finds nothing behind it");
  auto random = Opened(env, &Env::NewRandomAccessFile, one);
  Must(random->Read(11, sizeof(scratch), &read, scratch), "read");
  Expect(read == "bc", "a read at a place stops at the end");
  uint64_t size = 0;
  Must(env->GetFileSize(one, &size), "size");
  Expect(size == 13, "13 bytes");

  Must(WriteStringToFile(env, "other", other), "write");
  Must(env->RenameFile(one, other), "rename");
  Expect(!env->FileExists(one) && Content(env, other) == "0123456789abc", "a rename replaces");
  std::vector<std::string> names;
  Must(env->GetChildren(folder, &names), "children");
  Expect(names == std::vector<std::string>{"other"}, "one name in the folder, without its path");
  Expect(!env->RemoveDir(folder).ok(), "a folder with something in it stays");
  Opened(env, &Env::NewWritableFile, other);
  Expect(Content(env, other).empty(), "a new file begins empty");

  SequentialFile* none = sequential.get();
  Expect(env->NewSequentialFile(one, &none).IsNotFound() && none == nullptr, "what is not there is not found");
  Expect(env->RemoveFile(one).IsNotFound() && env->GetFileSize(one, &size).IsNotFound(), "nor removed or measured");
  Expect(env->GetChildren(folder + "/none", &names).IsNotFound(), "nor listed");

  FileLock *lock = nullptr, *second = nullptr;
  Must(env->LockFile(folder + "/LOCK", &lock), "lock");
  Expect(env->LockFile(folder + "/LOCK", &second).IsIOError() && second == nullptr, "a lock is held once");
  Must(env->UnlockFile(lock), "unlock");
  Must(env->LockFile(folder + "/LOCK", &lock), "lock again");
  Must(env->UnlockFile(lock), "unlock");
  for (const char* name : {"/LOCK", "/other"}) Must(env->RemoveFile(folder + name), name);
  Must(env->RemoveDir(folder), "remove");
  Expect(!env->FileExists(folder), "the folder is gone");

  std::unique_ptr<DB> db = OpenAt(options, "/twice");
  DB* again = nullptr;
  const Status held = DB::Open(options, "/twice", &again);
  Expect(held.IsIOError() && held.ToString().find("already held") != std::string::npos, "a database is open once");
  db.reset();
  Must(DestroyDB("/twice", options), "destroy");
  Expect(!env->FileExists("/twice"), "nothing is left of it");
  printf("files ok\n");
}

void Bench(DB* db, uint64_t seed) {
  const uint64_t count = 300000;
  const auto began = std::chrono::steady_clock::now();
  for (uint64_t number = 0; number < count; ++number) {
    char key[24];
    snprintf(key, sizeof(key), "%020llu", static_cast<unsigned long long>(Mix(seed + number) % count));
    Must(db->Put(WriteOptions(), key, Bytes(seed + number, 800)), "put");
  }
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - began;
  printf("%.1f k operations/s, %.1f MB of keys and values\n", count / took.count() / 1e3, count * 820 / 1e6);
}

}  // namespace

int main(int count, char** arguments) {
  if (count != 3) return 2;
  const std::string what = arguments[2];
  const bool is_bench = what == "fillrandom" || what == "overwrite";
  // Nobody waits for it forever.
  alarm(is_bench ? 1200 : 120);
  Env* env = nullptr;
  Must(diecut::NewLevelDbEnv(arguments[1], &env), "environment");
  std::unique_ptr<Env> guard(env);
  Options options;
  options.env = env;
  options.create_if_missing = true;
  options.compression = kNoCompression;
  if (is_bench) {
    if (const char* mib = getenv("LEDGER_MIB")) {
      options.write_buffer_size = options.max_file_size = std::stoul(mib) << 20;
    }
    if (what == "fillrandom") Must(DestroyDB("/bench", options), "destroy");
    Bench(OpenAt(options, "/bench").get(), what == "fillrandom" ? 0 : 1000000);
    return 0;
  }
  options.paranoid_checks = true;
  options.write_buffer_size = 128 << 10;
  options.max_file_size = 1 << 20;
  if (what == "files") {
    Files(env, options);
    return 0;
  }
  std::unique_ptr<DB> db = OpenAt(options, kPath);
  if (what == "run") Run(db.get());
  Check(db.get());
  printf("compacted %llu\n", static_cast<unsigned long long>(Compactions(env)));
  db.reset();
  return 0;
}
