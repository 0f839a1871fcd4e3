// LevelDB's Env on the erase blocks of a vSSD: `LD_PRELOAD=libdiecut_leveldb.so DIECUT_LEVELDB=diecut://VSSD@SOCKET`.
//
// A thin layer over files of a vSSD (diecut_files.hpp). With the variable this library's Env::Default() takes the place of
// LevelDB's, which LevelDB itself asks for in Options::Options(); threads and time are those of the original. What LevelDB syncs
// is durable, with all that came before it.

#include "diecut_leveldb.h"

#include <dlfcn.h>
#include <leveldb/slice.h>
#include <leveldb/status.h>
#include <sys/time.h>
#include <unistd.h>

#include <chrono>
#include <cstdarg>
#include <ctime>
#include <sstream>
#include <thread>

#include "diecut_files.hpp"

namespace {

using diecut::Clean;
using diecut::File;
using diecut::Store;
using leveldb::Slice;
using leveldb::Status;

const char* const kVariable = "DIECUT_LEVELDB";

// What the library says, as LevelDB wants to hear it: it knows no more kinds.
Status Said(int code, const std::string& name) {
  switch (code) {
    case DIECUT_FILES_OK:
      return Status::OK();
    case DIECUT_FILES_NOT_FOUND:
      return Status::NotFound(name, diecut_files_error());
    case DIECUT_FILES_INVALID:
      return Status::InvalidArgument(name, diecut_files_error());
    default:
      return Status::IOError(name, diecut_files_error());
  }
}

// All files share erase blocks. Their names tell logs from tables, and both from small files that stay, but LevelDB syncs
// each table and then the MANIFEST, and a sync leaves a program unit that is not full in every kind that was written to. With tables of
// 2 MiB that cost 8 to 20 % more of the flash than all files together, and the cleaner found nothing to copy either way.
const uint32_t kHint = DIECUT_FILES_UNKNOWN;

class SequentialFile : public leveldb::SequentialFile {
 public:
  explicit SequentialFile(File file) : file_(std::move(file)) {}
  Status Read(size_t n, Slice* result, char* scratch) override {
    size_t read;
    const int code = file_.Read(at_, n, scratch, &read);
    *result = Slice(scratch, read);
    at_ += read;
    return Said(code, file_.name);
  }
  Status Skip(uint64_t n) override {
    at_ += n;
    return Status::OK();
  }

 private:
  File file_;
  uint64_t at_ = 0;
};

class RandomAccessFile : public leveldb::RandomAccessFile {
 public:
  explicit RandomAccessFile(File file) : file_(std::move(file)) {}
  Status Read(uint64_t offset, size_t n, Slice* result, char* scratch) const override {
    size_t read;
    const int code = file_.Read(offset, n, scratch, &read);
    *result = Slice(scratch, read);
    return Said(code, file_.name);
  }

 private:
  File file_;
};

class WritableFile : public leveldb::WritableFile {
 public:
  WritableFile(File file, uint64_t size) : file_(std::move(file)), size_(size) {}
  // The store gathers what is written, so nothing does here.
  Status Append(const Slice& data) override {
    const int code = file_.Write(size_, data.data(), data.size());
    if (code == DIECUT_FILES_OK) size_ += data.size();
    return Said(code, file_.name);
  }
  // What was written is read by others at once; only Sync makes it last.
  Status Flush() override { return Status::OK(); }
  Status Close() override { return Status::OK(); }
  // With all files, so what a MANIFEST names is there when it is.
  Status Sync() override { return Said(file_.Sync(), file_.name); }

 private:
  File file_;
  uint64_t size_;
};

// LevelDB's info LOG, in lines like those of its own logger.
class Logger : public leveldb::Logger {
 public:
  explicit Logger(File file) : file_(std::move(file)) {}
  void Logv(const char* format, std::va_list arguments) override {
    timeval now;
    gettimeofday(&now, nullptr);
    tm parts;
    localtime_r(&now.tv_sec, &parts);
    char head[64];
    const size_t dated = strftime(head, sizeof(head), "%Y/%m/%d-%H:%M:%S", &parts);
    snprintf(head + dated, sizeof(head) - dated, ".%06d ", static_cast<int>(now.tv_usec));
    std::ostringstream thread;
    thread << std::this_thread::get_id();
    std::va_list again;
    va_copy(again, arguments);
    const int length = vsnprintf(nullptr, 0, format, again);
    va_end(again);
    if (length < 0) return;
    std::string text(static_cast<size_t>(length) + 1, '\0');
    vsnprintf(&text[0], text.size(), format, arguments);
    text.pop_back();
    std::string line = head + thread.str() + " " + text;
    if (line.back() != '\n') line += '\n';
    std::lock_guard<std::mutex> guard(mutex_);
    // Nobody can be told: what fails here fails the next write of the database, too.
    if (file_.Write(size_, line.data(), line.size()) == DIECUT_FILES_OK) size_ += line.size();
  }

 private:
  File file_;
  std::mutex mutex_;
  uint64_t size_ = 0;
};

struct Lock : public leveldb::FileLock {
  explicit Lock(File file) : file(std::move(file)) {}
  File file;
};

// LevelDB's own.
leveldb::Env* Original() {
  // After this library in the order of loading; before it where a program is linked with LevelDB first.
  void* found = dlsym(RTLD_NEXT, "_ZN7leveldb3Env7DefaultEv");
  if (found == nullptr) found = dlsym(RTLD_DEFAULT, "_ZN7leveldb3Env7DefaultEv");
  return reinterpret_cast<leveldb::Env* (*)()>(found)();
}

class DiecutEnv : public leveldb::EnvWrapper {
 public:
  // `from` is who named the vSSD, for errors.
  DiecutEnv(std::string uri, const char* from) : EnvWrapper(Original()), uri_(std::move(uri)), from_(from) {}

  // The store, attached to at the first use. After an error of the server it takes no more; when nothing of it is open any more, the
  // next use attaches again.
  Status Attach(std::shared_ptr<Store>* store) {
    using std::chrono::steady_clock;
    std::lock_guard<std::mutex> guard(mutex_);
    if (store_ != nullptr && store_.use_count() == 1 && !store_->IsUsable()) store_.reset();
    if (store_ == nullptr) {
      // LevelDB makes several calls before it heeds one that fails, and each may wait for who holds the vSSD.
      if (!problem_.empty() && steady_clock::now() - failed_at_ < std::chrono::seconds(1)) return Refusal();
      problem_.clear();
      store_ = Store::Attach(uri_, "LevelDB", &problem_);
      failed_at_ = steady_clock::now();
      if (store_ == nullptr) return Refusal();
    }
    *store = store_;
    return Status::OK();
  }

  // At the end of the process. Threads may go on until the very last, so the end itself gives the vSSD back.
  void Finish() {
    std::lock_guard<std::mutex> guard(mutex_);
    // A child that was forked has rings in common with its parent, to whom they belong.
    if (store_ != nullptr && store_->IsOfThisProcess()) store_->Finish();
  }

  Status NewSequentialFile(const std::string& path, leveldb::SequentialFile** result) override {
    return OpenOld<SequentialFile>(path, result);
  }
  Status NewRandomAccessFile(const std::string& path, leveldb::RandomAccessFile** result) override {
    return OpenOld<RandomAccessFile>(path, result);
  }
  Status NewWritableFile(const std::string& path, leveldb::WritableFile** result) override {
    *result = nullptr;
    File file;
    const Status status = Create(path, &file);
    if (status.ok()) *result = new WritableFile(std::move(file), 0);
    return status;
  }
  Status NewAppendableFile(const std::string& path, leveldb::WritableFile** result) override {
    *result = nullptr;
    File file;
    uint64_t size;
    Status status = Name(path, &file);
    if (status.ok()) {
      status = Said(file.store->FindOrCreate(file.name, kHint, &file.number, &size), file.name);
    }
    if (status.ok()) *result = new WritableFile(std::move(file), size);
    return status;
  }
  Status NewLogger(const std::string& path, leveldb::Logger** result) override {
    *result = nullptr;
    File file;
    const Status status = Create(path, &file);
    if (status.ok()) *result = new Logger(std::move(file));
    return status;
  }

  bool FileExists(const std::string& path) override {
    File file;
    return Name(path, &file).ok() && file.store->Find(file.name) == DIECUT_FILES_OK;
  }
  Status GetChildren(const std::string& path, std::vector<std::string>* result) override {
    result->clear();
    File file;
    const Status status = Name(path, &file);
    return status.ok() ? Said(file.store->Children(file.name, result), file.name) : status;
  }
  Status RemoveFile(const std::string& path) override { return Call(path, diecut_files_remove); }
  Status CreateDir(const std::string& path) override { return Call(path, diecut_files_make_folder); }
  Status RemoveDir(const std::string& path) override { return Call(path, diecut_files_remove_folder); }
  Status GetFileSize(const std::string& path, uint64_t* size) override {
    *size = 0;
    File file;
    const Status status = Find(path, &file);
    return status.ok() ? Said(diecut_files_size(file.store->files(), file.number, size), file.name) : status;
  }
  Status RenameFile(const std::string& from, const std::string& to) override {
    File file;
    const Status status = Name(from, &file);
    if (!status.ok()) return status;
    return Said(diecut_files_rename(file.store->files(), file.name.c_str(), Clean(to).c_str()), file.name);
  }

  Status LockFile(const std::string& path, leveldb::FileLock** lock) override {
    *lock = nullptr;
    File file;
    uint64_t size;
    Status status = Name(path, &file);
    if (!status.ok()) return status;
    if (!file.store->Lock(file.name)) return Status::IOError("lock " + file.name, "already held by process");
    status = Said(file.store->FindOrCreate(file.name, kHint, &file.number, &size), file.name);
    if (status.ok()) {
      *lock = new Lock(std::move(file));
    } else {
      file.store->Unlock(file.name);
    }
    return status;
  }
  Status UnlockFile(leveldb::FileLock* lock) override {
    std::unique_ptr<Lock> own(static_cast<Lock*>(lock));
    own->file.store->Unlock(own->file.name);
    return Status::OK();
  }
  Status GetTestDirectory(std::string* path) override {
    const char* chosen = getenv("TEST_TMPDIR");
    *path = chosen != nullptr && chosen[0] != '\0' ? chosen : "/leveldbtest-" + std::to_string(geteuid());
    File file;
    const Status status = Name(*path, &file);
    if (!status.ok()) return status;
    return file.store->Find(file.name) == DIECUT_FILES_OK ? status : CreateDir(*path);
  }

 private:
  Status Refusal() const { return Status::IOError(from_, problem_); }

  // A path, and the store that it is in.
  Status Name(const std::string& path, File* file) {
    file->name = Clean(path);
    return Attach(&file->store);
  }
  Status Find(const std::string& path, File* file) {
    const Status status = Name(path, file);
    return status.ok() ? Said(diecut_files_find(file->store->files(), file->name.c_str(), &file->number), file->name)
                       : status;
  }
  Status Create(const std::string& path, File* file) {
    const Status status = Name(path, file);
    return status.ok() ? Said(file->store->CreateEmpty(file->name, kHint, &file->number), file->name)
                       : status;
  }
  template <typename Own, typename Kind>
  Status OpenOld(const std::string& path, Kind** result) {
    *result = nullptr;
    File file;
    const Status status = Find(path, &file);
    if (status.ok()) *result = new Own(std::move(file));
    return status;
  }
  Status Call(const std::string& path, int (*call)(const diecut_files*, const char*)) {
    File file;
    const Status status = Name(path, &file);
    return status.ok() ? Said(call(file.store->files(), file.name.c_str()), file.name) : status;
  }

  const std::string uri_;
  const char* const from_;
  std::mutex mutex_;
  std::shared_ptr<Store> store_;
  std::string problem_;
  std::chrono::steady_clock::time_point failed_at_;
};

// The one of the variable, which nobody deletes.
DiecutEnv* of_variable = nullptr;

leveldb::Env* Choose() {
  const char* uri = getenv(kVariable);
  if (uri == nullptr || uri[0] == '\0') return Original();
  of_variable = new DiecutEnv(uri, kVariable);
  return of_variable;
}

// After what the program itself does at its end, which may close a database.
__attribute__((destructor)) void AtTheEnd() {
  if (of_variable != nullptr) of_variable->Finish();
}

}  // namespace

leveldb::Env* leveldb::Env::Default() {
  static Env* const chosen = Choose();
  return chosen;
}

leveldb::Status diecut::NewLevelDbEnv(const std::string& uri, leveldb::Env** env) {
  *env = nullptr;
  auto made = std::make_unique<DiecutEnv>(uri, "diecut::NewLevelDbEnv");
  std::shared_ptr<Store> store;
  leveldb::Status status = made->Attach(&store);
  if (status.ok()) *env = made.release();
  return status;
}
