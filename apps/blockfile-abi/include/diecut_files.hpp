// What plug-ins for databases share in C++: the files of a vSSD (diecut_files.h), attached to once in a process.
//
// One process holds a vSSD, so all who name it in this process share it, and locks are kept in its memory.
// Link with libdiecut_files.a.
#ifndef DIECUT_FILES_HPP
#define DIECUT_FILES_HPP

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "diecut_files.h"

namespace diecut {

// The path from the root of the vSSD without empty parts and dots, as the store knows it: "./db//1.sst/" is "/db/1.sst".
inline std::string Clean(const std::string& path) {
  std::string clean;
  for (size_t from = 0; from < path.size();) {
    const size_t to = std::min(path.find('/', from), path.size());
    const std::string part = path.substr(from, to - from);
    if (!part.empty() && part != ".") clean += "/" + part;
    from = to + 1;
  }
  return clean.empty() ? "/" : clean;
}

// A vSSD that is attached to, as long as something of it is open. All calls may be made from any number of threads at once;
// those that return int return a code of enum diecut_files_code.
class Store {
 public:
  // The files of `diecut://VSSD@SOCKET`, or of the zones `diecut://NQN@HOST:PORT`: those that this process has already, or attached to now. NULL, and why in `problem`, if
  // that cannot be. `application` is who writes, for the report.
  static std::shared_ptr<Store> Attach(const std::string& uri, const char* application, std::string* problem) {
    static std::mutex mutex;
    static std::map<std::string, std::weak_ptr<Store>> stores;
    const std::string scheme = "diecut://";
    const size_t at = uri.find('@');
    if (uri.compare(0, scheme.size(), scheme) != 0 || at == std::string::npos || at == scheme.size() ||
        at + 1 == uri.size()) {
      *problem = "\"" + uri +
                 "\" names no vSSD: diecut://VSSD@SOCKET is what is understood, with blocks.sock of the server, or for zones "
                 "diecut://NQN@HOST:PORT";
      return nullptr;
    }
    std::lock_guard<std::mutex> guard(mutex);
    std::shared_ptr<Store> store = stores[uri].lock();
    if (store != nullptr) return store;
    const std::string vssd = uri.substr(scheme.size(), at - scheme.size()), socket = uri.substr(at + 1);
    diecut_files* files = nullptr;
    if (diecut_files_attach(socket.c_str(), vssd.c_str(), &files) != DIECUT_FILES_OK) {
      *problem = uri + ": " + diecut_files_error();
      return nullptr;
    }
    store = std::make_shared<Store>(files, application);
    stores[uri] = store;
    return store;
  }

  // Takes over what was attached to.
  Store(diecut_files* files, const char* application) : files_(files), application_(application) {}
  Store(const Store&) = delete;
  Store& operator=(const Store&) = delete;
  ~Store() {
    if (!IsOfThisProcess()) return;
    Finish();
    diecut_files_detach(files_);
  }

  diecut_files* files() const { return files_; }

  // Not after an error of the server or the medium: who wants to go on attaches again.
  bool IsUsable() const {
    diecut_files_statistics known;
    return diecut_files_get_statistics(files_, &known) == DIECUT_FILES_OK;
  }
  // Not in a child that was forked: the rings to the server are those of its parent.
  bool IsOfThisProcess() const { return getpid() == process_; }

  // Makes all durable, and says on stderr what was written if DIECUT_STATISTICS is set.
  void Finish() const {
    if (diecut_files_sync(files_) != DIECUT_FILES_OK) fprintf(stderr, "diecut: %s\n", diecut_files_error());
    if (getenv("DIECUT_STATISTICS") != nullptr) Report();
  }

  // An empty file of that name, whether there was one or not.
  int CreateEmpty(const std::string& name, uint32_t hint, uint64_t* file) const {
    int code = diecut_files_find(files_, name.c_str(), file);
    if (code == DIECUT_FILES_NOT_FOUND) return diecut_files_create(files_, name.c_str(), hint, file);
    return code == DIECUT_FILES_OK ? diecut_files_set_size(files_, *file, 0) : code;
  }

  // The file of that name with its size: a new one if there is none.
  int FindOrCreate(const std::string& name, uint32_t hint, uint64_t* file, uint64_t* size) const {
    *size = 0;
    const int code = diecut_files_find(files_, name.c_str(), file);
    if (code == DIECUT_FILES_NOT_FOUND) return diecut_files_create(files_, name.c_str(), hint, file);
    return code == DIECUT_FILES_OK ? diecut_files_size(files_, *file, size) : code;
  }

  // DIECUT_FILES_OK if there is a file or a folder of that name.
  int Find(const std::string& name) const {
    uint64_t file;
    const int code = diecut_files_find_folder(files_, name.c_str());
    return code == DIECUT_FILES_OK ? code : diecut_files_find(files_, name.c_str(), &file);
  }

  // Names of all that is directly in a folder.
  int Children(const std::string& folder, std::vector<std::string>* names) const {
    names->clear();
    const int code = diecut_files_find_folder(files_, folder.c_str());
    if (code != DIECUT_FILES_OK) return code;
    auto visit = [](void* list, const char* name, int) { static_cast<std::vector<std::string>*>(list)->push_back(name); };
    return diecut_files_children(files_, folder.c_str(), visit, names);
  }

  // Says whether nobody in this process holds the lock of that name; now somebody does.
  bool Lock(const std::string& name) {
    std::lock_guard<std::mutex> guard(mutex_);
    return locked_.insert(name).second;
  }
  void Unlock(const std::string& name) {
    std::lock_guard<std::mutex> guard(mutex_);
    locked_.erase(name);
  }

 private:
  void Report() const {
    diecut_files_statistics known;
    if (diecut_files_get_statistics(files_, &known) != DIECUT_FILES_OK) return;
    const double written = known.written_bytes / 1e6, appended = known.appended_bytes / 1e6;
    fprintf(stderr,
            "diecut: %s wrote %.1f MB, erase blocks took %.1f MB: write amplification %.3f (cleaner %.1f MB, of which the "
            "device copied %.1f MB by itself, %llu checkpoints, the rest headers and filling); %llu erase blocks freed\n",
            application_, written, appended, written > 0 ? appended / written : 0.0, known.cleaned_bytes / 1e6,
            known.cleaned_inside_bytes / 1e6,
            static_cast<unsigned long long>(known.checkpoints), static_cast<unsigned long long>(known.freed_blocks));
  }

  diecut_files* const files_;
  const char* const application_;
  const pid_t process_ = getpid();
  std::mutex mutex_;
  std::set<std::string> locked_;
};

// An open file of a store.
struct File {
  std::shared_ptr<Store> store;
  uint64_t number = 0;
  std::string name;

  // Says in `read` how many bytes there were, fewer than `length` only at the end of the file.
  int Read(uint64_t offset, size_t length, void* bytes, size_t* read) const {
    *read = 0;
    return length == 0 ? DIECUT_FILES_OK : diecut_files_read(store->files(), number, offset, bytes, length, read);
  }
  int Write(uint64_t offset, const void* bytes, size_t length) const {
    return length == 0 ? DIECUT_FILES_OK : diecut_files_write(store->files(), number, offset, bytes, length);
  }
  // All files of the store.
  int Sync() const { return diecut_files_sync(store->files()); }
};

}  // namespace diecut

#endif
