/*
 * diecut_files: files on the erase blocks of a vSSD, or in the zones of a namespace, in the process of the application.
 *
 * The C interface of apps/blockfile, for plug-ins: what was written before diecut_files_sync() returned is there after the
 * death of the application or of the server, and after a power cut. Without a sync it waits in the memory of this process.
 *
 * Calls return DIECUT_FILES_OK or another code of enum diecut_files_code; diecut_files_error() then says more, to the same
 * thread. All calls may be made from any number of threads at once, but diecut_files_detach(), which is the last one. No
 * pointer may be NULL. Names are paths in UTF-8 ("/db/1.sst"), whose parts have at most 255 bytes each; folders of a new
 * path that are missing are made. No call terminates the process or lets an exception through.
 */
#ifndef DIECUT_FILES_H
#define DIECUT_FILES_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* How a call ended. */
enum diecut_files_code {
    DIECUT_FILES_OK = 0,
    DIECUT_FILES_NOT_FOUND = 1,
    DIECUT_FILES_EXISTS = 2,
    DIECUT_FILES_NO_SPACE = 3,
    DIECUT_FILES_NOT_EMPTY = 4,
    /* An argument is out of range, or a name is empty, too long or no UTF-8. */
    DIECUT_FILES_INVALID = 5,
    /* The server, the medium, or an error that came before: detach, and attach again. */
    DIECUT_FILES_FAILED = 6,
    /* A bug of the library. */
    DIECUT_FILES_INTERNAL = 7,
    /* A part of a path is no folder, or what should be one is none. */
    DIECUT_FILES_NOT_FOLDER = 8,
    DIECUT_FILES_IS_FOLDER = 9
};

/* How long the content of a file is thought to live: files of one hint share erase blocks. Higher ones are taken for the last. */
enum diecut_files_hint {
    DIECUT_FILES_UNKNOWN = 0,
    DIECUT_FILES_SHORT = 1,
    DIECUT_FILES_MEDIUM = 2,
    DIECUT_FILES_LONG = 3,
    DIECUT_FILES_EXTREME = 4
};

/* The files of a vSSD, held by this process. */
typedef struct diecut_files diecut_files;

/* What was done since the attach, in bytes. */
typedef struct diecut_files_statistics {
    /* By the application. */
    uint64_t written_bytes;
    /* Appended to erase blocks: with headers, filling, copies, checkpoints. Nothing below programs more for it. */
    uint64_t appended_bytes;
    /* Of those, copies of the cleaner. */
    uint64_t cleaned_bytes;
    /* Of those, what the device copied by itself: it did not come into this process. */
    uint64_t cleaned_inside_bytes;
    uint64_t checkpoints;
    uint64_t freed_blocks;
    /* What files need now, and the most that they may. */
    uint64_t live_bytes;
    uint64_t capacity_bytes;
} diecut_files_statistics;

/* What is known of a file. */
typedef struct diecut_files_info_t {
    uint64_t size_bytes;
    /* When its content was changed, since 1970. */
    int64_t modified_seconds;
    uint32_t modified_nanoseconds;
    /* Names that it has. */
    uint32_t links;
} diecut_files_info_t;

/* Text of the last failure of this thread; valid until its next one. */
const char *diecut_files_error(void);

/* Attaches to a vSSD (`diecut vssd create --use blocks`) at the server's socket and opens its files; formats it if it holds
   nothing. Waits up to two seconds for an application before that just died.
   With an address ("127.0.0.1:4420") as `socket`, `vssd` is the NQN of a subsystem with a zoned namespace, or NQN/NSID where it has
   several, and files are in its zones. Whoever held them before can write no more. The environment variable DIECUT_HOST_NQN says which
   host this is. */
int diecut_files_attach(const char *socket, const char *vssd, diecut_files **files);
/* Gives the vSSD back. What was not synced is lost. */
void diecut_files_detach(diecut_files *files);

/* Makes an empty file and says its number, which it keeps when it gets another name. */
int diecut_files_create(const diecut_files *files, const char *name, uint32_t hint, uint64_t *file);
/* Says the number of a file. */
int diecut_files_find(const diecut_files *files, const char *name, uint64_t *file);
/* Takes the name away; with its last one the file goes. */
int diecut_files_remove(const diecut_files *files, const char *name);
/* For files and folders, with what is in them. Whatever had the name `to` is removed, if it is not a folder with something in it. */
int diecut_files_rename(const diecut_files *files, const char *from, const char *to);
/* Gives a file the name `to` besides those that it has. Its folder must be there. */
int diecut_files_link(const diecut_files *files, const char *from, const char *to);
/* Says what is known of a file. */
int diecut_files_info(const diecut_files *files, uint64_t file, diecut_files_info_t *info);
/* For what is written from now on. */
int diecut_files_set_hint(const diecut_files *files, uint64_t file, uint32_t hint);

int diecut_files_size(const diecut_files *files, uint64_t file, uint64_t *size);
/* Reads up to `length` bytes; `*read` says how many there were, fewer only at the end of the file. */
int diecut_files_read(const diecut_files *files, uint64_t file, uint64_t offset, void *bytes, size_t length,
                      size_t *read);
/* The file grows where it must. */
int diecut_files_write(const diecut_files *files, uint64_t file, uint64_t offset, const void *bytes, size_t length);
/* Cuts a file, or lets it grow with zeros. */
int diecut_files_set_size(const diecut_files *files, uint64_t file, uint64_t size);
/* Waits until all that was done so far, to all files, is durable. */
int diecut_files_sync(const diecut_files *files);

int diecut_files_make_folder(const diecut_files *files, const char *folder);
/* Only an empty one. */
int diecut_files_remove_folder(const diecut_files *files, const char *folder);
/* DIECUT_FILES_NOT_FOUND if there is none. */
int diecut_files_find_folder(const diecut_files *files, const char *folder);
/* Calls `visit` for all that is directly in a folder, in order. */
int diecut_files_children(const diecut_files *files, const char *folder,
                          void (*visit)(void *context, const char *name, int is_folder), void *context);

int diecut_files_get_statistics(const diecut_files *files, diecut_files_statistics *statistics);

#ifdef __cplusplus
}
#endif

#endif
