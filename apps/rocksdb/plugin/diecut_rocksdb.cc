// RocksDB's FileSystem on the erase blocks of a vSSD: `--fs_uri=diecut://VSSD@SOCKET`.
//
// A thin layer over files of a vSSD (diecut_files.hpp). What RocksDB says of the life of a file, by level of its tree, chooses
// the erase blocks that it shares with others: they are freed as a whole when compaction has removed these files. What RocksDB
// syncs is durable. One process holds a vSSD, so locks are kept in its memory.

#include <rocksdb/file_system.h>
#include <rocksdb/utilities/object_registry.h>
#include <unistd.h>

#include <memory>
#include <string>

#include "diecut_files.hpp"

namespace {

using namespace ROCKSDB_NAMESPACE;
using diecut::Clean;
using diecut::Store;

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

// An open file.
struct Open : diecut::File {
  bool direct = false;

  IOStatus ReadAt(uint64_t offset, size_t n, Slice* result, char* scratch) const {
    size_t read;
    const int code = Read(offset, n, scratch, &read);
    *result = Slice(scratch, read);
    return Said(code, name);
  }
};

class SequentialFile : public FSSequentialFile {
 public:
  explicit SequentialFile(Open open) : open_(std::move(open)) {}
  IOStatus Read(size_t n, const IOOptions&, Slice* result, char* scratch, IODebugContext*) override {
    IOStatus status = open_.ReadAt(at_, n, result, scratch);
    at_ += result->size();
    return status;
  }
  IOStatus PositionedRead(uint64_t offset, size_t n, const IOOptions&, Slice* result, char* scratch,
                          IODebugContext*) override {
    return open_.ReadAt(offset, n, result, scratch);
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
    return open_.ReadAt(offset, n, result, scratch);
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
    IOStatus status = Said(open_.Write(offset, data.data(), data.size()), open_.name);
    if (status.ok()) size_ = offset + data.size();
    return status;
  }
  IOStatus PositionedAppend(const Slice& data, uint64_t offset, const IOOptions& options,
                            const DataVerificationInfo&, IODebugContext* debug) override {
    return PositionedAppend(data, offset, options, debug);
  }
  IOStatus Truncate(uint64_t size, const IOOptions&, IODebugContext*) override {
    size_ = size;
    return Said(diecut_files_set_size(open_.store->files(), open_.number, size), open_.name);
  }
  // What was written is read by others at once; only Sync makes it last.
  IOStatus Flush(const IOOptions&, IODebugContext*) override { return IOStatus::OK(); }
  IOStatus Close(const IOOptions&, IODebugContext*) override { return IOStatus::OK(); }
  IOStatus Sync(const IOOptions&, IODebugContext*) override {
    return Said(open_.Sync(), open_.name);
  }
  bool IsSyncThreadSafe() const override { return true; }
  uint64_t GetFileSize(const IOOptions&, IODebugContext*) override { return size_; }
  IOStatus InvalidateCache(size_t, size_t) override { return IOStatus::OK(); }
  bool use_direct_io() const override { return open_.direct; }

  void SetWriteLifeTimeHint(Env::WriteLifeTimeHint hint) override {
    FSWritableFile::SetWriteLifeTimeHint(hint);
    const uint32_t own = hint < Env::WLTH_SHORT ? DIECUT_FILES_UNKNOWN : hint - Env::WLTH_SHORT + DIECUT_FILES_SHORT;
    // A file that is gone needs none.
    diecut_files_set_hint(open_.store->files(), open_.number, own);
  }

 private:
  Open open_;
  uint64_t size_;
};

class Directory : public FSDirectory {
 public:
  explicit Directory(Open open) : open_(std::move(open)) {}
  IOStatus Fsync(const IOOptions&, IODebugContext*) override {
    return Said(open_.Sync(), open_.name);
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
    Open open = OpenOf(path, options.use_direct_writes);
    const IOStatus status = Said(store_->CreateEmpty(open.name, DIECUT_FILES_UNKNOWN, &open.number), open.name);
    if (status.ok()) result->reset(new WritableFile(open, 0, options));
    return status;
  }
  IOStatus ReopenWritableFile(const std::string& path, const FileOptions& options,
                              std::unique_ptr<FSWritableFile>* result, IODebugContext*) override {
    Open open = OpenOf(path, options.use_direct_writes);
    uint64_t size;
    const IOStatus status =
        Said(store_->FindOrCreate(open.name, DIECUT_FILES_UNKNOWN, &open.number, &size), open.name);
    if (status.ok()) result->reset(new WritableFile(open, size, options));
    return status;
  }
  IOStatus NewDirectory(const std::string& path, const IOOptions&, std::unique_ptr<FSDirectory>* result,
                        IODebugContext*) override {
    Open open = OpenOf(path, false);
    IOStatus status = Said(diecut_files_find_folder(store_->files(), open.name.c_str()), open.name);
    if (status.ok()) result->reset(new Directory(open));
    return status;
  }

  IOStatus FileExists(const std::string& path, const IOOptions&, IODebugContext*) override {
    const std::string name = Clean(path);
    const int code = store_->Find(name);
    return code == DIECUT_FILES_NOT_FOUND ? IOStatus::NotFound() : Said(code, name);
  }
  IOStatus GetChildren(const std::string& path, const IOOptions&, std::vector<std::string>* result,
                       IODebugContext*) override {
    const std::string name = Clean(path);
    const int code = store_->Children(name, result);
    return code == DIECUT_FILES_NOT_FOUND ? IOStatus::NotFound(name) : Said(code, name);
  }
  IOStatus DeleteFile(const std::string& path, const IOOptions&, IODebugContext*) override {
    const std::string name = Clean(path);
    return Said(diecut_files_remove(store_->files(), name.c_str()), name);
  }
  IOStatus Truncate(const std::string& path, size_t size, const IOOptions&, IODebugContext*) override {
    Open open;
    IOStatus status = Find(path, false, &open);
    return status.ok() ? Said(diecut_files_set_size(store_->files(), open.number, size), open.name) : status;
  }
  IOStatus CreateDir(const std::string& path, const IOOptions&, IODebugContext*) override {
    const std::string name = Clean(path);
    return Said(diecut_files_make_folder(store_->files(), name.c_str()), name);
  }
  IOStatus CreateDirIfMissing(const std::string& path, const IOOptions&, IODebugContext*) override {
    const std::string name = Clean(path);
    int code = diecut_files_find_folder(store_->files(), name.c_str());
    if (code == DIECUT_FILES_NOT_FOUND) code = diecut_files_make_folder(store_->files(), name.c_str());
    return Said(code, name);
  }
  IOStatus DeleteDir(const std::string& path, const IOOptions&, IODebugContext*) override {
    const std::string name = Clean(path);
    return Said(diecut_files_remove_folder(store_->files(), name.c_str()), name);
  }
  IOStatus GetFileSize(const std::string& path, const IOOptions&, uint64_t* size, IODebugContext*) override {
    Open open;
    IOStatus status = Find(path, false, &open);
    return status.ok() ? Said(diecut_files_size(store_->files(), open.number, size), open.name) : status;
  }
  IOStatus GetFileModificationTime(const std::string& path, const IOOptions&, uint64_t* seconds,
                                   IODebugContext*) override {
    Open open;
    diecut_files_info_t info;
    IOStatus status = Find(path, false, &open);
    if (status.ok()) status = Said(diecut_files_info(store_->files(), open.number, &info), open.name);
    if (status.ok()) *seconds = static_cast<uint64_t>(info.modified_seconds);
    return status;
  }
  IOStatus LinkFile(const std::string& from, const std::string& to, const IOOptions&, IODebugContext*) override {
    const std::string name = Clean(from);
    return Said(diecut_files_link(store_->files(), name.c_str(), Clean(to).c_str()), name);
  }
  IOStatus NumFileLinks(const std::string& path, const IOOptions&, uint64_t* count, IODebugContext*) override {
    Open open;
    diecut_files_info_t info;
    IOStatus status = Find(path, false, &open);
    if (status.ok()) status = Said(diecut_files_info(store_->files(), open.number, &info), open.name);
    if (status.ok()) *count = info.links;
    return status;
  }
  IOStatus AreFilesSame(const std::string& one, const std::string& other, const IOOptions&, bool* same,
                        IODebugContext*) override {
    Open first, second;
    IOStatus status = Find(one, false, &first);
    if (status.ok()) status = Find(other, false, &second);
    if (status.ok()) *same = first.number == second.number;
    return status;
  }
  IOStatus RenameFile(const std::string& from, const std::string& to, const IOOptions&, IODebugContext*) override {
    const std::string name = Clean(from);
    return Said(diecut_files_rename(store_->files(), name.c_str(), Clean(to).c_str()), name);
  }
  IOStatus IsDirectory(const std::string& path, const IOOptions&, bool* is_folder, IODebugContext*) override {
    const std::string name = Clean(path);
    const int code = diecut_files_find_folder(store_->files(), name.c_str());
    *is_folder = code == DIECUT_FILES_OK;
    uint64_t file;
    return Said(code == DIECUT_FILES_NOT_FOUND ? diecut_files_find(store_->files(), name.c_str(), &file) : code, name);
  }
  IOStatus GetFreeSpace(const std::string& path, const IOOptions&, uint64_t* free, IODebugContext*) override {
    diecut_files_statistics known;
    const int code = diecut_files_get_statistics(store_->files(), &known);
    if (code == DIECUT_FILES_OK) *free = known.capacity_bytes - std::min(known.live_bytes, known.capacity_bytes);
    return Said(code, path);
  }

  IOStatus LockFile(const std::string& path, const IOOptions&, FileLock** lock, IODebugContext* debug) override {
    const std::string name = Clean(path);
    *lock = nullptr;
    if (!store_->Lock(name)) return IOStatus::IOError("lock " + name, "held by this process");
    std::unique_ptr<FSWritableFile> file;
    IOStatus status = ReopenWritableFile(name, FileOptions(), &file, debug);
    if (status.ok()) {
      *lock = new Lock(name);
    } else {
      store_->Unlock(name);
    }
    return status;
  }
  IOStatus UnlockFile(FileLock* lock, const IOOptions&, IODebugContext*) override {
    std::unique_ptr<Lock> own(static_cast<Lock*>(lock));
    store_->Unlock(own->name);
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
  Open OpenOf(const std::string& path, bool direct) const {
    Open open;
    open.store = store_;
    open.name = Clean(path);
    open.direct = direct;
    return open;
  }
  IOStatus Find(const std::string& path, bool direct, Open* open) const {
    *open = OpenOf(path, direct);
    return Said(diecut_files_find(store_->files(), open->name.c_str(), &open->number), open->name);
  }

  std::shared_ptr<Store> store_;
};

// RocksDB asks again for the one it has when it reads its options.
FileSystem* Make(const std::string& uri, std::unique_ptr<FileSystem>* guard, std::string* problem) {
  std::shared_ptr<Store> store = Store::Attach(uri, "RocksDB", problem);
  if (store == nullptr) return nullptr;
  guard->reset(new DiecutFileSystem(std::move(store)));
  return guard->get();
}

// At loading: a program that knows nothing of diecut gets it with LD_PRELOAD.
[[maybe_unused]] const FactoryFunc<FileSystem>& registered = ObjectLibrary::Default()->AddFactory<FileSystem>(
    ObjectLibrary::PatternEntry("diecut", false).AddSeparator("://"), Make);

}  // namespace
