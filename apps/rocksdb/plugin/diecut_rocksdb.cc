// RocksDB's FileSystem on the erase blocks of a vSSD: `--fs_uri=diecut://VSSD@SOCKET`.
//
// A thin layer over the C interface of files (diecut_files.h). What RocksDB says of the life of a file, by level of its tree, chooses
// the erase blocks that it shares with others: they are freed as a whole when compaction has removed these files. What RocksDB
// syncs is durable. One process holds a vSSD, so locks are kept in its memory.

#include <rocksdb/file_system.h>
#include <rocksdb/utilities/object_registry.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>

#include "diecut_files.h"

namespace {

using namespace ROCKSDB_NAMESPACE;

// What the library says, as RocksDB wants to hear it.
IOStatus Said(int code, const std::string& name) {
  switch (code) {
    case DIECUT_FILES_OK:
      return IOStatus::OK();
    case DIECUT_FILES_NOT_FOUND:
      return IOStatus::PathNotFound(name, diecut_files_error());
    case DIECUT_FILES_NO_SPACE:
      return IOStatus::NoSpace(name, diecut_files_error());
    case DIECUT_FILES_INVALID:
      return IOStatus::InvalidArgument(name, diecut_files_error());
    default:
      return IOStatus::IOError(name, diecut_files_error());
  }
}

// One slash where there are several, none at the end.
std::string Clean(const std::string& path) {
  std::string clean;
  for (char letter : path) {
    if (letter != '/' || clean.empty() || clean.back() != '/') clean += letter;
  }
  while (clean.size() > 1 && clean.back() == '/') clean.pop_back();
  return clean;
}

// A vSSD that is attached to, as long as something of it is open.
struct Store {
  diecut_files* files = nullptr;
  std::mutex mutex;
  std::set<std::string> locked;

  ~Store() {
    if (files == nullptr) return;
    if (diecut_files_sync(files) != DIECUT_FILES_OK) fprintf(stderr, "diecut: %s\n", diecut_files_error());
    if (getenv("DIECUT_STATISTICS") != nullptr) Report();
    diecut_files_detach(files);
  }

  void Report() const {
    diecut_files_statistics known;
    if (diecut_files_get_statistics(files, &known) != DIECUT_FILES_OK) return;
    const double written = known.written_bytes / 1e6, appended = known.appended_bytes / 1e6;
    fprintf(stderr,
            "diecut: RocksDB wrote %.1f MB, erase blocks took %.1f MB: write amplification %.3f (cleaner %.1f MB, %llu "
            "checkpoints, the rest headers and filling); %llu erase blocks freed\n",
            written, appended, written > 0 ? appended / written : 0.0, known.cleaned_bytes / 1e6,
            static_cast<unsigned long long>(known.checkpoints), static_cast<unsigned long long>(known.freed_blocks));
  }
};

// An open file.
struct Open {
  std::shared_ptr<Store> store;
  uint64_t file = 0;
  std::string name;
  bool direct = false;

  IOStatus Read(uint64_t offset, size_t n, Slice* result, char* scratch) const {
    size_t read = 0;
    int code = n == 0 ? DIECUT_FILES_OK : diecut_files_read(store->files, file, offset, scratch, n, &read);
    *result = Slice(scratch, read);
    return Said(code, name);
  }
  IOStatus Write(uint64_t offset, const Slice& data) const {
    if (data.empty()) return IOStatus::OK();
    return Said(diecut_files_write(store->files, file, offset, data.data(), data.size()), name);
  }
};

class SequentialFile : public FSSequentialFile {
 public:
  explicit SequentialFile(Open open) : open_(std::move(open)) {}
  IOStatus Read(size_t n, const IOOptions&, Slice* result, char* scratch, IODebugContext*) override {
    IOStatus status = open_.Read(at_, n, result, scratch);
    at_ += result->size();
    return status;
  }
  IOStatus PositionedRead(uint64_t offset, size_t n, const IOOptions&, Slice* result, char* scratch,
                          IODebugContext*) override {
    return open_.Read(offset, n, result, scratch);
  }
  IOStatus Skip(uint64_t n) override {
    at_ += n;
    return IOStatus::OK();
  }
  IOStatus InvalidateCache(size_t, size_t) override { return IOStatus::OK(); }
  bool use_direct_io() const override { return open_.direct; }

 private:
  Open open_;
  uint64_t at_ = 0;
};

class RandomAccessFile : public FSRandomAccessFile {
 public:
  explicit RandomAccessFile(Open open) : open_(std::move(open)) {}
  IOStatus Read(uint64_t offset, size_t n, const IOOptions&, Slice* result, char* scratch,
                IODebugContext*) const override {
    return open_.Read(offset, n, result, scratch);
  }
  IOStatus InvalidateCache(size_t, size_t) override { return IOStatus::OK(); }
  bool use_direct_io() const override { return open_.direct; }

 private:
  Open open_;
};

class WritableFile : public FSWritableFile {
 public:
  WritableFile(Open open, uint64_t size, const FileOptions& options)
      : FSWritableFile(options), open_(std::move(open)), size_(size) {}
  using FSWritableFile::Append;
  using FSWritableFile::PositionedAppend;
  IOStatus Append(const Slice& data, const IOOptions& options, IODebugContext* debug) override {
    return PositionedAppend(data, size_, options, debug);
  }
  IOStatus PositionedAppend(const Slice& data, uint64_t offset, const IOOptions&, IODebugContext*) override {
    IOStatus status = open_.Write(offset, data);
    if (status.ok()) size_ = offset + data.size();
    return status;
  }
  IOStatus PositionedAppend(const Slice& data, uint64_t offset, const IOOptions& options,
                            const DataVerificationInfo&, IODebugContext* debug) override {
    return PositionedAppend(data, offset, options, debug);
  }
  IOStatus Truncate(uint64_t size, const IOOptions&, IODebugContext*) override {
    size_ = size;
    return Said(diecut_files_set_size(open_.store->files, open_.file, size), open_.name);
  }
  // What was written is read by others at once; only Sync makes it last.
  IOStatus Flush(const IOOptions&, IODebugContext*) override { return IOStatus::OK(); }
  IOStatus Close(const IOOptions&, IODebugContext*) override { return IOStatus::OK(); }
  IOStatus Sync(const IOOptions&, IODebugContext*) override {
    return Said(diecut_files_sync(open_.store->files), open_.name);
  }
  bool IsSyncThreadSafe() const override { return true; }
  uint64_t GetFileSize(const IOOptions&, IODebugContext*) override { return size_; }
  IOStatus InvalidateCache(size_t, size_t) override { return IOStatus::OK(); }
  bool use_direct_io() const override { return open_.direct; }

  void SetWriteLifeTimeHint(Env::WriteLifeTimeHint hint) override {
    FSWritableFile::SetWriteLifeTimeHint(hint);
    const uint32_t own = hint < Env::WLTH_SHORT ? DIECUT_FILES_UNKNOWN : hint - Env::WLTH_SHORT + DIECUT_FILES_SHORT;
    // A file that is gone needs none.
    diecut_files_set_hint(open_.store->files, open_.file, own);
  }

 private:
  Open open_;
  uint64_t size_;
};

class Directory : public FSDirectory {
 public:
  explicit Directory(Open open) : open_(std::move(open)) {}
  IOStatus Fsync(const IOOptions&, IODebugContext*) override {
    return Said(diecut_files_sync(open_.store->files), open_.name);
  }

 private:
  Open open_;
};

struct Lock : public FileLock {
  explicit Lock(std::string path) : name(std::move(path)) {}
  std::string name;
};

class DiecutFileSystem : public FileSystem {
 public:
  explicit DiecutFileSystem(std::shared_ptr<Store> store) : store_(std::move(store)) {}
  static const char* kClassName() { return "DiecutFileSystem"; }
  const char* Name() const override { return kClassName(); }

  IOStatus NewSequentialFile(const std::string& path, const FileOptions& options,
                             std::unique_ptr<FSSequentialFile>* result, IODebugContext*) override {
    Open open;
    IOStatus status = Find(path, options.use_direct_reads, &open);
    if (status.ok()) result->reset(new SequentialFile(open));
    return status;
  }
  IOStatus NewRandomAccessFile(const std::string& path, const FileOptions& options,
                               std::unique_ptr<FSRandomAccessFile>* result, IODebugContext*) override {
    Open open;
    IOStatus status = Find(path, options.use_direct_reads, &open);
    if (status.ok()) result->reset(new RandomAccessFile(open));
    return status;
  }
  IOStatus NewWritableFile(const std::string& path, const FileOptions& options,
                           std::unique_ptr<FSWritableFile>* result, IODebugContext*) override {
    Open open;
    IOStatus status = Find(path, options.use_direct_writes, &open);
    if (status.ok()) {
      status = Said(diecut_files_set_size(store_->files, open.file, 0), open.name);
    } else if (status.IsPathNotFound()) {
      status = Said(diecut_files_create(store_->files, open.name.c_str(), DIECUT_FILES_UNKNOWN, &open.file), open.name);
    }
    if (status.ok()) result->reset(new WritableFile(open, 0, options));
    return status;
  }
  IOStatus ReopenWritableFile(const std::string& path, const FileOptions& options,
                              std::unique_ptr<FSWritableFile>* result, IODebugContext* debug) override {
    Open open;
    uint64_t size = 0;
    IOStatus status = Find(path, options.use_direct_writes, &open);
    if (status.IsPathNotFound()) return NewWritableFile(path, options, result, debug);
    if (status.ok()) status = Said(diecut_files_size(store_->files, open.file, &size), open.name);
    if (status.ok()) result->reset(new WritableFile(open, size, options));
    return status;
  }
  IOStatus NewDirectory(const std::string& path, const IOOptions&, std::unique_ptr<FSDirectory>* result,
                        IODebugContext*) override {
    Open open{store_, 0, Clean(path), false};
    IOStatus status = Said(diecut_files_find_folder(store_->files, open.name.c_str()), open.name);
    if (status.ok()) result->reset(new Directory(open));
    return status;
  }

  IOStatus FileExists(const std::string& path, const IOOptions&, IODebugContext*) override {
    const std::string name = Clean(path);
    uint64_t file;
    int code = diecut_files_find(store_->files, name.c_str(), &file);
    if (code == DIECUT_FILES_NOT_FOUND) code = diecut_files_find_folder(store_->files, name.c_str());
    return code == DIECUT_FILES_NOT_FOUND ? IOStatus::NotFound() : Said(code, name);
  }
  IOStatus GetChildren(const std::string& path, const IOOptions&, std::vector<std::string>* result,
                       IODebugContext*) override {
    const std::string name = Clean(path);
    result->clear();
    int code = diecut_files_find_folder(store_->files, name.c_str());
    if (code == DIECUT_FILES_NOT_FOUND) return IOStatus::NotFound(name);
    if (code == DIECUT_FILES_OK) {
      auto visit = [](void* list, const char* child, int) { static_cast<std::vector<std::string>*>(list)->push_back(child); };
      code = diecut_files_children(store_->files, name.c_str(), visit, result);
    }
    return Said(code, name);
  }
  IOStatus DeleteFile(const std::string& path, const IOOptions&, IODebugContext*) override {
    const std::string name = Clean(path);
    return Said(diecut_files_remove(store_->files, name.c_str()), name);
  }
  IOStatus Truncate(const std::string& path, size_t size, const IOOptions&, IODebugContext*) override {
    Open open;
    IOStatus status = Find(path, false, &open);
    return status.ok() ? Said(diecut_files_set_size(store_->files, open.file, size), open.name) : status;
  }
  IOStatus CreateDir(const std::string& path, const IOOptions&, IODebugContext*) override {
    const std::string name = Clean(path);
    return Said(diecut_files_make_folder(store_->files, name.c_str()), name);
  }
  IOStatus CreateDirIfMissing(const std::string& path, const IOOptions&, IODebugContext*) override {
    const std::string name = Clean(path);
    int code = diecut_files_find_folder(store_->files, name.c_str());
    if (code == DIECUT_FILES_NOT_FOUND) code = diecut_files_make_folder(store_->files, name.c_str());
    return Said(code, name);
  }
  IOStatus DeleteDir(const std::string& path, const IOOptions&, IODebugContext*) override {
    const std::string name = Clean(path);
    return Said(diecut_files_remove_folder(store_->files, name.c_str()), name);
  }
  IOStatus GetFileSize(const std::string& path, const IOOptions&, uint64_t* size, IODebugContext*) override {
    Open open;
    IOStatus status = Find(path, false, &open);
    return status.ok() ? Said(diecut_files_size(store_->files, open.file, size), open.name) : status;
  }
  IOStatus GetFileModificationTime(const std::string& path, const IOOptions&, uint64_t* seconds,
                                   IODebugContext*) override {
    Open open;
    diecut_files_info_t info;
    IOStatus status = Find(path, false, &open);
    if (status.ok()) status = Said(diecut_files_info(store_->files, open.file, &info), open.name);
    if (status.ok()) *seconds = static_cast<uint64_t>(info.modified_seconds);
    return status;
  }
  IOStatus LinkFile(const std::string& from, const std::string& to, const IOOptions&, IODebugContext*) override {
    const std::string name = Clean(from);
    return Said(diecut_files_link(store_->files, name.c_str(), Clean(to).c_str()), name);
  }
  IOStatus NumFileLinks(const std::string& path, const IOOptions&, uint64_t* count, IODebugContext*) override {
    Open open;
    diecut_files_info_t info;
    IOStatus status = Find(path, false, &open);
    if (status.ok()) status = Said(diecut_files_info(store_->files, open.file, &info), open.name);
    if (status.ok()) *count = info.links;
    return status;
  }
  IOStatus AreFilesSame(const std::string& one, const std::string& other, const IOOptions&, bool* same,
                        IODebugContext*) override {
    Open first, second;
    IOStatus status = Find(one, false, &first);
    if (status.ok()) status = Find(other, false, &second);
    if (status.ok()) *same = first.file == second.file;
    return status;
  }
  IOStatus RenameFile(const std::string& from, const std::string& to, const IOOptions&, IODebugContext*) override {
    const std::string name = Clean(from);
    return Said(diecut_files_rename(store_->files, name.c_str(), Clean(to).c_str()), name);
  }
  IOStatus IsDirectory(const std::string& path, const IOOptions&, bool* is_folder, IODebugContext*) override {
    const std::string name = Clean(path);
    const int code = diecut_files_find_folder(store_->files, name.c_str());
    *is_folder = code == DIECUT_FILES_OK;
    uint64_t file;
    return Said(code == DIECUT_FILES_NOT_FOUND ? diecut_files_find(store_->files, name.c_str(), &file) : code, name);
  }
  IOStatus GetFreeSpace(const std::string& path, const IOOptions&, uint64_t* free, IODebugContext*) override {
    diecut_files_statistics known;
    const int code = diecut_files_get_statistics(store_->files, &known);
    if (code == DIECUT_FILES_OK) *free = known.capacity_bytes - std::min(known.live_bytes, known.capacity_bytes);
    return Said(code, path);
  }

  IOStatus LockFile(const std::string& path, const IOOptions&, FileLock** lock, IODebugContext* debug) override {
    const std::string name = Clean(path);
    *lock = nullptr;
    std::lock_guard<std::mutex> guard(store_->mutex);
    if (!store_->locked.insert(name).second) return IOStatus::IOError("lock " + name, "held by this process");
    std::unique_ptr<FSWritableFile> file;
    IOStatus status = ReopenWritableFile(name, FileOptions(), &file, debug);
    if (status.ok()) {
      *lock = new Lock(name);
    } else {
      store_->locked.erase(name);
    }
    return status;
  }
  IOStatus UnlockFile(FileLock* lock, const IOOptions&, IODebugContext*) override {
    std::unique_ptr<Lock> own(static_cast<Lock*>(lock));
    std::lock_guard<std::mutex> guard(store_->mutex);
    store_->locked.erase(own->name);
    return IOStatus::OK();
  }
  IOStatus GetTestDirectory(const IOOptions& options, std::string* path, IODebugContext* debug) override {
    *path = "/rocksdbtest-" + std::to_string(geteuid());
    return CreateDirIfMissing(*path, options, debug);
  }
  IOStatus GetAbsolutePath(const std::string& path, const IOOptions&, std::string* whole, IODebugContext*) override {
    *whole = !path.empty() && path[0] == '/' ? path : "/" + path;
    return IOStatus::OK();
  }

 private:
  IOStatus Find(const std::string& path, bool direct, Open* open) {
    *open = Open{store_, 0, Clean(path), direct};
    return Said(diecut_files_find(store_->files, open->name.c_str(), &open->file), open->name);
  }

  std::shared_ptr<Store> store_;
};

// Stores by URI: RocksDB asks again for the one it has when it reads its options.
FileSystem* Make(const std::string& uri, std::unique_ptr<FileSystem>* guard, std::string* problem) {
  static std::mutex mutex;
  static std::map<std::string, std::weak_ptr<Store>> stores;
  const std::string rest = uri.substr(std::string("diecut://").size());
  const size_t at = rest.find('@');
  if (at == std::string::npos) {
    *problem = uri + ": diecut://VSSD@SOCKET is what is understood";
    return nullptr;
  }
  std::lock_guard<std::mutex> lock(mutex);
  std::shared_ptr<Store> store = stores[uri].lock();
  if (store == nullptr) {
    store = std::make_shared<Store>();
    const std::string vssd = rest.substr(0, at), socket = rest.substr(at + 1);
    if (diecut_files_attach(socket.c_str(), vssd.c_str(), &store->files) != DIECUT_FILES_OK) {
      *problem = uri + ": " + diecut_files_error();
      store->files = nullptr;
      return nullptr;
    }
    stores[uri] = store;
  }
  guard->reset(new DiecutFileSystem(store));
  return guard->get();
}

// At loading: a program that knows nothing of diecut gets it with LD_PRELOAD.
[[maybe_unused]] const FactoryFunc<FileSystem>& registered = ObjectLibrary::Default()->AddFactory<FileSystem>(
    ObjectLibrary::PatternEntry("diecut", false).AddSeparator("://"), Make);

}  // namespace
