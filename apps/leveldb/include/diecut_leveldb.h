// LevelDB on the erase blocks of a vSSD, for programs that link with libdiecut_leveldb.so. Those that know nothing of it load it
// with LD_PRELOAD and DIECUT_LEVELDB=diecut://VSSD@SOCKET instead.
#ifndef DIECUT_LEVELDB_H
#define DIECUT_LEVELDB_H

#include <leveldb/env.h>

#include <string>

namespace diecut {

// Attaches to `diecut://VSSD@SOCKET` and makes an Env of its files, for leveldb::Options::env. The caller deletes it after the
// databases that use it; with the last Env of a vSSD in the process it is given back. Paths begin at its root, whether they begin
// with a slash or not.
leveldb::Status NewLevelDbEnv(const std::string& uri, leveldb::Env** env);

}  // namespace diecut

#endif
